#include <rdmacoro/service/detail/admission.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <rdmacoro/service/group.hpp>

#include <vector>

namespace test_service_detail_admission {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace rc = rdmacoro;

namespace {

constexpr collective_shape shape(collective_kind kind, std::size_t elements, unsigned ranks) {
    return {.kind = kind, .bytes = elements * 8, .elements = elements, .ranks = ranks};
}

}  // namespace

TEST_CASE("an algorithm admits what it can do, up to its limit") {
    using namespace detail;
    const collective_shape plain = shape(collective_kind::allreduce, 10, 6);
    STATIC_REQUIRE(admits_shape<80, everything>(shape(collective_kind::allreduce, 10, 6)));
    CHECK(!admits_shape<79, everything>(plain));
    CHECK(!admits_shape<80, all_but(can::any_size)>(plain));
    CHECK(!admits_shape<80, all_but(can::one_host)>(plain));
    CHECK(admits_shape<80, all_but(can::no_part)>(plain));
    CHECK(!admits_shape<80, all_but(can::no_part)>(shape(collective_kind::allreduce, 5, 6)));
    collective_shape other = plain;
    other.in_order = true;
    CHECK(!admits_shape<80, all_but(can::order)>(other));
    CHECK(admits_shape<80, all_but(can::repeat)>(other));
    other = plain;
    other.left_fold = true;
    CHECK(!admits_shape<80, everything>(other));
    CHECK(admits_shape < 80, everything | can::fold > (other));
    other = plain;
    other.reproducible = true;
    CHECK(!admits_shape<80, all_but(can::repeat)>(other));
    other = plain;
    other.uneven = true;
    CHECK(!admits_shape<80, all_but(can::uneven)>(other));
    other = plain;
    other.hosts = 2;
    CHECK(admits_shape<80, all_but(can::one_host)>(other));
    CHECK(admits_shape<80, all_but(can::in_turn)>(other));
    other.in_turn = true;
    CHECK(!admits_shape<80, all_but(can::in_turn)>(other));
}

TEST_CASE("a collective as two steps is admitted where both are, each of its own length") {
    using namespace detail;
    using enum collective_kind;
    // Broadcast gets the blocks of all ranks.
    constexpr algorithm gathered =
        rc::by_root<rc::any_length, rc::flat_tree<rc::up_to<80>>, rc::chain<rc::up_to<320>>>::of<allgather>();
    STATIC_REQUIRE(gathered.admits(shape(allgather, 10, 4)));
    CHECK(!gathered.admits(shape(allgather, 10, 5)));
    CHECK(!gathered.admits(shape(allgather, 11, 3)));
    // An order counts for the reduction alone.
    constexpr algorithm reduced =
        rc::by_root<rc::any_length, rc::binomial<>, rc::scatter_allgather<>>::of<allreduce>();
    collective_shape ordered = shape(allreduce, 10, 4);
    CHECK(reduced.admits(ordered));
    ordered.in_order = true;
    CHECK(!reduced.admits(ordered));
    constexpr algorithm kept = rc::by_root<rc::any_length, rc::flat_tree<>, rc::chain<>>::of<allreduce>();
    CHECK(kept.admits(ordered));
    ordered.reproducible = true;
    CHECK(kept.admits(ordered));
    ordered.left_fold = true;
    CHECK(kept.admits(ordered));
    CHECK(!rc::by_root<>::of<allreduce>().admits(ordered));
    // Blocks of several lengths, which all ranks know.
    collective_shape uneven = shape(reduce_scatter, 0, 4);
    uneven.uneven = true;
    CHECK(rc::by_root<>::of<reduce_scatter>().admits(uneven));
    CHECK(rc::by_root<>::of<allgather>().admits(uneven));
    // A step that takes blocks alike does not get them, but reduces what is not cut into blocks yet.
    uneven.hosts = 2;
    CHECK(!rc::by_root<rc::any_length, rc::hierarchical<>>::of<allgather>().admits(uneven));
    CHECK(!rc::by_root<rc::any_length, rc::spanning_tree<>, rc::hierarchical<>>::of<reduce_scatter>().admits(
        uneven));
    CHECK(rc::by_root<rc::any_length, rc::hierarchical<>>::of<reduce_scatter>().admits(uneven));
    CHECK(rc::by_root<>::of<barrier>().admits(shape(barrier, 0, 5)));
    CHECK(rc::by_root<>::of<broadcast>().run == nullptr);
    CHECK(rc::by_root<>::of<allgather>().steps[0] == "spanning_tree");
    CHECK(rc::by_root<rc::any_length, rc::flat_tree<>>::of<allgather>().steps[0] == "flat_tree");
}

TEST_CASE(
    "a collective in parts is admitted where there is a part for each rank, and its steps take parts of "
    "several lengths") {
    using namespace detail;
    using enum collective_kind;
    constexpr algorithm parts = rc::by_parts<>::of<reduce>();
    STATIC_REQUIRE(parts.admits(shape(reduce, 7, 7)));
    CHECK(!parts.admits(shape(reduce, 6, 7)));
    CHECK(!rc::by_parts<rc::up_to<55>>::of<reduce>().admits(shape(reduce, 7, 7)));
    CHECK(!rc::by_parts<rc::any_length, rc::ring<>, rc::bruck<>>::of<allreduce>().admits(
        shape(allreduce, 14, 7)));
    collective_shape ordered = shape(reduce, 70, 7);
    ordered.in_order = true;
    CHECK(!parts.admits(ordered));
    CHECK(rc::by_parts<>::of<scan>().run == nullptr);
}

TEST_CASE("what must not be chosen by its length has none") {
    collective_shape one = shape(collective_kind::reduce, 10, 4);
    CHECK(one.for_choice().bytes == 80);
    one.reproducible = true;
    CHECK(one.for_choice().bytes == 0);
    CHECK(one.for_choice().elements == 0);
    one.reproducible = false;
    one.uneven = true;
    CHECK(one.for_choice().bytes == 0);
}

TEST_CASE("collectives as any two steps give every rank what it must have") {
    run_nodes([]() -> task<> {
        for (const unsigned size : {2u, 3u, 4u, 5u, 8u}) {
            ranks<sim> all(size);
            co_await all.open();
            const auto body = [](group& g) -> task<> {
                const unsigned p = g.size();
                for (const std::size_t n :
                     {std::size_t{0}, std::size_t{1}, std::size_t{40}, std::size_t{30'000}}) {
                    std::vector<unsigned> mine(n, g.rank() + 1), x(n), wide(n * p), everyone(n * p);
                    for (std::size_t at = 0; at < wide.size(); ++at) wide[at] = static_cast<unsigned>(at);
                    const unsigned sum = p * (p + 1) / 2;
                    const auto is_sum = [&] { return x == std::vector<unsigned>(n, sum); };
                    co_await g.allreduce(mine, x, std::plus<>{},
                                         rc::use<rc::by_root<rc::any_length, rc::ring<>, rc::chain<>>>);
                    CHECK(is_sum());
                    co_await g.allreduce(
                        mine, x, std::plus<>{},
                        rc::use<rc::by_root<rc::any_length, rc::binomial<>, rc::scatter_allgather<>>>);
                    CHECK(is_sum());
                    co_await g.allreduce(
                        mine, x, std::plus<>{},
                        rc::use<rc::by_root<rc::any_length, rc::flat_tree<>, rc::four_ary_tree<>>>);
                    CHECK(is_sum());
                    co_await g.allreduce(
                        mine, x, std::plus<>{},
                        rc::use<rc::by_parts<rc::any_length, rc::pairwise<>, rc::double_ring<>>>);
                    CHECK(is_sum());
                    co_await g.allreduce(
                        mine, x, std::plus<>{},
                        rc::use<rc::by_parts<rc::any_length, rc::recursive_halving<>, rc::ring<>>>);
                    CHECK(is_sum());
                    co_await g.broadcast(x, rc::root(p - 1),
                                         rc::use<rc::by_parts<rc::any_length, rc::flat_tree<>, rc::ring<>>>);
                    CHECK(is_sum());
                    co_await g.reduce(mine, x, std::plus<>{}, rc::root(p / 2),
                                      rc::use<rc::by_parts<rc::any_length, rc::recursive_halving<>,
                                                           rc::overlapped_flat_tree<>>>);
                    if (g.rank() == p / 2) CHECK(is_sum());
                    co_await g.allgather(
                        mine, everyone,
                        rc::use<rc::by_root<rc::any_length, rc::overlapped_flat_tree<>, rc::chain<>>>);
                    bool right = true;
                    for (std::size_t at = 0; at < everyone.size(); ++at)
                        right = right && everyone[at] == at / n + 1;
                    CHECK(right);
                    co_await g.reduce_scatter(
                        wide, x, std::plus<>{},
                        rc::use<rc::by_root<rc::any_length, rc::ring<>, rc::overlapped_flat_tree<>>>);
                    for (std::size_t at = 0; at < n; ++at)
                        right = right && x[at] == p * static_cast<unsigned>(g.rank() * n + at);
                    CHECK(right);
                }
                // Of several lengths.
                std::vector<std::size_t> counts;
                std::size_t total = 0;
                for (unsigned rank = 0; rank < p; ++rank) {
                    counts.push_back(rank % 3);
                    total += rank % 3;
                }
                std::vector<unsigned> mine(counts[g.rank()], g.rank()), everyone(total), wide(total, 1),
                    x(mine.size());
                co_await g.allgatherv(mine, everyone, counts,
                                      rc::use<rc::by_root<rc::any_length, rc::overlapped_flat_tree<>>>);
                std::vector<unsigned> wanted;
                for (unsigned rank = 0; rank < p; ++rank) wanted.insert(wanted.end(), counts[rank], rank);
                CHECK(everyone == wanted);
                co_await g.reduce_scatterv(
                    wide, counts, x, std::plus<>{},
                    rc::use<rc::by_root<rc::any_length, rc::binomial<>, rc::flat_tree<>>>);
                CHECK(x == std::vector<unsigned>(x.size(), p));
            };
            co_await all.each(body);
        }
    });
}

}  // namespace test_service_detail_admission
