#include <rdmacoro/service/algorithm.hpp>

#include "support/catch.hpp"

#include <rdmacoro/service/collectives.hpp>

#include <set>
#include <string>

namespace test_service_algorithm {

using namespace rdmacoro;

TEST_CASE("each kind of collective has a name of its own, and algorithms with names of their own") {
    std::set<std::string> kinds;
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const auto kind = static_cast<collective_kind>(which);
        kinds.insert(std::string(name_of(kind)));
        std::set<std::string> names;
        for (const algorithm& one : algorithms_of(kind)) {
            CHECK(one.run != nullptr);
            CHECK(one.admits != nullptr);
            names.insert(std::string(one.name));
        }
        CHECK(names.size() == algorithms_of(kind).size());
        CHECK(!names.empty());
    }
    CHECK(kinds.size() == collective_kinds);
    CHECK(kinds.contains("reduce_scatter"));
}

}  // namespace test_service_algorithm
