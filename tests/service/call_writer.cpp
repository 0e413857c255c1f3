#include <rdmacoro/service/call_writer.hpp>

#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/calls_pair.hpp"
#include "support/child_process.hpp"
#include "support/virtual_nodes.hpp"

#include <chrono>
#include <vector>

namespace test_service_call_writer {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

struct up {
    static constexpr method<"up.sum", std::uint64_t(std::uint32_t, stream<row>)> sum{};
    static constexpr method<"up.lengths", std::vector<std::uint32_t>(stream<std::string>)> lengths{};
    static constexpr method<"up.some", void(std::uint32_t, stream<row>)> some{};
    static constexpr method<"up.fail", std::string(stream<row>)> fail{};
    static constexpr method<"up.hold", void(stream<row>)> hold{};
    static constexpr method<"up.twice", stream<row>(stream<row>)> twice{};
    static constexpr method<"up.big", std::uint64_t(std::vector<float>, stream<row>)> big{};
    static constexpr method<"up.both", stream<row>(std::vector<float>, stream<row>)> both{};
    static constexpr method<"up.deaf", void(stream<std::vector<std::uint64_t>>)> deaf{};
    static constexpr method<"up.deny", void(stream<row>)> deny{};
    static constexpr method<"up.deny_both", stream<row>(stream<row>)> deny_both{};
    static constexpr method<"up.missing", void(stream<row>)> missing{};
};
struct up_otherwise {
    static constexpr method<"up.sum", std::uint64_t(std::uint32_t, stream<std::string>)> sum{};
};

/// A service for these, and what it saw.
struct depot {
    service store;
    event open;              // `hold` reads when it is set
    std::size_t begun = 0;   // of `hold` and `twice`
    std::size_t taken = 0;   // by them
    std::size_t deaf = 0;    // of `deaf`, that has begun
    std::error_code failed;  // the last of their reads

    /// To the stream's end, though the call is canceled.
    task<> read_in_any_case(stream_reader<row>& in) {
        ++begun;
        try {
            while (co_await without_stop(in.next())) ++taken;
        } catch (const error& ended) {
            failed = ended.code();
        }
    }
    depot() {
        store.on(up::sum,
                 [](call_context&, std::uint32_t from, stream_reader<row>& in) -> task<std::uint64_t> {
                     std::uint64_t all = from;
                     while (const auto one = co_await in.next()) all += one->key;
                     const auto after = co_await in.next();
                     if (after) throw std::logic_error("an item after the end");
                     co_return all;
                 });
        store.on(up::lengths,
                 [](call_context&, stream_reader<std::string>& in) -> task<std::vector<std::uint32_t>> {
                     std::vector<std::uint32_t> all;
                     while (const auto one = co_await in.next())
                         all.push_back(static_cast<std::uint32_t>(one->size()));
                     co_return all;
                 });
        store.on(up::some, [](call_context&, std::uint32_t n, stream_reader<row>& in) -> task<> {
            for (; n != 0; --n) static_cast<void>(co_await in.next());
        });
        store.on(up::big,
                 [](call_context&, std::vector<float> all, stream_reader<row>& in) -> task<std::uint64_t> {
                     std::uint64_t n = all.size();
                     while (co_await in.next()) ++n;
                     co_return n;
                 });
        store.on(
            up::both,
            [](call_context&, std::vector<float>, stream_reader<row>& in, stream_writer<row>& out) -> task<> {
                while (const auto one = co_await in.next()) co_await out.write(*one);
            });
        store.on(up::fail, [](call_context&, stream_reader<row>& in) -> task<std::string> {
            static_cast<void>(co_await in.next());
            throw std::runtime_error("the disk is full");
        });
        store.on(up::hold, [this](call_context&, stream_reader<row>& in) -> task<> {
            ++begun;
            try {
                co_await open.wait();
                while (co_await in.next()) ++taken;
            } catch (const error& ended) {
                failed = ended.code();
                throw;
            }
        });
        store.on(up::deaf, [this](call_context&, stream_reader<std::vector<std::uint64_t>>& in) -> task<> {
            ++deaf;
            co_await open.wait();
            while (co_await in.next()) {}
        });
        store.on(up::deny, [this](call_context&, stream_reader<row>& in) { return read_in_any_case(in); });
        store.on(up::deny_both, [this](call_context&, stream_reader<row>& in, stream_writer<row>&) {
            return read_in_any_case(in);
        });
        store.on(up::twice, [this](call_context&, stream_reader<row>& in, stream_writer<row>& out) -> task<> {
            ++begun;
            try {
                while (const auto one = co_await in.next()) {
                    ++taken;
                    co_await out.write(*one);
                    co_await out.write(one->key, one->value + 1);
                }
            } catch (const error& ended) {
                failed = ended.code();
                throw;
            }
        });
    }
};

void run_depot(const variant& over, task<> (*run)(any_calls& client, depot& there)) {
    run_pair(over, [run](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        depot there;
        server.serve(there.store);
        co_await run(client, there);
        // Whatever happened, nothing of it is left.
        while (there.store.running() != 0) co_await yield();
        const std::uint64_t sum = co_await client.call(kv::add, 1U, 2U);
        CHECK(sum == 3);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
        co_await timeout(server.drain(), 10s);
    });
}

bool was_left(const std::error_code& code) { return code == errc::canceled || code == call_errc::stopped; }

}  // namespace

