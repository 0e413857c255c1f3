#include <rdmacoro/service/calls.hpp>

#include "support/calls_pair.hpp"
#include "support/counting_new.hpp"

#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace test_service_calls {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct row_pair {
    std::vector<double> a;
    std::vector<double> b;
};
struct plane_point {
    double x, y;
};

struct back {
    static constexpr method<"back.twice", int(int)> twice{};
};

struct other {
    static constexpr method<"kv.add", std::uint32_t(std::uint32_t)> add{};
    static constexpr method<"kv.missing", void()> missing{};
    static constexpr method<"nothing.here", void()> nothing{};
    static constexpr method<"nothing.items", stream<int>()> items{};
    static constexpr method<"nothing.note", one_way(int)> note{};
};

struct once {
    static constexpr method<"once.wait", int()> wait{};
    static constexpr method<"once.rows", stream<int>()> rows{};
    static constexpr method<"once.sum", int(stream<int>)> sum{};
    static constexpr method<"once.many", std::vector<float>(std::uint32_t)> many{};
    static constexpr method<"once.long_rows", stream<std::vector<float>>()> long_rows{};
};

struct row_methods {
    static constexpr method<"rows.sum", double(std::span<const double>)> sum{};
    static constexpr method<"rows.sum_later", double(std::uint8_t, std::span<const double>)> sum_later{};
    static constexpr method<"rows.dot", double(row_pair)> dot{};
    static constexpr method<"rows.tell", one_way(std::span<const double>)> tell{};
    static constexpr method<"rows.at", double(plane_point)> at{};
};

}  // namespace

CALLS_CASE("a call ends with what its handler returned") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link) -> task<> {
        {
            const auto got = co_await client.call(kv::get, "colour");
            CHECK(got == "red");
        }
        {
            const auto got = co_await client.call(kv::add, 40U, std::uint64_t{2});
            CHECK(got == 42);
        }
        const std::vector<float> many = co_await client.call(kv::fill, 100000U);
        CHECK(many.size() == 100000);
        CHECK(many.back() == 99999.0F);
        {
            const auto got = co_await client.call(kv::sum, many);
            CHECK(got == 4999950000.0);
        }
        std::vector<float> place(200000);
        {
            const auto got = co_await client.call_into(std::span(place), kv::fill, 150000U);
            CHECK(got == 150000);
        }
        CHECK(place[149999] == 149999.0F);
    });
}

CALLS_CASE("what a handler throws reaches the caller with its code and text") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link) -> task<> {
        const auto ended = [](auto op) -> task<std::pair<std::error_code, std::string>> {
            try {
                static_cast<void>(co_await std::move(op));
            } catch (const error& failed) {
                co_return std::pair(failed.code(), std::string(failed.what()));
            }
            co_return {};
        };
        const auto lost = co_await ended(client.call(kv::get, "shape"));
        CHECK(lost.first == call_errc::handler_failed);
        CHECK_THAT(lost.second, Catch::Contains("kv.get") && Catch::Contains("there is no shape"));
        // A code that means no error is none.
        const auto without = co_await ended(client.call(kv::fail, 14));
        CHECK(without.first == call_errc::handler_failed);
        CHECK_THAT(without.second, Catch::Contains("no code"));
        const auto of_no_error = co_await ended(client.call(kv::fail, 15));
        CHECK(of_no_error.first == call_errc::handler_failed);
        CHECK_THAT(of_no_error.second, Catch::Contains("no such code"));
        for (int how = 0; how < 3; ++how) {
            const auto got = co_await as_result(client.call(kv::fail, how));
            if (how == 0) CHECK(got.error() == errc::access_denied);
            if (how == 1) CHECK(got.error() == std::errc::no_space_on_device);
            if (how == 2) CHECK(got.error() == call_errc::handler_failed);
        }
        {
            const auto got = co_await client.call(kv::add, 1U, 2U);
            CHECK(got == 3);
        }
    });
}

