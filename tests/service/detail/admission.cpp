#include <rdmacoro/service/detail/admission.hpp>

#include "support/catch.hpp"
#include "support/collective_plans.hpp"

#include <rdmacoro/service/group.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
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

namespace {

template <class... Ts>
struct types {};

// The steps: every algorithm that carries their kind, one that is two steps itself among them.
using gathers = types<rc::flat_tree<>, rc::overlapped_flat_tree<>, rc::spanning_tree<>>;
using scatters = gathers;
using of_hosts = types<rc::hierarchical<>>;
using broadcasts = types<rc::flat_tree<>, rc::overlapped_flat_tree<>, rc::binomial<>, rc::spanning_tree<>,
                         rc::four_ary_tree<>, rc::chain<>, rc::hierarchical<>>;
using broadcasts_of_parts =
    types<rc::scatter_allgather<>, rc::by_parts<rc::any_length, rc::spanning_tree<>, rc::ring<>>,
          rc::by_parts<rc::any_length, rc::flat_tree<>, rc::by_root<>>>;
using allgathers = types<rc::ring<>, rc::double_ring<>, rc::recursive_doubling<>, rc::by_root<>,
                         rc::overlapped_flat_tree<>, rc::hierarchical<>>;
using reduces = types<rc::flat_tree<>, rc::binomial<>, rc::spanning_tree<>, rc::ring<>, rc::by_parts<>,
                      rc::by_parts<rc::any_length, rc::by_root<>, rc::flat_tree<>>, rc::hierarchical<>>;
using reduce_scatters =
    types<rc::ring<>, rc::recursive_halving<>, rc::pairwise<>, rc::by_root<>, rc::hierarchical<>>;

struct pair_of_steps {
    collective_kind kind;
    algorithm by;
    std::string name;  // of `by`
};

class all_pairs {
public:
    /// The collective `K` by `Two` of each of the first steps with each of the second ones.
    template <collective_kind K, template <class, class, class> class Two, class... First, class... Second>
    void add(types<First...>, types<Second...>) {
        (add_with<K, Two, First>(types<Second...>()), ...);
    }
    [[nodiscard]] const std::deque<pair_of_steps>& list() const { return list_; }

private:
    template <collective_kind K, template <class, class, class> class Two, class First, class... Second>
    void add_with(types<Second...>) {
        (add_one<K, Two<rc::any_length, First, Second>>(), ...);
    }
    template <collective_kind K, class Two>
    void add_one() {
        pair_of_steps& one = list_.emplace_back(K, Two::template of<K>(), std::string());
        one.name = std::string(one.by.name) + " of " + std::string(one.by.steps[0]) + " and " +
                   std::string(one.by.steps[1]);
        one.by.name = one.name;
    }

    std::deque<pair_of_steps> list_;  // names are referred to
};

template <class Op, class T>
task<> try_pair(ranks<sim>& all, const pair_of_steps& pair, unsigned hosts, collective_findings& found) {
    const bool left_fold = !is_associative<Op, T>;
    const bool in_order = left_fold || !is_commutative<Op, T>;
    const unsigned size = all.size();
    for (const collective_case& one : cases_of(pair.kind, {size - 1}, {0, 1, 40, 3'000}, true)) {
        if (!pair.by.admits(one.shape(sizeof(T), size, hosts, in_order, left_fold))) continue;
        co_await try_case<T, Op>(all, one, pair.by, nullptr, found);
    }
}

void try_pairs(const all_pairs& pairs, unsigned size, unsigned hosts, collective_findings& found) {
    run_simulated(unordered(size), [&](sim_world& world) -> task<> {
        sim_options network;
        network.world = &world;
        std::vector<unsigned> of_ranks;
        for (unsigned rank = 0; rank < size; ++rank) of_ranks.push_back(rank * hosts / size);
        ranks<sim> all(size, of_ranks, ranks<sim>::usual(), network);
        co_await open_unchecked(all);
        for (const pair_of_steps& one : pairs.list()) {
            co_await try_pair<std::plus<>, std::uint32_t>(all, one, hosts, found);
            if (!is_reduction(one.kind)) continue;
            co_await try_pair<product, matrix>(all, one, hosts, found);
            co_await try_pair<mixing, std::uint32_t>(all, one, hosts, found);
        }
    });
}

}  // namespace

TEST_CASE("collectives as any two steps give every rank what it must have") {
    using enum collective_kind;
    all_pairs pairs;
    pairs.add<barrier, rc::by_root>(gathers(), broadcasts());
    pairs.add<barrier, rc::by_root>(of_hosts(), broadcasts());
    pairs.add<allgather, rc::by_root>(gathers(), broadcasts());
    pairs.add<allgather, rc::by_root>(of_hosts(), broadcasts());
    pairs.add<allgather, rc::by_root>(gathers(), broadcasts_of_parts());
    pairs.add<allreduce, rc::by_root>(reduces(), broadcasts());
    pairs.add<allreduce, rc::by_root>(reduces(), broadcasts_of_parts());
    pairs.add<reduce_scatter, rc::by_root>(reduces(), scatters());
    pairs.add<reduce_scatter, rc::by_root>(reduces(), of_hosts());
    pairs.add<broadcast, rc::by_parts>(scatters(), allgathers());
    pairs.add<reduce, rc::by_parts>(reduce_scatters(), gathers());
    pairs.add<allreduce, rc::by_parts>(reduce_scatters(), allgathers());
    collective_findings found;
    for (const unsigned size : {2u, 3u, 5u, 8u}) try_pairs(pairs, size, 1, found);
    for (const unsigned size : {3u, 6u}) try_pairs(pairs, size, 2, found);
    check_right(found);
    std::string never;
    for (const pair_of_steps& one : pairs.list()) {
        if (!found.seen.contains({std::string(name_of(one.kind)), one.name}))
            never += std::string(name_of(one.kind)) + " by " + one.name + "\n";
    }
    CHECK(never == "");
}

}  // namespace test_service_detail_admission
