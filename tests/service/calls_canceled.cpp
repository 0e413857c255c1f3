// Many calls that are canceled at random moments: what both ends have of memory, credit and pending operations is as before.
#include <rdmacoro/service/calls.hpp>

#include "support/calls_pair.hpp"
#include "support/counting_new.hpp"
#include "support/nodes.hpp"
#include "support/run.hpp"
#include "support/sanitizer.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <malloc.h>

namespace test_service_calls_canceled {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// The resources of both ends of a connection, in numbers that are to stay the same.
struct holdings {
    std::size_t stored = 0;      // messages that were not received
    std::size_t blocks = 0;      // of memory that they lie in
    std::size_t discarding = 0;  // receives that wait for what was canceled
    std::uint32_t credit_in_use = 0;
    std::size_t heap = 0;
    bool operator==(const holdings&) const = default;

    static holdings of(two_domains::pair& link) {
        holdings now;
        for (peer* const end : {&link.a, &link.b}) {
            auto& other = end == &link.a ? link.b : link.a;
            auto& box = end->connection().mailbox();
            now.stored += box.matching().unexpected();
            now.blocks += box.store().live();
            now.discarding += box.discarding().posted();
            // Of what this end may send: what is neither available nor owed by the other one, nor withheld there.
            auto& mine = end->connection().credits();
            auto& theirs = other.connection().credits();
            now.credit_in_use += mine.peer_budget() - mine.available() - theirs.payable() - theirs.withheld();
        }
        return now;
    }
    /// The same with the bytes of the heap, where they can be counted.
    static holdings with_heap(two_domains::pair& link) {
        holdings now = of(link);
        const auto all = ::mallinfo2();
        if (counts_allocations) now.heap = all.uordblks + all.hblkhd;
        return now;
    }
};

enum class call_kind : unsigned { into_place, row, text, numbers, long_row };
constexpr std::size_t call_kinds = 5;
/// As many as take every protocol but the long row, which goes by a rendezvous and is seldom: it would take all the time.
constexpr unsigned usual_kinds = 4;

struct calls_seen {
    std::size_t good = 0;
    std::array<std::size_t, call_kinds> canceled{};
    std::size_t wrong = 0;
};

/// One call, which may be canceled after some turns.
task<> call_once(any_calls& client, call_kind kind, const std::vector<float>& long_row,
                 std::optional<unsigned> cancel_after, calls_seen& seen) {
    local_stop_source stop;
    const auto one = [&](auto op, auto right) -> task<> {
        auto pending = start(with_stop(std::move(op), stop.get_token()));
        if (cancel_after) {
            for (unsigned n = 0; n < *cancel_after; ++n) co_await yield();
            stop.request_stop();
        }
        const auto got = co_await as_result(pending);
        if (got) {
            ++(right(*got) ? seen.good : seen.wrong);
        } else {
            ++(got.error() == errc::canceled ? seen.canceled[static_cast<unsigned>(kind)] : seen.wrong);
        }
    };
    switch (kind) {
        case call_kind::into_place: {
            std::array<float, 3000> place;
            co_await one(client.call_into(std::span<float>(place), kv::fill, 2000U),
                         [](std::size_t length) { return length == 2000; });
            break;
        }
        case call_kind::row: {
            const std::vector<float> row(2000, 1.0F);
            co_await one(client.call(kv::sum, row), [](double sum) { return sum == 2000.0; });
            break;
        }
        case call_kind::text:
            co_await one(client.call(kv::get, "colour"),
                         [](const std::string& said) { return said == "red"; });
            break;
        case call_kind::numbers:
            co_await one(client.call(kv::add, 40U, 2U), [](std::uint64_t sum) { return sum == 42; });
            break;
        case call_kind::long_row:
            co_await one(client.call(kv::sum, long_row),
                         [&](double sum) { return sum == static_cast<double>(long_row.size()); });
    }
}

void cancel_half_of(const variant& over, std::size_t calls_in_all) {
    scheduler on;
    two_domains both(on, over);
    on.run([](two_domains& w, std::size_t count) -> task<> {
        two_domains::pair link = co_await w.connected();
        {
            shop there;
            const auto server = link.b.make_calls();
            server->serve(there.store);
            const auto calling = link.a.make_calls();
            any_calls& client = *calling;
            std::mt19937 random(seed());
            const std::vector<float> long_row((1 << 20) / sizeof(float), 1.0F);
            calls_seen seen;
            std::optional<holdings> before;
            const auto at_rest = [&]() -> task<> {
                const std::uint64_t last = co_await client.call(kv::add, 1U, 2U);
                CHECK(last == 3);
                co_await until([&] {
                    const auto now = holdings::of(link);
                    return there.store.running() == 0 && now.discarding == 0 && now.stored == 0;
                });
            };
            for (std::size_t made = 0; made < count; made += 100) {
                task_group some;
                for (unsigned n = 0; n < 100; ++n) {
                    std::optional<unsigned> after;
                    if (n % 2 == 0) after = static_cast<unsigned>(random() % 12);
                    auto kind = static_cast<call_kind>(random() % usual_kinds);
                    if (made % 1000 == 0 && n < 2) kind = call_kind::long_row;
                    some.spawn([&client, &seen, &long_row, kind, after]() -> task<> {
                        return call_once(client, kind, long_row, after, seen);
                    });
                }
                co_await some.join();
                if (!before && made >= count / 4) {
                    co_await at_rest();
                    before = holdings::with_heap(link);
                }
            }
            co_await at_rest();
            const auto after = holdings::with_heap(link);
            REQUIRE(before);
            CHECK(seen.wrong == 0);
            std::size_t canceled = 0;
            for (std::size_t kind = 0; kind < call_kinds; ++kind) {
                INFO("kind " << kind);
                CHECK(seen.canceled[kind] > 0);
                canceled += seen.canceled[kind];
            }
            CHECK(seen.good + canceled == count);
            CHECK(seen.good >= count / 2);
            CHECK(canceled >= count / 4);
            CHECK(after.stored == 0);
            CHECK(after.discarding == 0);
            CHECK(after.credit_in_use == 0);
            CHECK(before->credit_in_use == 0);
            CHECK(after.blocks == before->blocks);
            // The heap's own bookkeeping, and lists and pools that grow to what was the most at a time. Sixteen bytes for each call that was
            // canceled meanwhile would be more than twice as much.
            CHECK(after.heap <= before->heap + (256 << 10));
            CHECK(there.store.bytes() == 0);
        }
        link.a.abort();
    }(both, calls_in_all));
}

}  // namespace