CALLS_CASE("cancelling a call stops its handler and harms no other") {
    run_pair(over, [](any_calls& client, any_calls&, shop& there, calls_link link) -> task<> {
        auto other = start(client.call(kv::wait));
        while (there.waiting != 1) co_await yield();
        const auto ended = co_await as_result(timeout(client.call(kv::wait), 5ms));
        CHECK(ended.error() == errc::timed_out);
        while (there.stopped != 1) co_await yield();
        CHECK_FALSE(other.done());
        {
            const auto got = co_await client.call(kv::add, 1U, 2U);
            CHECK(got == 3);
        }
        CHECK(there.store.running() == 1);
        CHECK(there.store.bytes() != 0);
        local_stop_source stop;
        stop.request_stop();
        const auto canceled = co_await as_result(with_stop(other, stop.get_token()));
        CHECK(canceled.error() == errc::canceled);
        while (there.store.running() != 0) co_await yield();
        CHECK(there.stopped == 2);
        CHECK(there.store.bytes() == 0);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
    });
}

CALLS_CASE("both ends call each other over one connection") {
    run_pair(over, [](any_calls& client, any_calls& server, shop& there, calls_link) -> task<> {
        service mine;
        mine.on(back::twice, [](call_context&, int n) -> task<int> { co_return 2 * n; });
        client.serve(mine);
        task_group both;
        both.spawn([&]() -> task<> {
            for (unsigned i = 0; i < 300; ++i) {
                const auto got = co_await client.call(kv::add, i, 1U);
                CHECK(got == i + 1);
            }
        });
        both.spawn([&]() -> task<> {
            for (int i = 0; i < 300; ++i) {
                const auto got = co_await server.call(back::twice, i);
                CHECK(got == 2 * i);
            }
        });
        co_await both.join();
        while (there.store.running() != 0) co_await yield();
    });
}

CALLS_CASE("one-way calls of a method that is not there end so, however little time the first of them had") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link) -> task<> {
        static_cast<void>(co_await as_result(timeout(client.cast(other::note, 1), 1us)));
        std::error_code refused;
        while (!refused) {
            co_await yield();
            refused = (co_await as_result(client.cast(other::note, 1))).error();
        }
        CHECK(refused == call_errc::unknown_method);
    });
}

CALLS_CASE("ends that disagree about a method are told which, and others work") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link) -> task<> {
        const auto mismatch = co_await as_result(client.call(other::add, 1U));
        CHECK(mismatch.error() == call_errc::signature_mismatch);
        const auto missing = co_await as_result(client.call(other::missing));
        CHECK(missing.error() == call_errc::unknown_method);
        const auto nothing = co_await as_result(client.call(other::nothing));
        CHECK(nothing.error() == call_errc::unknown_method);
        auto items = co_await client.open(other::items);
        const auto none = co_await as_result(items.next());
        CHECK(none.error() == call_errc::unknown_method);
        co_await client.cast(other::note, 1);
        std::error_code refused;
        while (!refused) {
            co_await yield();
            const auto sent = co_await as_result(client.cast(other::note, 1));
            refused = sent.error();
        }
        CHECK(refused == call_errc::unknown_method);
        try {
            static_cast<void>(co_await client.call(other::add, 1U));
            FAIL("a call with other types");
        } catch (const error& failed) {
            CHECK_THAT(failed.what(), Catch::Contains("kv.add"));
        }
        {
            const auto got = co_await client.call(kv::add, 1U, 2U);
            CHECK(got == 3);
        }
    });
}

CALLS_CASE("a one-way call arrives, and nothing comes back") {
    run_pair(over, [](any_calls& client, any_calls&, shop& there, calls_link) -> task<> {
        for (int i = 0; i < 3; ++i) co_await client.cast(kv::note, "note " + std::to_string(i));
        while (there.notes.size() != 3) co_await yield();
        CHECK(there.notes.back() == "note 2");
        std::string much(1 << 20, 'x');
        co_await client.cast(kv::note, much);
        while (there.notes.size() != 4) co_await yield();
        CHECK(there.notes.back() == much);
    });
}