CALLS_CASE("a handler reads what its caller writes, and the caller gets the result") {
    run_depot(over, [](any_calls& client, depot&) -> task<> {
        for (const std::uint32_t n : {0U, 1U, 31U, 32U, 33U, 1000U}) {
            auto rows = co_await client.open(up::sum, 5U);
            for (std::uint32_t i = 0; i < n; ++i) co_await rows.write(i, 0.5F);
            const std::uint64_t sum = co_await rows.finish();
            CHECK(sum == 5 + std::uint64_t{n} * (n == 0 ? 0 : n - 1) / 2);
            const row late{1, 1};
            const auto after = co_await as_result(rows.write(late));
            CHECK(after.error() == errc::closed);
        }
        auto texts = co_await client.open(up::lengths);
        std::vector<std::uint32_t> lengths;
        for (const std::uint32_t length : {0U, 10U, 2000U, 20000U, 300000U, 3U}) {
            const std::string text(length, 'x');
            co_await texts.write(text);
            lengths.push_back(length);
        }
        const auto got = co_await texts.finish();
        CHECK(got == lengths);
    });
}

CALLS_CASE("a handler that ends early ends its caller's writes, and its result comes") {
    run_depot(over, [](any_calls& client, depot&) -> task<> {
        for (const std::uint32_t n : {0U, 1U, 40U}) {
            auto rows = co_await client.open(up::some, n);
            std::error_code code;
            std::uint32_t written = 0;
            std::string text;
            while (!code) {
                try {
                    co_await rows.write(written, 1.0F);
                    ++written;
                } catch (const error& ended) {
                    code = ended.code();
                    text = ended.what();
                }
                co_await yield();
            }
            CHECK(code == call_errc::reader_left);
            CHECK_THAT(text, Catch::Contains("up.some") && Catch::Contains("ended before the stream"));
            CHECK(written >= n);
            const auto result = co_await as_result(rows.finish());
            CHECK(result);
        }
        auto rows = co_await client.open(up::fail);
        std::error_code code;
        while (!code) {
            const row one{};
            const auto wrote = co_await as_result(rows.write(one));
            code = wrote.error();
            co_await yield();
        }
        CHECK(code == call_errc::reader_left);
        std::string text;
        try {
            static_cast<void>(co_await rows.finish());
        } catch (const error& failed) {
            code = failed.code();
            text = failed.what();
        }
        CHECK(code == call_errc::handler_failed);
        CHECK_THAT(text, Catch::Contains("the disk is full"));
    });
}

CALLS_CASE("a method that the peer has not, or with other items, ends the writes and the call") {
    run_depot(over, [](any_calls& client, depot&) -> task<> {
        auto rows = co_await client.open(up::missing);
        std::error_code code;
        while (!code) {
            const row one{};
            const auto wrote = co_await as_result(rows.write(one));
            code = wrote.error();
            co_await yield();
        }
        CHECK(code == call_errc::reader_left);
        const auto result = co_await as_result(rows.finish());
        CHECK(result.error() == call_errc::unknown_method);
        auto texts = co_await client.open(up_otherwise::sum, 1U);
        const auto mistaken = co_await as_result(texts.finish());
        CHECK(mistaken.error() == call_errc::signature_mismatch);
    });
}