CONFORMANCE_CASE("many calls, half of them canceled, leave memory and credit as before", every_real_kind) {
    cancel_half_of(over, under_sanitizer ? 20'000 : 100'000);
}

TAGGED_CONFORMANCE_CASE("a million calls, half of them canceled, leave memory and credit as before",
                        "[nightly]", every_real_kind) {
    cancel_half_of(over, 1'000'000);
}

namespace {
struct asked_back {
    static constexpr method<"back.twice", std::uint64_t(std::uint64_t)> twice{};
};
struct asked_forth {
    static constexpr method<"forth.ask", std::uint64_t(std::uint64_t, std::array<std::byte, 100>)> ask{};
};
}  // namespace

CALLS_CASE("answers come though requests have used up all credit") {
    run_in(over, [](two_domains& w) -> task<> {
        const mailbox_options small{.unexpected_bytes = 256 << 10};
        two_domains::pair link = co_await w.connected(small, small);
        {
            service at_a;
            at_a.on(asked_back::twice,
                    [](call_context&, std::uint64_t n) -> task<std::uint64_t> { co_return 2 * n; });
            const auto a = link.a.make_calls();
            a->serve(at_a);
            auto b = link.b.make_calls();
            // One handler at a time, which calls back before it ends.
            service at_b({.running = 1});
            std::size_t short_of_credit = 0;
            std::size_t called_back = 0;
            bool all_asked = false;
            at_b.on(asked_forth::ask,
                    [&](call_context&, std::uint64_t n,
                        const std::array<std::byte, 100>&) -> task<std::uint64_t> {
                        while (!all_asked) co_await yield();
                        auto& credits = link.a.connection().credits();
                        if (!credits.covers(sizeof(detail::request_head) + 108)) ++short_of_credit;
                        const std::uint64_t twice = co_await b->call(asked_back::twice, n);
                        ++called_back;
                        co_return twice + 1;
                    });
            b->serve(at_b);
            constexpr std::uint64_t count = 4000;
            std::uint64_t right = 0;
            task_group asking;
            for (std::uint64_t n = 0; n < count; ++n) {
                asking.spawn([&, n]() -> task<> {
                    const std::uint64_t got =
                        co_await a->call(asked_forth::ask, n, std::array<std::byte, 100>{});
                    if (got == 2 * n + 1) ++right;
                });
            }
            // The first ends the wait of the others, which wait to hear that its service is there.
            while (link.a.connection().credits().covers(sizeof(detail::request_head) + 108)) co_await yield();
            all_asked = true;
            co_await timeout(asking.join(), 60s);
            CHECK(right == count);
            CHECK(called_back == count);
            CHECK(short_of_credit > 100);
            b.reset();
        }
        link.a.abort();
    });
}