CALLS_CASE("ten thousand calls, half of them canceled at some moment, leave nothing behind") {
    run_pair(over, [](any_calls& client, any_calls&, shop& there, calls_link link) -> task<> {
        std::size_t good = 0;
        std::size_t canceled = 0;
        unsigned seed = 7;
        for (int round = 0; round < 100; ++round) {
            task_group some;
            for (int i = 0; i < 100; ++i) {
                seed = seed * 1664525 + 1013904223;
                const unsigned turns = (seed >> 20) % 12;
                some.spawn([&, turns, i]() -> task<> {
                    local_stop_source stop;
                    auto one = start(
                        with_stop(client.call(kv::add, static_cast<unsigned>(i), 1U), stop.get_token()));
                    if (i % 2 == 0) {
                        for (unsigned n = 0; n < turns; ++n) co_await yield();
                        stop.request_stop();
                    }
                    const auto got = co_await as_result(one);
                    if (got) {
                        CHECK(*got == static_cast<unsigned>(i) + 1);
                        ++good;
                    } else {
                        CHECK(got.error() == errc::canceled);
                        ++canceled;
                    }
                });
            }
            co_await some.join();
        }
        CHECK(good + canceled == 10000);
        CHECK(good >= 5000);
        CHECK(canceled > 100);
        {
            const auto got = co_await client.call(kv::add, 1U, 2U);
            CHECK(got == 3);
        }
        while (there.store.running() != 0) co_await yield();
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
    });
}

CALLS_CASE("a drained end has answered what it began, and its peer's later calls end with the link") {
    run_pair(over, [](any_calls& client, any_calls& server, shop& there, calls_link link) -> task<> {
        service slow;
        event go;
        slow.on(once::wait, [&](call_context&) -> task<int> {
            co_await go.wait();
            co_return 9;
        });
        server.serve(slow);
        auto first = start(client.call(once::wait));
        while (slow.running() == 0) co_await yield();
        auto drained = start(server.drain());
        co_await yield();
        CHECK_FALSE(drained.done());
        auto late = start(client.call(kv::add, 1U, 2U));
        go.set();
        co_await drained;
        {
            const auto got = co_await first;
            CHECK(got == 9);
        }
        link.b.abort();
        const auto ended = co_await as_result(late);
        CHECK(ended.error() == errc::peer_lost);
        CHECK(there.store.running() == 0);
    });
}

CALLS_CASE("a drained end goes on with the streams that it writes, and opens others") {
    run_ends(over, [](calls_link link) -> task<> {
        service sums;
        sums.on(once::sum, [](call_context&, stream_reader<int>& in) -> task<int> {
            int sum = 0;
            while (auto one = co_await in.next()) sum += *one;
            co_return sum;
        });
        const auto server = link.b.make_calls();
        const auto client = link.a.make_calls();
        client->serve(sums);
        constexpr int many = 300;
        static_assert(many > 2 * detail::stream_window);  // the reader has to make room
        auto open = co_await server->open(once::sum);
        co_await open.write(1);
        co_await timeout(server->drain(), 20s);
        for (int n = 0; n < many; ++n) co_await open.write(1);
        const int sum = co_await timeout(open.finish(), 20s);
        CHECK(sum == many + 1);
        auto later = co_await server->open(once::sum);
        for (int n = 0; n < many; ++n) co_await later.write(2);
        const int later_sum = co_await timeout(later.finish(), 20s);
        CHECK(later_sum == 2 * many);
    });
}

