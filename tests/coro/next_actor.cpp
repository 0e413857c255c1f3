#include <rdmacoro/coro/next_actor.hpp>

#include "support/catch.hpp"

#include <set>
#include <string>

namespace test_coro_next_actor {

using namespace rdmacoro;

TEST_CASE("each party that may have to act has a text of its own", "[describe]") {
    std::set<std::string> texts;
    const auto last = static_cast<int>(next_actor::network);
    for (int n = 0; n <= last; ++n) texts.insert(text_of(static_cast<next_actor>(n)));
    CHECK(texts.size() == static_cast<std::size_t>(last) + 1);
    CHECK(texts.count("") == 0);
}

}  // namespace test_coro_next_actor
