#include <rdmacoro/service/collectives.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <string>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace rc = rdmacoro;

namespace {

// clang-format off: as in the document
using mine = rc::collectives<rc::allreduce<rc::recursive_doubling<rc::up_to<4096>>, rc::rabenseifner<>>,
                             rc::broadcast<rc::binomial<rc::up_to<32768>>, rc::scatter_allgather<>>>;
// clang-format on

constexpr collective_shape shape(collective_kind kind, std::size_t bytes, unsigned ranks, unsigned hosts = 1) {
    return {.kind = kind, .bytes = bytes, .elements = bytes / 8, .ranks = ranks, .hosts = hosts};
}
constexpr std::string_view chosen(algorithm_choice by, const collective_shape& of) {
    const algorithm* const found = by(of);
    return found != nullptr ? found->name : std::string_view();
}

}  // namespace

TEST_CASE("the first algorithm of a list that admits a shape carries it, and that is known to the compiler") {
    using enum collective_kind;
    STATIC_REQUIRE(mine::choose(shape(allreduce, 4096, 4))->name == "recursive_doubling");
    STATIC_REQUIRE(mine::choose(shape(allreduce, 4104, 4))->name == "rabenseifner");
    STATIC_REQUIRE(mine::choose(shape(broadcast, 32768, 4))->name == "binomial");
    STATIC_REQUIRE(mine::choose(shape(broadcast, 32776, 4))->name == "scatter_allgather");
    STATIC_REQUIRE(mine::choose(shape(barrier, 0, 4)) == nullptr);
    // Fewer elements than ranks cannot be cut.
    STATIC_REQUIRE(collectives<rc::broadcast<scatter_allgather<>>>::choose(shape(broadcast, 24, 4)) == nullptr);
    // Nor an order kept that an algorithm does not have.
    collective_shape ordered = shape(allreduce, 1 << 20, 4);
    ordered.in_order = true;
    CHECK(mine::choose(ordered) == nullptr);
    CHECK(chosen(&default_collectives::choose, ordered) == "recursive_doubling");
}

TEST_CASE("the default for few and for many ranks") {
    using enum collective_kind;
    const algorithm_choice by = &default_collectives::choose;
    CHECK(chosen(by, shape(barrier, 0, 8)) == "dissemination");
    CHECK(chosen(by, shape(barrier, 0, 8, 2)) == "hierarchical");
    CHECK(chosen(by, shape(barrier, 0, 8, 8)) == "dissemination");
    CHECK(chosen(by, shape(allreduce, 8, 64)) == "recursive_doubling");
    CHECK(chosen(by, shape(allreduce, 65536, 2)) == "recursive_doubling");
    CHECK(chosen(by, shape(allreduce, 65536, 64)) == "rabenseifner");
    CHECK(chosen(by, shape(alltoall, 8, 64)) == "bruck");
    CHECK(chosen(by, shape(alltoall, 1 << 20, 64)) == "pairwise");
    // Every kind has one for every shape.
    for (std::size_t kind = 0; kind < collective_kinds; ++kind) {
        for (const unsigned ranks : {2u, 3u, 8u, 100u}) {
            for (const unsigned flags : {0u, 1u, 2u, 4u, 7u}) {
                for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 30}) {
                    collective_shape one = shape(static_cast<collective_kind>(kind), bytes, ranks);
                    one.in_order = (flags & 1) != 0;
                    one.reproducible = (flags & 2) != 0;
                    one.uneven = (flags & 4) != 0;
                    INFO(name_of(one.kind) << ' ' << ranks << ' ' << bytes << ' ' << flags);
                    CHECK(by(one) != nullptr);
                }
            }
        }
    }
}

TEST_CASE("explain_collectives has a line where the algorithm changes") {
    const std::string table = explain_collectives(4);
    CHECK(table.find("collectives of 4 ranks on 1 host") == 0);
    CHECK(table.find("allreduce       0            recursive_doubling\n                  8200         rabenseifner\n") !=
          std::string::npos);
    CHECK(table.find("none") == std::string::npos);
}

TEST_CASE("after a failure those that are left go on with a smaller group") {
    run_nodes([]() -> task<> {
        ranks<shm> all(3);
        co_await all.open();
        co_await all.kill(2);
        int ended = 0;
        const auto body = [&ended](group& g) -> task<> {
            if (!g) co_return;
            std::vector<int> x(3, 1);
        if (!co_await rc::as_result(g.allreduce(rc::in_place, x, std::plus<>{}))) {
            g = co_await g.shrink();  // every rank that is left comes here
            co_await g.allreduce(rc::in_place, x, std::plus<>{});
        }
            CHECK(g.size() == 2);
            ++ended;
        };
        co_await all.each(body);
        CHECK(ended == 2);
    });
}
