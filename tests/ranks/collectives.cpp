// Every collective between processes, with what each must have in the end.

#include "support/catch.hpp"
#include "support/collective_cases.hpp"
#include "support/over/shm_variants.hpp"
#include "support/rank_processes.hpp"
#if RDMACORO_WITH_TCP
#include "support/over/tcp_variants.hpp"
#endif
#if RDMACORO_WITH_VERBS && RDMACORO_VERBS_SUITE
#include "support/over/verbs_variants.hpp"
#endif
#if RDMACORO_WITH_OFI && RDMACORO_OFI_SUITE
#include "conformance/ofi_transports.hpp"
#endif

#include <rdmacoro/coro/coro.hpp>

#include <iterator>
#include <set>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

std::vector<rank_network> rdmacoro::test::rank_networks() {
    [[maybe_unused]] const auto here = [](unsigned, unsigned) { return std::string(); };
    [[maybe_unused]] const auto two = [](unsigned rank, unsigned size) {
        return std::string(2 * rank < size ? "alpha" : "beta");
    };
    std::vector<rank_network> all;
    // Of the programs of their own nothing is run twice.
#if RDMACORO_WITH_VERBS && RDMACORO_VERBS_SUITE
    if (const char* const device = std::getenv("RXE_IP"))
        all.push_back({"verbs", &run_as_rank<verbs_as_it_comes>, here, device});
    if (const char* const device = std::getenv("SIW_IP"))
        all.push_back({"verbs over iWARP", &run_as_rank<verbs_over_iwarp>, here, device});
#elif RDMACORO_WITH_OFI && RDMACORO_OFI_SUITE
    all.push_back({"ofi", &run_as_rank<ofi_tcp>, here});
#else
    all.push_back({"shm", &run_as_rank<shm_as_it_comes>, here});
#if RDMACORO_WITH_TCP
    all.push_back({"tcp", &run_as_rank<tcp_as_it_comes>, here});
    all.push_back(
        {"shm within two hosts and tcp between them", &run_as_rank<shm_as_it_comes, tcp_as_it_comes>, two});
#endif
#endif
    return all;
}

namespace {

struct forced {
    static const algorithm* choose(const collective_shape& shape) { return by_force(shape); }
};

/// The part of one process, and its faults.
struct part {
    job& ranks;
    rank_notes* notes;
    group all;
    std::uint64_t steps = 0;

    [[nodiscard]] rank_notes& own() const { return notes[ranks.rank()]; }

    template <class T, class Op>
    task<> one(const collective_case& of, const algorithm* by) {
        forced_algorithm = by;
        forced_kind = of.kind;
        forced_runs = 0;
        all.use<forced>();
        own().step = ++steps;
        unsigned entered = ranks.size() - 1;  // counted by `step`
        std::string wrong = co_await timeout(perform<T>(all, of, Op{}, entered), 20s);
        if (of.kind == collective_kind::barrier) {
            for (unsigned other = 0; other < ranks.size(); ++other) {
                if (notes[other].step < steps)
                    wrong = "left before rank " + std::to_string(other) + " had entered";
            }
        }
        if (by != nullptr && ranks.size() > 1 && forced_runs != 1) wrong += " another algorithm ran";
        if (!wrong.empty())
            own().say(of.text(by == nullptr ? "default" : by->name, ranks.size()) + ": " + wrong + '\n');
    }