CALLS_CASE("a caller that leaves at any moment ends its handler's reads") {
    run_depot(over, [](any_calls& client, depot& there) -> task<> {
        there.open.set();
        for (std::uint32_t written = 0; written < 40; written += 3) {
            for (const bool begun : {true, false}) {
                const std::size_t before = there.begun;
                there.failed = {};
                {
                    auto rows = co_await client.open(up::hold);
                    for (std::uint32_t i = 0; i < written; ++i) co_await rows.write(i, 0.5F);
                    while (begun && there.begun == before) co_await yield();
                }
                while (there.store.running() != 0) co_await yield();
                if (begun) CHECK(was_left(there.failed));
            }
        }
        there.failed = {};
        {
            auto both = co_await client.open(up::twice);
            co_await both.write(1U, 0.5F);
            const auto one = co_await both.next();
            CHECK(one);
        }
        while (there.store.running() != 0) co_await yield();
        CHECK(was_left(there.failed));
    });
}

CALLS_CASE("a slow reader stops its own stream after a window of items, and nothing else") {
    run_depot(over, [](any_calls& client, depot& there) -> task<> {
        auto held = co_await client.open(up::hold);
        std::uint32_t written = 0;
        auto writing = start([](auto& rows, std::uint32_t& n) -> task<> {
            for (; n < 200; ++n) co_await rows.write(n, 0.5F);
        }(held, written));
        while (there.begun == 0 || written < detail::stream_window) co_await yield();
        for (int i = 0; i < 3; ++i) {
            auto rows = co_await client.open(up::sum, 0U);
            for (std::uint32_t n = 0; n < 500; ++n) co_await rows.write(1U, 0.5F);
            const std::uint64_t sum = co_await rows.finish();
            CHECK(sum == 500);
            const std::uint64_t called = co_await client.call(kv::add, 1U, 2U);
            CHECK(called == 3);
        }
        CHECK(written == detail::stream_window);
        CHECK(there.taken == 0);
        there.open.set();
        co_await writing;
        co_await held.finish();
        CHECK(there.taken == 200);
    });
}

CALLS_CASE("a write that is canceled ends the stream, and its handler") {
    run_depot(over, [](any_calls& client, depot& there) -> task<> {
        auto rows = co_await client.open(up::hold);
        for (std::uint32_t i = 0; i < detail::stream_window; ++i) co_await rows.write(i, 0.5F);
        const row one{};
        const auto late = co_await as_result(timeout(rows.write(one), 1ms));
        CHECK(late.error() == errc::timed_out);
        const auto after = co_await as_result(rows.write(one));
        CHECK(after.error() == errc::closed);
        there.open.set();
        const auto result = co_await as_result(rows.finish());
        CHECK(result.error() == call_errc::stopped);
        CHECK(there.failed == call_errc::stopped);
        CHECK(there.taken == detail::stream_window);
    });
}

CALLS_CASE("a write whose item went though it was canceled leaves its stream as it was") {
    run_depot(over, [](any_calls& client, depot&) -> task<> {
        const std::string text(2000, 'x');  // borrowed: the write lasts until it is sent
        auto texts = co_await client.open(up::lengths);
        std::size_t written = 0;
        std::error_code ended;
        for (int n = 0; n != 40; ++n) {
            local_stop_source stop;
            auto writing = start(with_stop(texts.write(text), stop.get_token()));
            stop.request_stop();
            const auto one = co_await as_result(writing);
            ended = one.error();
            if (ended) break;
            ++written;
            const auto next = co_await as_result(texts.write(text));
            CHECK(next);
            ended = next.error();
            if (ended) break;
            ++written;
        }
        if (ended) {
            CHECK(ended == errc::canceled);  // it was taken back, and ended the stream
        } else {
            const auto lengths = co_await texts.finish();
            CHECK(lengths.size() == written);
        }
    });
}