CALLS_CASE("calls that are canceled leave nothing behind, however many more than a mailbox keeps of canceled "
           "receives") {
    run_in(over, [](two_domains& w) -> task<> {
        const mailbox_options few{.canceled_receives = 16};
        two_domains::pair link = co_await w.connected(few, few);
        {
            service at_b({.running = 8});
            at_b.on(
                asked_forth::ask,
                [](call_context&, std::uint64_t n, const std::array<std::byte, 100>&) -> task<std::uint64_t> {
                    co_await sleep_for(std::chrono::hours(1));
                    co_return n;
                });
            service others_of_b;
            others_of_b.on(asked_back::twice,
                           [](call_context&, std::uint64_t n) -> task<std::uint64_t> { co_return 2 * n; });
            const auto a = link.a.make_calls();
            const auto b = link.b.make_calls();
            b->serve(at_b);
            b->serve(others_of_b);
            for (int round = 0; round < 3; ++round) {
                std::size_t canceled = 0;
                task_group asking;
                for (std::uint64_t n = 0; n < 1000; ++n) {
                    asking.spawn([&, n]() -> task<> {
                        const auto got =
                            co_await as_result(a->call(asked_forth::ask, n, std::array<std::byte, 100>{}));
                        if (got.error() == errc::canceled) ++canceled;
                    });
                }
                while (at_b.running() < 8) co_await yield();
                for (int n = 0; n < 1000; ++n) co_await yield();  // most requests are there
                asking.request_stop();
                const auto joined = co_await as_result(asking.join());
                CHECK(joined.has_value());
                CHECK(canceled == 1000);
                const std::uint64_t after =
                    co_await timeout(a->call(asked_back::twice, 21U), std::chrono::seconds(20));
                CHECK(after == 42);
            }
            while (at_b.running() != 0) co_await yield();
            // Its answers are dropped as they come.
            for (int n = 0; n < 10'000 && holdings::of(link).stored != 0; ++n) co_await yield();
            CHECK(holdings::of(link).stored == 0);
        }
        link.a.abort();
    });
}

CALLS_CASE("streams that are given up by the ten thousand while the peer serves nothing end when it does") {
    run_in(over, [](two_domains& w) -> task<> {
        two_domains::pair link = co_await w.connected();
        {
            shop there;
            const auto a = link.a.make_calls();
            co_await yield();
            const auto receives = [&] { return link.a.connection().mailbox().matching().posted(); };
            const std::size_t receives_before = receives();
            // More than twice as many as calls of which the peer knows what became.
            constexpr std::size_t count = 10'000;
            std::size_t given_up = 0;
            for (std::size_t made = 0; made < count; made += 1000) {
                task_group opening;
                for (unsigned n = 0; n < 1000; ++n) {
                    opening.spawn([&]() -> task<> {
                        try {
                            auto rows = co_await a->open(kv::scan, 100U);
                            static_cast<void>(co_await rows.next());
                        } catch (const error& ended) {
                            if (ended.code() == errc::canceled) ++given_up;
                        }
                    });
                }
                for (int n = 0; n < 20; ++n) co_await yield();
                opening.request_stop();
                co_await opening.join();
            }
            CHECK(given_up == count);
            const auto b = link.b.make_calls();
            b->serve(there.store);
            const std::uint64_t sum = co_await timeout(a->call(kv::add, 1U, 2U), std::chrono::seconds(20));
            CHECK(sum == 3);
            const auto ended = co_await as_result(timeout(
                [&]() -> task<> {
                    while (receives() != receives_before) co_await yield();
                }(),
                std::chrono::seconds(20)));
            CHECK(ended.has_value());
            const auto drained = co_await as_result(timeout(a->drain(), std::chrono::seconds(20)));
            CHECK(drained.has_value());
            CHECK(holdings::of(link).discarding == 0);
        }
        link.a.abort();
    });
}

namespace {
struct up_rows {
    static constexpr method<"rows.up", std::uint64_t(stream<row>)> up{};
};
/// A call, or the opening of a stream, of one of these kinds.
constexpr unsigned asked_kinds = 6;
task<> ask(any_calls& client, unsigned kind) {
    std::array<float, 4> place{};
    switch (kind) {
        case 0: static_cast<void>(co_await client.call(kv::add, 1U, 2U)); break;
        case 1: static_cast<void>(co_await client.call(kv::get, "colour")); break;
        case 2: static_cast<void>(co_await client.call_into(std::span<float>(place), kv::fill, 4U)); break;
        case 3: static_cast<void>(co_await client.open(kv::scan, 1U)); break;
        case 4: static_cast<void>(co_await client.open(up_rows::up)); break;
        default: static_cast<void>(co_await client.open(kv::scan, 1U)); break;
    }
}
}  // namespace

CALLS_CASE(
    "calls that are canceled before their requests are begun to be sent leave nothing at their caller") {
    run_in(over, [](two_domains& w) -> task<> {
        const mailbox_options small{.unexpected_bytes = 64 << 10};
        two_domains::pair link = co_await w.connected(small, small);
        {
            shop there;
            const auto a = link.a.make_calls();
            for (int n = 0; n < 100; ++n) co_await yield();
            auto& matching = link.a.connection().mailbox().matching();
            const std::size_t receives_before = matching.posted();
            // The peer receives nothing: some requests go, and all further ones wait for room.
            constexpr std::size_t count = 20'000;
            std::size_t canceled = 0;
            for (std::size_t made = 0; made < count; made += 1000) {
                task_group asking;
                for (unsigned n = 0; n < 1000; ++n) {
                    asking.spawn([&a, &canceled, n]() -> task<> {
                        const auto got = co_await as_result(ask(*a, n % asked_kinds));
                        if (got.error() == errc::canceled) ++canceled;
                    });
                }
                for (int n = 0; n < 20; ++n) co_await yield();
                asking.request_stop();
                co_await asking.join();
            }
            const auto stored = [&] { return link.b.connection().mailbox().matching().unexpected(); };
            for (int n = 0; n < 1000; ++n) co_await yield();
            CHECK(canceled + stored() >= count);
            CHECK(stored() < count / 4);
            CHECK(matching.posted() <= receives_before + stored());
            const auto b = link.b.make_calls();
            b->serve(there.store);
            const std::uint64_t sum = co_await timeout(a->call(kv::add, 1U, 2U), std::chrono::seconds(20));
            CHECK(sum == 3);
            const auto ended = co_await as_result(timeout(
                [&]() -> task<> {
                    while (matching.posted() != receives_before) co_await yield();
                }(),
                std::chrono::seconds(20)));
            CHECK(ended.has_value());
        }
        link.a.abort();
    });
}

}  // namespace test_service_calls_canceled