CALLS_CASE(
    "an answer or an item that is longer than the link's buffers names the option that makes them longer") {
    run_in(over, [](two_domains& w) -> task<> {
        mailbox_options small;
        small.lent_bytes = 4096;
        auto listening = co_await w.there().listen(w.address(), small);
        auto accepting = start(listening.accept());
        peer a = co_await w.here().connect(listening.address(), small);
        peer b = co_await accepting;
        {
            service answers;
            answers.on(once::many, [](call_context&, std::uint32_t n) -> task<std::vector<float>> {
                co_return std::vector<float>(n);
            });
            answers.on(once::long_rows, [](call_context&, stream_writer<std::vector<float>>& out) -> task<> {
                co_await out.write(std::vector<float>(1'000'000));
            });
            const auto server = b.make_calls();
            server->serve(answers);
            const auto client = a.make_calls();
            const std::vector<float> some = co_await client->call(once::many, 1000U);
            CHECK(some.size() == 1000);
            std::string text;
            try {
                static_cast<void>(co_await client->call(once::many, 1'000'000U));
            } catch (const error& ended) {
                CHECK(ended.code() == errc::truncated);
                text = ended.what();
            }
            CHECK_THAT(text, Catch::Contains("its answer is longer than mailbox_options::lent_bytes"));
            auto rows = co_await client->open(once::long_rows);
            text.clear();
            try {
                static_cast<void>(co_await rows.next());
            } catch (const error& ended) {
                CHECK(ended.code() == errc::truncated);
                text = ended.what();
            }
            CHECK_THAT(text, Catch::Contains("an item is longer than mailbox_options::lent_bytes"));
        }
        a.abort();
    });
}

CALLS_CASE("an end is drained while the peer's handlers go on that it has given up") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service slow;
        event go;
        slow.on(once::wait, [&](call_context&) -> task<int> {
            co_await without_stop(go.wait());
            co_return 9;
        });
        slow.on(once::rows,
                [&](call_context&, stream_writer<int>&) -> task<> { co_await without_stop(go.wait()); });
        slow.on(once::sum, [&](call_context&, stream_reader<int>&) -> task<int> {
            co_await without_stop(go.wait());
            co_return 9;
        });
        server.serve(slow);
        {
            auto rows = co_await client.open(once::rows);
            auto numbers = co_await client.open(once::sum);
            local_stop_source stop;
            auto call = start(as_result(with_stop(client.call(once::wait), stop.get_token())));
            while (slow.running() != 3)
                co_await yield();  // all have come: what is given up before is not asked
            stop.request_stop();
            const auto answer = co_await call;
            CHECK(answer.error() == errc::canceled);
            const auto row = co_await as_result(timeout(rows.next(), 1ms));
            CHECK_FALSE(row.has_value());
        }
        co_await timeout(client.drain(), 20s);
        CHECK(slow.running() == 3);
        go.set();
        while (slow.running() != 0) co_await yield();
        co_await timeout(server.drain(), 20s);
        link.b.abort();
    });
}

CONFORMANCE_CASE(
    "calls of values of fixed length allocate nothing, one by one, with a deadline, and 64 at a time",
    every_real_transport) {
    if constexpr (counts_allocations) {
        run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link) -> task<> {
            using limited = decltype(timeout(client.call(kv::add, 1U, 1U), 20s));
            window<limited> many(64);
            std::uint64_t sum = 0;
            std::size_t made = 1;
            // Warm when there is room for as much as was under way at a time.
            unsigned rounds = 0;
            for (; rounds < 10 && made != 0; ++rounds) {
                const std::size_t before = allocations();
                for (unsigned i = 0; i < 500; ++i) sum += co_await client.call(kv::add, i, 1U);
                for (unsigned i = 0; i < 500; ++i) sum += co_await client.call(kv::add_now, i, 1U);
                for (unsigned i = 0; i < 500; ++i) sum += co_await timeout(client.call(kv::add, i, 1U), 20s);
                for (unsigned i = 0; i < 500; ++i) {
                    if (many.full()) sum += co_await many.next();
                    many.start(timeout(client.call(kv::add, unsigned{i}, 1U), 20s));
                }
                while (!many.empty()) sum += co_await many.next();
                made = allocations() - before;
            }
            CHECK(made == 0);
            CHECK(sum == rounds * 4 * (499 * 500 / 2 + 500));
        });
    } else {
        SKIP_TEST("allocations are not counted here");
    }
}