CALLS_CASE(
    "a caller that gives up after the end of its items does not end a stream whose last items are dropped") {
    run_depot(over, [](any_calls& client, depot& there) -> task<> {
        local_stop_source stopped;
        stopped.request_stop();
        for (const bool by_reader : {false, true}) {
            for (std::uint32_t n = 1; n != 6; ++n) {
                CAPTURE(by_reader, n);
                const std::size_t before = there.begun;
                there.taken = 0;
                there.failed = {};
                if (by_reader) {
                    auto both = co_await client.open(up::deny_both);
                    while (there.begun == before)
                        co_await yield();  // what is given up before it has come does not run
                    for (std::uint32_t i = 0; i != n; ++i) co_await both.write(i, 0.5F);
                    both.end();
                    const auto left = co_await as_result(with_stop(both.next(), stopped.get_token()));
                    CHECK(left.error() == errc::canceled);
                    while (there.store.running() != 0) co_await yield();
                } else {
                    auto rows = co_await client.open(up::deny);
                    while (there.begun == before) co_await yield();
                    for (std::uint32_t i = 0; i != n; ++i) co_await rows.write(i, 0.5F);
                    const auto left = co_await as_result(with_stop(rows.finish(), stopped.get_token()));
                    CHECK(left.error() == errc::canceled);
                    while (there.store.running() != 0) co_await yield();
                }
                if (there.failed) {
                    CHECK(there.failed == call_errc::stopped);
                } else {
                    CHECK(there.taken == n);
                }
            }
        }
    });
}

CALLS_CASE("a group that is destroyed amid a write whose item the reader has not taken ends it") {
    run_depot(over, [](any_calls& client, depot& there) -> task<> {
        auto items = co_await client.open(up::deaf);
        std::error_code code;
        std::size_t written = 0;
        {
            task_group writing;
            writing.spawn([&]() -> task<> {
                const std::vector<std::uint64_t> item(1u << 20, 7);  // longer than the reader's credit
                while (!code) {
                    const result<> one = co_await as_result(items.write(item));
                    if (one) ++written;
                    code = one.error();
                }
            });
            while (there.deaf == 0) co_await yield();
            for (int n = 0; n < 1000; ++n) co_await yield();
        }
        CHECK(code == errc::canceled);
        CHECK(written < 2);
        there.open.set();
    });
}

CALLS_CASE("the time of a call with a stream stops its handler, and so its caller's writes") {
    run_depot(over, [](any_calls& client, depot& there) -> task<> {
        auto rows = co_await timeout(client.open(up::hold), 50ms);
        const row one{};
        std::error_code code;
        while (!code) {
            const auto wrote = co_await as_result(rows.write(one));
            code = wrote.error();
        }
        CHECK(code == call_errc::reader_left);
        const auto result = co_await as_result(rows.finish());
        CHECK(result.error() == call_errc::expired);
        CHECK(was_left(there.failed));
        // A limit of the result's own.
        auto held = co_await client.open(up::hold);
        const auto late = co_await as_result(timeout(held.finish(), 5ms));
        CHECK(late.error() == errc::timed_out);
    });
}

CALLS_CASE("both directions of a call are streams at the same time") {
    run_depot(over, [](any_calls& client, depot& there) -> task<> {
        auto both = co_await client.open(up::twice);
        auto writing = start([](auto& to) -> task<> {
            for (std::uint32_t n = 0; n < 500; ++n) co_await to.write(n, 0.5F);
            to.end();
        }(both));
        std::uint32_t read = 0;
        while (const auto one = co_await both.next()) {
            CHECK(one->key == read / 2);
            ++read;
        }
        CHECK(read == 1000);
        co_await writing;
        CHECK(there.taken == 500);
    });
}

CALLS_CASE("a call with a stream that is stopped while its request is sent leaves nothing behind") {
    run_depot(over, [](any_calls& client, depot& there) -> task<> {
        const std::vector<float> large(1 << 20);
        for (int round = 0; round < 20; ++round) {
            // At once, in the first turns of the request's way, or later.
            local_stop_source leaving;
            auto leave = start([](local_stop_source& of, int turns) -> task<> {
                for (int n = 0; n < turns; ++n) co_await yield();
                of.request_stop();
            }(leaving, round / 2));
            if (round % 2 == 0) {
                auto opened = co_await as_result(with_stop(client.open(up::big, large), leaving.get_token()));
                if (opened) {
                    co_await opened->write(1U, 0.5F);
                    const std::uint64_t n = co_await opened->finish();
                    CHECK(n == large.size() + 1);
                } else {
                    CHECK(opened.error() == errc::canceled);
                }
            } else {
                auto opened =
                    co_await as_result(with_stop(client.open(up::both, large), leaving.get_token()));
                if (opened) {
                    co_await opened->write(1U, 0.5F);
                    const auto one = co_await opened->next();
                    CHECK(one);
                } else {
                    CHECK(opened.error() == errc::canceled);
                }
            }
            co_await leave;
        }
        while (there.store.running() != 0) co_await yield();
    });
}