    /// Every variant of each kind, or one with one root; by the algorithm that is chosen, or by each.
    template <class T, class Op>
    task<> each(bool by_all, bool in_order, std::vector<std::size_t> lengths, bool variants,
                bool reductions_only) {
        const unsigned size = ranks.size();
        const std::set<unsigned> different{0, size - 1};
        const std::vector<unsigned> roots(variants ? different.begin() : std::prev(different.end()),
                                          different.end());
        for (std::size_t which = 0; which < collective_kinds; ++which) {
            const auto kind = static_cast<collective_kind>(which);
            if (reductions_only && !is_reduction(kind)) continue;
            for (const collective_case& of : cases_of(kind, roots, lengths, variants)) {
                if (!by_all) {
                    co_await one<T, Op>(of, nullptr);
                    continue;
                }
                const unsigned hosts = ranks.hosts();
                for (const algorithm& by : algorithms_of(kind)) {
                    if (by.admits(of.shape(sizeof(T), size, hosts, in_order))) co_await one<T, Op>(of, &by);
                }
            }
        }
    }
};

task<> default_choice(job& ranks, rank_notes* notes) {
    part of{ranks, notes, ranks.world()};
    const unsigned size = ranks.size();
    std::vector<std::size_t> lengths{0, size + 1, 300};
    co_await of.each<std::uint32_t, std::plus<>>(false, false, std::move(lengths), true, false);
    // By rendezvous: 256 KiB for all.
    lengths = {65'536 / size};
    co_await of.each<std::uint32_t, std::plus<>>(false, false, std::move(lengths), false, false);
    lengths = {1, size + 1};
    co_await of.each<matrix, product>(false, true, std::move(lengths), true, true);
    co_await ranks.leave();
}

task<> each_algorithm(job& ranks, rank_notes* notes) {
    part of{ranks, notes, ranks.world()};
    std::vector<std::size_t> lengths{ranks.size() + 1, 1500};
    co_await of.each<std::uint32_t, std::plus<>>(true, false, std::move(lengths), true, false);
    lengths = {ranks.size() + 1};
    co_await of.each<matrix, product>(true, true, std::move(lengths), true, true);
    co_await ranks.leave();
}

/// Collectives of groups that overlap, and several at a time, between processes.
task<> concurrent(job& ranks, rank_notes* notes) {
    const group world = ranks.world();
    const unsigned rank = ranks.rank();
    const unsigned size = ranks.size();
    const group halves = co_await world.split(rank % 2);
    const group pairs = co_await world.split(rank / 2, -static_cast<std::int64_t>(rank));
    for (unsigned round = 0; round < 50; ++round) {
        std::vector<std::uint32_t> a{rank + round};
        std::vector<std::uint32_t> b{rank};
        std::vector<std::uint32_t> c{rank};
        std::vector<std::uint32_t> d(40'000, rank == round % size ? round : 99u);
        auto first = start(world.allreduce(in_place, a, std::plus<>{}));
        auto second = start(halves.allreduce(in_place, b, std::plus<>{}));
        auto third = start(pairs.allreduce(in_place, c, std::plus<>{}));
        auto fourth = start(world.broadcast(d, root(round % size)));
        co_await fourth;
        co_await third;
        co_await second;
        co_await first;
        std::uint32_t of_half = 0;
        std::uint32_t of_pair = 0;
        for (unsigned other = 0; other < size; ++other) {
            of_half += other % 2 == rank % 2 ? other : 0;
            of_pair += other / 2 == rank / 2 ? other : 0;
        }
        const bool good = a[0] == size * (size - 1) / 2 + size * round && b[0] == of_half &&
                          c[0] == of_pair && d == std::vector<std::uint32_t>(40'000, round);
        if (!good) {
            notes[rank].say("wrong in round " + std::to_string(round));
            break;
        }
        notes[rank].step = round + 1;
    }
    co_await ranks.leave();
}

void run_ranks(const rank_network& over, unsigned size, const rank_program& program, std::uint64_t least) {
    rank_processes all(over, size, program);
    all.meet();
    CAPTURE(over.name, size);
    all.wait();
    CHECK(all.wrong() == "");
    for (unsigned rank = 0; rank < size; ++rank) CHECK(all.notes(rank).step >= least);
}

}  // namespace

TEST_CASE("one to eight processes do every collective, and each has what it must have") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    for (const rank_network& over : networks) {
        for (unsigned size = 1; size <= 8; ++size) run_ranks(over, size, default_choice, 60);
    }
}

TEST_CASE("processes do every collective by every algorithm") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    for (const rank_network& over : networks) {
        for (const unsigned size : {3u, 4u, 6u}) run_ranks(over, size, each_algorithm, 150);
    }
}

TEST_CASE("processes have several collectives at a time, of groups that overlap") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    for (const rank_network& over : networks) {
        for (const unsigned size : {2u, 5u, 8u}) run_ranks(over, size, concurrent, 50);
    }
}

namespace {

/// A broadcast that must end with an error in which the ranks disagree about `what`.
task<> must_disagree(job& ranks, rank_notes* notes, unsigned from, std::string what) {
    rank_notes& own = notes[ranks.rank()];
    const group g = ranks.world();
    std::vector<std::uint32_t> x(100);
    std::error_code code;
    std::string text;
    try {
        co_await timeout(g.broadcast(x, root(from)), 10s);
    } catch (const std::system_error& e) {
        code = e.code();
        text = e.what();
    }
    if (code != group_errc::mismatch || text.find("disagree about " + what) == std::string::npos)
        own.say("it ended with \"" + text + "\"");
    own.step = 1;
    co_await ranks.leave();
}

}  // namespace

TEST_CASE(
    "where one process wants calls compared all compare them, and each finds what another one alone has "
    "set") {
    const auto networks = rank_networks();
    if (networks.empty()) SKIP_TEST("no device");
    const auto run = [&](const rank_program& program, const std::function<void(unsigned)>& first) {
        rank_processes all(networks.front(), 3, program, 20s, first);
        all.meet();
        all.wait();
        CHECK(all.wrong() == "");
        for (unsigned rank = 0; rank < 3; ++rank) CHECK(all.notes(rank).step == 1);
    };
    run([](job& ranks,
           rank_notes* notes) { return must_disagree(ranks, notes, ranks.rank() == 2 ? 1 : 0, "the root"); },
        [](unsigned rank) { ::setenv("RDMACORO_CHECK_COLLECTIVES", rank == 1 ? "1" : "0", 1); });
    run([](job& ranks, rank_notes* notes) { return must_disagree(ranks, notes, 0, "the algorithm"); },
        [](unsigned rank) {
            ::setenv("RDMACORO_CHECK_COLLECTIVES", "1", 1);
            if (rank == 1) ::setenv("RDMACORO_BROADCAST", "chain", 1);
        });
}