CALLS_CASE("rows of numbers are copied no more often by a call than by a message") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link link) -> task<> {
        std::vector<float> row(1 << 18, 1.0F);
        {
            const auto got = co_await client.call(kv::sum, std::span<const float>(row));
            CHECK(got == 262144.0);
        }
        const auto copied = [&] { return link.a.counts().bytes_copied + link.b.counts().bytes_copied; };
        std::vector<float> place(1 << 18);
        const auto before = copied();
        const std::size_t length = co_await client.call_into(std::span(place), kv::fill, 1U << 18);
        CHECK(length == place.size());
        const auto by_call = copied() - before;
        CHECK(place.back() == 262143.0F);
        auto receiving = start(link.a.recv(std::as_writable_bytes(std::span(row)), 7));
        co_await link.b.send(std::as_bytes(std::span(place)), 7);
        co_await receiving;
        const auto by_message = copied() - before - by_call;
        CHECK(by_call <= by_message + 200);
    });
}

CALLS_CASE(
    "rows are not copied by their encoding: gathered at the sender, read as views, received in place") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service sums;
        const void* seen = nullptr;
        const auto sum_of = [&seen](std::span<const double> all) {
            seen = all.data();
            CHECK(reinterpret_cast<std::uintptr_t>(all.data()) % alignof(double) == 0);
            return std::accumulate(all.begin(), all.end(), 0.0);
        };
        sums.on(row_methods::sum, [&](call_context&, std::span<const double> all) { return sum_of(all); });
        sums.on(row_methods::sum_later,
                [&](call_context&, std::uint8_t turns, std::span<const double> all) -> task<double> {
                    for (; turns != 0; --turns) co_await yield();
                    co_return sum_of(all);  // the request is still there
                });
        sums.on(row_methods::dot, [](call_context&, const row_pair& of) {
            return std::inner_product(of.a.begin(), of.a.end(), of.b.begin(), 0.0);
        });
        server.serve(sums);
        const std::vector<double> row(1 << 17, 0.5);
        const auto copied = [&] { return client.bytes_copied() + server.bytes_copied(); };
        {
            const double first = co_await client.call(row_methods::sum, std::span<const double>(row));
            CHECK(first == 65536);
        }
        auto before = copied();
        {
            const double sum = co_await client.call(row_methods::sum, row);
            CHECK(sum == 65536);
            const double later = co_await client.call(row_methods::sum_later, std::uint8_t{5}, row);
            CHECK(later == 65536);
        }
        CHECK(seen != row.data());
        CHECK(copied() - before < 200);
        // One-way as well: the handler reads it where it lies.
        before = copied();
        double heard = 0;
        sums.on(row_methods::tell, [&](call_context&, std::span<const double> all) { heard = sum_of(all); });
        co_await client.cast(row_methods::tell, row);
        while (heard == 0) co_await yield();
        CHECK(heard == 65536);
        CHECK(copied() - before < 200);
        std::vector<float> place(1 << 18);
        before = copied();
        const std::size_t length = co_await client.call_into(std::span(place), kv::fill, 1U << 18);
        CHECK(length == place.size());
        CHECK(copied() - before < 200);
        // Where the handler takes rows of its own, they are copied, once.
        before = copied();
        {
            const row_pair both{row, row};
            const double dot = co_await client.call(row_methods::dot, both);
            CHECK(dot == 32768);
        }
        CHECK(copied() - before >= 2 * row.size() * sizeof(double));
        CHECK(copied() - before < 2 * row.size() * sizeof(double) + 200);
        // Short ones may lie in the network's memory as they must not.
        for (std::size_t n = 0; n < 100; ++n) {
            const double sum = co_await client.call(row_methods::sum, std::span(row).first(n));
            CHECK(sum == 0.5 * static_cast<double>(n));
            const std::string unaligned(n % 13, 'x');
            co_await client.cast(kv::note, unaligned);
        }
    });
}