TEST_CASE("a call with a stream whose request the peer does not receive is canceled at once") {
    in_virtual_time([](sim::domain& left, sim::domain& right) -> task<> {
        auto listening = co_await listen<sim>(right, "sim://receives-nothing");
        auto accepting = start(listening.accept());
        auto a = co_await connect<sim>(left, listening.address());
        auto b = co_await accepting;
        {
            calls<sim> client(a);
            const std::vector<float> large(1 << 20);
            const time_point begin = scheduler::current()->now();
            const auto ended = co_await as_result(timeout(client.open(up::big, large), 10ms));
            CHECK(ended.error() == errc::timed_out);
            CHECK(time_since(begin) < 11ms);
        }
        b.abort();
        a.abort();
    });
}

CALLS_CASE("a request that a full service does not take can be canceled") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service narrow({.running = 1});
        event first;
        std::size_t begun = 0;
        narrow.on(up::hold, [&](call_context&, stream_reader<row>& in) -> task<> {
            ++begun;
            co_await first.wait();
            while (co_await in.next()) continue;
        });
        narrow.on(up::big, [](call_context&, std::vector<float>, stream_reader<row>&) -> task<std::uint64_t> {
            co_return 0;
        });
        server.serve(narrow);
        auto running = co_await client.open(up::hold);
        while (begun == 0) co_await yield();
        // The word that the service is there comes before this answer.
        const std::uint64_t known = co_await client.call(kv::add, 1U, 2U);
        CHECK(known == 3);
        co_await yield();
        {
            auto waits = co_await client.open(up::hold);  // the service has received this one
            const std::vector<float> large(1 << 22);
            const auto late = co_await as_result(timeout(client.open(up::big, large), 1ms));
            CHECK(late.error() == errc::timed_out);
            first.set();
            co_await running.finish();
            co_await waits.finish();
        }
        while (narrow.running() != 0) co_await yield();
        const std::uint64_t sum = co_await client.call(kv::add, 1U, 2U);
        CHECK(sum == 3);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
        co_await timeout(server.drain(), 10s);
    });
}

CALLS_CASE("callers of a full service leave before their streams are read") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service narrow({.running = 1});
        event first;
        std::size_t begun = 0;
        narrow.on(up::hold, [&](call_context&, stream_reader<row>& in) -> task<> {
            ++begun;
            co_await first.wait();
            while (co_await in.next()) continue;
        });
        server.serve(narrow);
        auto running = co_await client.open(up::hold);
        while (begun == 0) co_await yield();
        for (int i = 0; i < 20; ++i) {
            auto waits = co_await client.open(up::hold);
            for (int n = 0; n < i; ++n) co_await waits.write(1U, 0.5F);
            if (i % 2 != 0) co_await yield();
        }
        first.set();
        co_await running.finish();
        while (narrow.running() != 0) co_await yield();
        const std::uint64_t sum = co_await client.call(kv::add, 1U, 2U);
        CHECK(sum == 3);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
        co_await timeout(server.drain(), 10s);
    });
}

namespace {
/// One side of a connection, in a process that is killed.
void live_until_killed(const variant& over, const std::string& address, task<> (*body)(any_calls& mine)) {
    scheduler on{idle::yield{}};
    const auto domain = over.open(on);
    on.run([](any_domain& in, const std::string& where, auto run) -> task<> {
        peer end = co_await timeout(in.connect(where), 30s);
        depot there;
        there.open.set();
        const auto mine = end.make_calls();
        mine->serve(there.store);
        co_await run(*mine);
        co_await sleep_for(1h);
    }(*domain, address, body));
}
/// The other side.
void outlive(const variant& over, child_process& child,
             task<> (*body)(any_calls& mine, depot& here, child_process& other)) {
    scheduler on;
    const auto domain = over.open(on);
    on.run([](any_domain& in, std::string where, child_process& other, auto run) -> task<> {
        auto listening = co_await in.listen(where);
        other.tell(listening.address());
        peer end = co_await timeout(listening.accept(), 30s);
        depot here;
        here.open.set();
        const auto mine = end.make_calls();
        mine->serve(here.store);
        co_await timeout(run(*mine, here, other), 30s);
    }(*domain, over.address(), child, body));
}
bool lost(const std::error_code& code) { return code == errc::peer_lost; }
}  // namespace