CALLS_CASE("an argument of another type with the same encoding is what it says") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service points;
        points.on(row_methods::at, [](call_context&, plane_point of) { return of.x - of.y; });
        server.serve(points);
        const double by_point = co_await client.call(row_methods::at, plane_point{5, 3});
        CHECK(by_point == 2);
        const double by_tuple = co_await client.call(row_methods::at, std::tuple(5.0, 3.0));
        CHECK(by_tuple == 2);
    });
}

CALLS_CASE("a call of fixed length that has to wait before it is sent is a call as any other") {
    run_pair(over, [](any_calls& client, any_calls& server, shop& there, calls_link link) -> task<> {
        // The first calls of a service wait for each other.
        service mine;
        std::size_t seen = 0;
        mine.on(back::twice, [&seen](call_context&, int n) {
            ++seen;
            if (n == 13) throw std::out_of_range("thirteen");
            return 2 * n;
        });
        client.serve(mine);
        task_group callers;
        int sum = 0;
        std::size_t failed = 0;
        for (int i = 0; i < 20; ++i) {
            callers.spawn([&, i]() -> task<> {
                const auto got = co_await as_result(server.call(back::twice, i));
                if (got) {
                    sum += *got;
                } else {
                    CHECK(got.error() == call_errc::handler_failed);
                    ++failed;
                }
            });
        }
        co_await callers.join();
        CHECK(sum == 19 * 20 - 26);
        CHECK(failed == 1);
        CHECK(seen == 20);
        // A send that waits: the peer takes nothing while its credit is used up.
        const std::vector<std::byte> filler(900);
        task_group fill;
        local_stop_source enough;
        for (int i = 0; i < 8000; ++i) {
            fill.spawn([&]() -> task<> {
                static_cast<void>(co_await as_result(with_stop(link.a.send(filler, 5), enough.get_token())));
            });
        }
        co_await yield();
        CHECK(link.a.counts().credit_waits + link.a.counts().room_waits != 0);
        auto waiting = start(client.call(kv::add_now, 40U, 2U));
        auto canceled = start(with_stop(client.call(kv::add_now, 1U, 2U), enough.get_token()));
        CHECK_FALSE(waiting.done());
        CHECK(there.store.running() == 0);
        enough.request_stop();
        const auto ended = co_await as_result(canceled);
        CHECK((ended || ended.error() == errc::canceled));
        while (fill.size() != 0) {
            link.b.discard(5);
            co_await yield();
        }
        const std::uint64_t got = co_await waiting;
        CHECK(got == 42);
        co_await sleep_for(5ms);
        link.b.discard(5);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
    });
}

CALLS_CASE("a call whose token is stopped before it begins sends nothing") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link link) -> task<> {
        {
            const std::uint64_t got = co_await client.call(kv::add_now, 1U, 2U);
            CHECK(got == 3);
        }
        local_stop_source stop;
        stop.request_stop();
        const auto sent = link.a.counts().messages_sent;
        const auto ended = co_await as_result(with_stop(client.call(kv::add_now, 1U, 2U), stop.get_token()));
        CHECK(ended.error() == errc::canceled);
        CHECK(link.a.counts().messages_sent == sent);
    });
}

namespace {
struct bulk {
    static constexpr method<"bulk.sum", double(std::vector<float>)> sum{};
    static constexpr method<"bulk.note", one_way(std::vector<float>)> note{};
    static constexpr method<"bulk.back", std::vector<float>(std::uint64_t)> back{};
};
/// Messages that this end has sent by a policy for long ones.
std::uint64_t long_sent(const metrics& by) {
    return by.segmented_sent + by.get_sent + by.put_sent + by.cooperative_sent + by.staged_sent +
           by.speculative_sent;
}
}  // namespace