CONFORMANCE_CASE("writes end with an error when the process of their handler is killed",
                 every_real_transport) {
    child_process child([&](const std::string& address) {
        live_until_killed(over, address, [](any_calls&) -> task<> { co_return; });
    });
    outlive(over, child, [](any_calls& client, depot&, child_process& other) -> task<> {
        auto rows = co_await client.open(up::sum, 0U);
        auto both = co_await client.open(up::twice);
        auto filling = start([](auto& to) -> task<> {  // nothing is read: this waits for room
            for (;;) co_await to.write(1U, 0.5F);
        }(both));
        for (int i = 0; i < 100; ++i) co_await rows.write(1U, 0.5F);
        other.kill();
        std::error_code code;
        while (!code) {
            const row one{};
            const auto wrote = co_await as_result(rows.write(one));
            code = wrote.error();
        }
        CHECK(lost(code));
        const auto result = co_await as_result(rows.finish());
        CHECK(lost(result.error()));
        const auto filled = co_await as_result(filling);
        CHECK(lost(filled.error()));
        std::error_code read;
        while (!read) {
            const auto one = co_await as_result(both.next());
            read = one.error();
        }
        CHECK(lost(read));
    });
}

CONFORMANCE_CASE("reads end when the process of their caller is killed", every_real_transport) {
    child_process child([&](const std::string& address) {
        live_until_killed(over, address, [](any_calls& client) -> task<> {
            auto rows = co_await client.open(up::hold);
            for (int i = 0; i < 100; ++i) co_await rows.write(1U, 0.5F);
            co_await sleep_for(1h);
        });
    });
    outlive(over, child, [](any_calls&, depot& here, child_process& other) -> task<> {
        while (here.taken < 100) co_await yield();
        CHECK_FALSE(here.failed);
        other.kill();
        while (here.store.running() != 0) co_await yield();
        CHECK((was_left(here.failed) || lost(here.failed)));
    });
}

namespace {
struct moved {
    static constexpr method<"moved.sum", int(stream<int>)> sum{};
    static constexpr method<"moved.twice", stream<int>(stream<int>)> twice{};
};
}  // namespace

CALLS_CASE("a writer that was moved from refuses what is asked of it") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service sums;
        sums.on(moved::sum, [](call_context&, stream_reader<int>& in) -> task<int> {
            int all = 0;
            while (const auto one = co_await in.next()) all += *one;
            co_return all;
        });
        sums.on(moved::twice, [](call_context&, stream_reader<int>& in, stream_writer<int>& out) -> task<> {
            while (const auto one = co_await in.next()) co_await out.write(2 * *one);
        });
        server.serve(sums);
        auto former = co_await client.open(moved::sum);
        auto rows = std::move(former);
        const int one = 1;
        const auto refused = co_await as_result(former.write(one));
        CHECK(refused.error() == errc::invalid_argument);
        const auto kept = co_await as_result(former.write(2));
        CHECK(kept.error() == errc::invalid_argument);
        const auto result = co_await as_result(former.finish());
        CHECK(result.error() == errc::invalid_argument);
        co_await rows.write(3);
        const int sum = co_await rows.finish();
        CHECK(sum == 3);
        auto before = co_await client.open(moved::twice);
        auto both = std::move(before);
        before.end();
        const auto nothing = co_await as_result(before.next());
        CHECK(nothing.error() == errc::invalid_argument);
        const auto no_write = co_await as_result(before.write(one));
        CHECK(no_write.error() == errc::invalid_argument);
        co_await both.write(4);
        both.end();
        const auto twice = co_await both.next();
        CHECK(twice == 8);
        const auto end = co_await both.next();
        CHECK_FALSE(end.has_value());
        while (sums.running() != 0) co_await yield();  // it ends here
    });
}

}  // namespace test_service_call_writer