CALLS_CASE(
    "long requests, one-way ones too, and long answers travel by the list's policies for long messages") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        std::size_t noted = 0;
        service rows;
        rows.on(bulk::sum, [](call_context&, const std::vector<float>& row) {
            return std::accumulate(row.begin(), row.end(), 0.0);
        });
        rows.on(bulk::note, [&](call_context&, const std::vector<float>& row) { noted += row.size(); });
        rows.on(bulk::back, [](call_context&, std::uint64_t n) { return std::vector<float>(n, 1.0F); });
        server.serve(rows);
        const std::vector<float> row(1 << 20, 1.0F);
        const double sum = co_await client.call(bulk::sum, row);
        CHECK(sum == 1 << 20);
        CHECK(long_sent(link.a.counts()) == 1);
        CHECK(long_sent(link.b.counts()) == 0);
        co_await client.cast(bulk::note, row);
        while (noted == 0) co_await yield();
        CHECK(noted == row.size());
        CHECK(long_sent(link.a.counts()) == 2);
        const auto got = co_await client.call(bulk::back, row.size());
        CHECK(got == row);
        while (rows.running() != 0) co_await yield();  // a send is counted when it has ended
        CHECK(long_sent(link.a.counts()) == 2);
        CHECK(long_sent(link.b.counts()) == 1);
    });
}

CALLS_CASE("what a hostile peer writes ends its calls, and never the process or other calls") {
    run_pair(over, [](any_calls& client, any_calls&, shop& there, calls_link link) -> task<> {
        auto& raw = link.a;
        {
            const auto got = co_await client.call(kv::add, 1U, 2U);
            CHECK(got == 3);
        }
        unsigned seed = 11;
        const auto number = [&seed] { return seed = seed * 1664525 + 1013904223; };
        std::vector<std::byte> bytes(300);
        constexpr std::uint64_t first_number = 1 << 20;
        constexpr std::uint64_t numbers = 0x1000;
        // Nobody waits for the answers to these requests.
        std::size_t malformed = 0;
        const auto drain = [&]() -> task<> {
            const tag_match answers{
                detail::call_tag(detail::call_kind::answer, first_number),
                detail::calls_bit | detail::kind_bits |
                    (detail::call_number_mask & ~(numbers - 1) & ~detail::caller_writes_bit)};
            while (raw.connection().mailbox().matching().find(0, answers) != nullptr) {
                const auto got = co_await raw.recv_lent(answers);
                detail::answer_head head{};
                REQUIRE(got.bytes().size() >= sizeof head);
                std::memcpy(&head, got.bytes().data(), sizeof head);
                if (head.outcome == static_cast<std::uint32_t>(detail::outcome_kind::call_error) &&
                    head.code == static_cast<int>(call_errc::malformed_request))
                    ++malformed;
            }
        };
        for (int n = 0; n < 3000; ++n) {
            for (std::byte& one : bytes) one = static_cast<std::byte>(number() >> 24);
            // Any kind but answers, and lengths from none to all; every other one begins as a request for a method that exists.
            const unsigned kind = std::array{0U, 1U, 2U, 3U, 4U}[(number() >> 16) % 5];
            const detail::request_head head{kv::get.number, kv::get.signature,
                                            (number() >> 28) != 0 ? 0U : 1U};
            if (n % 2 == 0) std::memcpy(bytes.data(), &head, sizeof head);
            tag_type tag = detail::calls_bit | (tag_type{kind} << 60) | first_number |
                           ((number() >> 20) & (numbers - 1));
            if (n % 5 == 0) tag |= detail::caller_writes_bit;
            if (n % 3 != 0) tag |= tag_type{kv::get.service} << 44;
            if (n % 4 == 0) tag |= detail::first_call_bit;
            if (kind < 3 && n % 3 == 0)
                tag |= detail::first_call_bit;  // to no service: it would wait for one
            if (kind == 3) tag |= detail::first_call_bit;
            co_await raw.send(std::span<const std::byte>(bytes).first((number() >> 16) % bytes.size()), tag);
            if (n % 100 == 0) {
                const auto got = co_await client.call(kv::add, 1U, 2U);
                CHECK(got == 3);
                co_await drain();
            }
        }
        {
            const auto got = co_await client.call(kv::get, "colour");
            CHECK(got == "red");
        }
        while (there.store.running() != 0) co_await yield();
        co_await drain();
        CHECK(malformed > 100);
    });
}

}  // namespace test_service_calls
