// Faults of calls between nodes: peers that are killed in each phase of a call, nodes that stop with handlers and calls under way, cards
// that lie, and readers that take their time.
#include <rdmacoro/service/node_calls.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/death.hpp"
#include "support/gates.hpp"
#include "support/nodes.hpp"
#include "support/sanitizer.hpp"
#include "support/shop.hpp"

#include <rdmacoro/coro/describe.hpp>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>

namespace test_service_node_calls_faults {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct far {
    static constexpr method<"far.hang", void()> hang{};
    static constexpr method<"far.much", std::vector<float>()> much{};
    static constexpr method<"far.load", std::uint64_t(remote_region)> load{};
    static constexpr method<"far.rows", stream<row>()> rows{};
    static constexpr method<"far.take", std::uint64_t(stream<row>)> take{};
    static constexpr method<"far.deaf", void()> deaf{};
};
/// What node 1 answers to node 9.
struct near {
    static constexpr method<"near.hang", void()> hang{};
    static constexpr method<"near.much", std::vector<float>()> much{};
    static constexpr method<"near.load", std::uint64_t(remote_region)> load{};
};
/// The messages of node 9 to node 1.
struct tells {
    static constexpr method<"tells.that", one_way(std::uint32_t)> that{};
};
constexpr std::uint32_t here_it_is = 1;
constexpr std::uint32_t hangs = 2;
constexpr std::uint32_t answers = 3;
constexpr std::uint32_t gets = 4;

/// Node 9, in a process of its own: connects to node 1, and serves it until it is killed.
template <class T>
void serve_until_killed(const std::string& address) {
    scheduler on{idle::yield{}};
    on.run([](std::string where) -> task<> {
        node<T> here(9);
        node_calls<T> peers(here);
        service methods({.running = 4});
        methods.on(far::hang, [&](call_context&) -> task<> {
            co_await peers.cast(1, tells::that, hangs);
            co_await sleep_for(60s);
        });
        methods.on(far::much, [&](call_context&) -> task<std::vector<float>> {
            std::vector<float> all(12 << 20, 1.0F);
            co_await peers.cast(1, tells::that, answers);
            co_return all;
        });
        methods.on(far::load, [&](call_context& c, remote_region from) -> task<std::uint64_t> {
            std::vector<std::byte> room(from.length);
            co_await peers.cast(1, tells::that, gets);
            for (;;) co_await c.get(from, room);
        });
        methods.on(far::rows, [](call_context&, stream_writer<row>& out) -> task<> {
            for (std::uint32_t n = 0;; ++n) co_await out.write(n, 0.5F);
        });
        methods.on(far::take, [&](call_context&, stream_reader<row>&) -> task<std::uint64_t> {
            co_await peers.cast(1, tells::that, hangs);
            co_await sleep_for(60s);  // reads nothing
            co_return 0;
        });
        peers.serve(methods);
        here.add({.id = 1, .urls = {std::move(where)}});
        co_await peers.cast(1, tells::that, here_it_is);
        co_await sleep_for(60s);
    }(address));
}

/// Node 9 as the one that calls, until it is killed: `Call` names the method.
template <class T, char Call>
void call_until_killed(const std::string& address) {
    scheduler on{idle::yield{}};
    on.run([](std::string where) -> task<> {
        node<T> here(9);
        node_calls<T> peers(here);
        here.add({.id = 1, .urls = {std::move(where)}});
        co_await peers.cast(1, tells::that, here_it_is);
        if constexpr (Call == 'h') {
            co_await peers.call(1, near::hang);
        } else if constexpr (Call == 'm') {
            static_cast<void>(co_await peers.call(1, near::much));
        } else {
            std::vector<std::byte> bulk(32 << 20);
            auto& memory = scheduler::current()->service<typename T::domain>();
            const region open(memory.register_memory(bulk, access_rights::remote_read));
            static_cast<void>(co_await peers.call(1, near::load, open.remote()));
        }
    }(address));
}

struct ending {
    std::error_code code;
    std::string text;
};
/// How an operation failed; nothing where it did not.
template <class Operation>
task<ending> ended(Operation what) {
    try {
        co_await std::move(what);
    } catch (const error& failed) {
        co_return ending{failed.code(), failed.what()};
    }
    co_return ending{};
}
/// Whether a part of a message is here, and not all of it; where the network moves it at once, whether it does.
bool half_received() {
    const auto now = scheduler::current()->describe();
    for (const pending_operation& one : now.operations()) {
        if (one.what.find("recv") != std::string::npos && (one.moved > 0 || one.stage == "is being got"))
            return true;
    }
    return false;
}

/// Whether a send has begun here, and not ended.
bool sends_something() {
    const auto now = scheduler::current()->describe();
    for (const pending_operation& one : now.operations()) {
        if (one.what.find("send") != std::string::npos) return true;
    }
    return false;
}

/// Node 1 beside node 9 that is killed, and node 2, which notices nothing.
template <class T>
struct beside_a_victim {
    explicit beside_a_victim(child_process& process) : child(process) {
        notes.on(tells::that, [this](call_context&, std::uint32_t what) -> task<> {
            heard[what]++;
            co_return;
        });
        offered.on(near::hang, [this](call_context&) -> task<> {
            ++begun;
            left = co_await ended(sleep_for(60s));
        });
        offered.on(near::much, [this](call_context&) -> task<std::vector<float>> {
            ++begun;
            co_return std::vector<float>(12 << 20, 1.0F);
        });
        offered.on(near::load, [this](call_context& c, remote_region from) -> task<std::uint64_t> {
            std::vector<std::byte> room(from.length);
            left = co_await ended([](call_context& by, remote_region all, std::vector<std::byte>& to,
                                     std::uint32_t& got) -> task<> {
                for (;;) {
                    ++got;
                    co_await by.get(all, to);
                }
            }(c, from, room, begun));
            co_return 0;
        });
        peers.emplace(*here);
        peers->serve(notes);
        peers->serve(offered);
        other_calls.emplace(*other);
        other_calls->serve(others.store);
    }
    ~beside_a_victim() {
        here.reset();
        other.reset();
    }
    task<> begin() {
        co_await other->listen(fresh_url<T>());
        here->add(other->card());
        child.tell(co_await here->listen(fresh_url<T>()));
        co_await until([this] { return heard[here_it_is] == 1; });
        waits_at_other.spawn([this]() -> task<> {
            static_cast<void>(co_await ended(peers->call(2, kv::wait)));
            other_ended = true;
        });
        co_await until([this] { return others.waiting == 1; });
    }
    /// The other node's calls are as if nothing had been.
    task<> unharmed() {
        CHECK_FALSE(other_ended);
        const std::uint64_t sum = co_await peers->call(2, kv::add, 1U, 2U);
        CHECK(sum == 3);
        CHECK(here->connections() == 1);
    }
    static void lost(const ending& seen, const char* method) {
        CAPTURE(seen.text, method);
        CHECK(seen.code == errc::peer_lost);
        CHECK(seen.text.find("node 9 (generation") != std::string::npos);
        CHECK(seen.text.find(method) != std::string::npos);
    }

    child_process& child;
    service notes;
    service offered;
    std::uint32_t begun = 0;  // handlers of `offered`, or gets of one
    ending left;              // how what they awaited ended
    shop others;
    std::uint32_t heard[5] = {};
    std::optional<node_calls<T>> peers;
    std::optional<node_calls<T>> other_calls;
    std::optional<node<T>> here{std::in_place, 1};
    std::optional<node<T>> other{std::in_place, 2};
    bool other_ended = false;
    task_group waits_at_other;
};

template <class T, class Body>
void with_a_victim(Body body, void (*victim)(const std::string&) = serve_until_killed<T>) {
    child_process child(victim);
    run_nodes([&]() -> task<> {
        beside_a_victim<T> w(child);
        co_await w.begin();
        co_await body(w);
        co_await w.unharmed();
        w.waits_at_other.request_stop();
        co_await w.waits_at_other.join();
    });
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a peer that is killed while its handlers run ends these calls and those that wait",
                        "", node_transports) {
    with_a_victim<TestType>([](auto& w) -> task<> {
        task_group running;
        std::vector<ending> seen;
        for (int n = 0; n < 4; ++n)
            running.spawn([&]() -> task<> { seen.push_back(co_await ended(w.peers->call(9, far::hang))); });
        co_await until([&] { return w.heard[hangs] == 4; });
        // No handler begins beside these four.
        for (int n = 0; n < 4; ++n)
            running.spawn([&]() -> task<> { seen.push_back(co_await ended(w.peers->call(9, far::hang))); });
        co_await sleep_for(5ms);
        CHECK(seen.empty());
        w.child.kill();
        co_await running.join();
        CHECK(seen.size() == 8);
        CHECK(w.heard[hangs] == 4);
        for (const ending& each : seen) w.lost(each, "far.hang");
    });
}

TEMPLATE_LIST_TEST_CASE("a caller that is killed ends the handler that runs for it", "", node_transports) {
    with_a_victim<TestType>(
        [](auto& w) -> task<> {
            co_await until([&] { return w.begun == 1; });
            CHECK(w.offered.running() == 1);
            w.child.kill();
            co_await until([&] { return w.offered.running() == 0; });
            CHECK(w.left.code == errc::canceled);
        },
        call_until_killed<TestType, 'h'>);
}

TEMPLATE_LIST_TEST_CASE("a caller that is killed in the middle of its answer leaves nothing at the service",
                        "", node_transports) {
    with_a_victim<TestType>(
        [](auto& w) -> task<> {
            co_await until([&] { return w.begun == 1 && sends_something(); });
            CHECK(w.offered.running() == 1);  // its answer of 48 MiB is not all written
            w.child.kill();
            co_await until([&] { return w.offered.running() == 0; });
            CHECK(w.offered.bytes() == 0);
        },
        call_until_killed<TestType, 'm'>);
}

TEMPLATE_LIST_TEST_CASE("a caller that is killed while a handler gets from its memory ends that get", "",
                        node_transports) {
    with_a_victim<TestType>(
        [](auto& w) -> task<> {
            co_await until([&] { return w.begun >= 1; });
            co_await sleep_for(5ms);
            CHECK(w.offered.running() == 1);
            w.child.kill();
            co_await until([&] { return w.offered.running() == 0; });
            CHECK((w.left.code == errc::peer_lost || w.left.code == errc::canceled));
            // The get may notice it before the connection does.
            co_await until([&] { return w.here->connections() == 1; });
        },
        call_until_killed<TestType, 'l'>);
}

TEMPLATE_LIST_TEST_CASE(
    "a peer that is killed in the middle of an answer ends the call, and no half of it is given", "",
    node_transports) {
    with_a_victim<TestType>([](auto& w) -> task<> {
        auto calling = start(ended(w.peers->call(9, far::much)));
        co_await until([&] { return w.heard[answers] == 1; });
        // A part has come, and the rest has not.
        co_await until([] { return half_received(); });
        w.child.kill();
        const ending seen = co_await calling;
        w.lost(seen, "far.much");
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a peer that is killed in the middle of a get ends the call, and the memory can be closed", "",
    node_transports) {
    with_a_victim<TestType>([](auto& w) -> task<> {
        std::vector<std::byte> bulk(32 << 20);
        auto& memory = scheduler::current()->service<typename TestType::domain>();
        std::optional<region> open(memory.register_memory(bulk, access_rights::remote_read));
        auto calling = start(ended(w.peers->call(9, far::load, open->remote())));
        co_await until([&] { return w.heard[gets] == 1; });
        co_await sleep_for(5ms);
        CHECK_FALSE(calling.done());
        w.child.kill();
        const ending seen = co_await calling;
        w.lost(seen, "far.load");
        open.reset();
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a peer that is killed while it writes a stream ends the stream with an error, and not its end", "",
    node_transports) {
    with_a_victim<TestType>([](auto& w) -> task<> {
        auto rows = co_await w.peers->open(9, far::rows);
        for (std::uint32_t n = 0; n < 100; ++n) {
            const auto one = co_await rows.next();
            CHECK((one && one->key == n));
        }
        w.child.kill();
        const ending seen = co_await ended([](auto& from) -> task<> {
            for (std::uint32_t n = 100;; ++n) {
                const auto one = co_await from.next();
                CHECK((one && one->key == n));
                if (!one) break;
            }
        }(rows));
        w.lost(seen, "far.rows");
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a peer that is killed while it is written a stream ends the writes and the call, and is named", "",
    node_transports) {
    with_a_victim<TestType>([](auto& w) -> task<> {
        auto one = co_await w.peers->open(9, far::take);
        auto two = co_await w.peers->open(9, far::take);
        std::uint32_t written = 0;
        // Until the handler has as many before it as it may have: this write waits.
        auto writing = start(ended([](auto& to, std::uint32_t& n) -> task<> {
            for (;; ++n) co_await to.write(n, 0.5F);
        }(one, written)));
        auto finishing = start(ended(two.finish()));
        co_await until([&] { return w.heard[hangs] == 2 && written == detail::stream_window; });
        w.child.kill();
        const ending of_write = co_await writing;
        w.lost(of_write, "far.take");
        const ending of_finish = co_await finishing;
        w.lost(of_finish, "far.take");
        const ending after_write = co_await ended(one.finish());
        w.lost(after_write, "far.take");
    });
}

namespace {

struct numbered {
    static constexpr method<"numbered.hang", void(std::uint32_t)> hang{};
    static constexpr method<"numbered.seen", std::vector<std::uint32_t>(std::uint32_t)> seen{};
};
struct calls_back {
    static constexpr method<"calls_back.from", one_way(std::string)> from{};
    static constexpr method<"calls_back.hangs", one_way(std::uint32_t)> hangs{};
};

/// Node 9 in one of its lives: `addresses` is where node 1 listens, and where this one is to listen. It keeps the numbers of the calls that it sees.
template <class T>
void live_once(const std::string& addresses) {
    scheduler on{idle::yield{}};
    on.run([](std::string home, std::string at) -> task<> {
        node<T> here(9);
        node_calls<T> peers(here);
        service methods({.running = 1});
        std::vector<std::uint32_t> numbers;
        methods.on(numbered::hang, [&](call_context&, std::uint32_t number) -> task<> {
            numbers.push_back(number);
            co_await peers.cast(1, calls_back::hangs, number);
            co_await sleep_for(60s);
        });
        methods.on(numbered::seen, [&](call_context&, std::uint32_t number) {
            numbers.push_back(number);
            return numbers;
        });
        peers.serve(methods);
        here.add({.id = 1, .urls = {std::move(home)}});
        // The kernel closes what a killed process gave to io_uring a moment later.
        std::string where;
        while (where.empty()) {
            try {
                where = co_await here.listen(at);
            } catch (const error&) {}
            co_await yield();
        }
        co_await peers.cast(1, calls_back::from, where);
        co_await sleep_for(60s);
    }(addresses.substr(0, addresses.find(' ')), addresses.substr(addresses.find(' ') + 1)));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "a process that is killed and started again at its address gets no call of its former life", "",
    node_transports) {
    child_process first(live_once<TestType>);
    child_process second(live_once<TestType>);
    run_nodes([&]() -> task<> {
        std::string where;
        std::uint32_t hanging = 0;
        service back;
        back.on(calls_back::from, [&](call_context&, std::string at) -> task<> {
            where = std::move(at);
            co_return;
        });
        back.on(calls_back::hangs, [&](call_context&, std::uint32_t number) -> task<> {
            hanging = number;
            co_return;
        });
        std::optional<node<TestType>> here(std::in_place, 1);
        node_calls<TestType> peers(*here);
        peers.serve(back);
        const std::string home = co_await here->listen(fresh_url<TestType>());
        first.tell(home + ' ' + fresh_url<TestType>());
        co_await until([&] { return !where.empty(); });
        here->add({.id = 9, .urls = {where}});
        const generation born = here->peer(9).born();
        // One is in its handler, and the other waits for that.
        auto one = start(ended(peers.call(9, numbered::hang, 11U)));
        co_await until([&] { return hanging == 11; });
        auto other = start(ended(peers.call(9, numbered::hang, 12U)));
        first.kill();
        // This one finds none, until the second life is there.
        const std::string again = std::exchange(where, {});
        second.tell(home + ' ' + again);
        for (auto* lost : {&one, &other}) {
            const ending seen = co_await *lost;
            CAPTURE(seen.text);
            // Closed, where the second life connects before the loss of the first is seen: this side closes that connection.
            CHECK((seen.code == errc::peer_lost || seen.code == errc::closed));
            CHECK(seen.text.find("node 9 (generation " + to_string(born) + ")") != std::string::npos);
        }
        const std::vector<std::uint32_t> numbers = co_await peers.call(9, numbered::seen, 13U);
        CHECK(numbers == std::vector<std::uint32_t>{13});
        CHECK(here->peer(9).born() != born);
        co_await until([&] { return !where.empty(); });
        CHECK(where == again);
        co_await here->close();
        here.reset();
    });
}

TEMPLATE_LIST_TEST_CASE("a peer that is killed ends what threads wait for in a gate, each with its name", "",
                        node_transports) {
    with_a_victim<TestType>([](auto& w) -> task<> {
        gate through(*w.peers, {.messages = 16, .message_bytes = 1 << 20});
        std::atomic<std::size_t> waiting{0};
        std::atomic<std::size_t> over{0};
        std::vector<ending> of_calls(4);
        ending of_flush, of_send;
        // How a thread's operation failed.
        const auto thrown = [](auto&& what) {
            try {
                what();
            } catch (const error& failed) {
                return ending{failed.code(), failed.what()};
            }
            return ending{};
        };
        std::vector<std::jthread> threads;
        for (ending& one : of_calls) {
            threads.emplace_back([&, pass = through.pass()]() mutable {
                one = thrown([&] { pass.call(9, far::hang).get(); });
                ++over;
            });
        }
        // More than the victim keeps unasked: it receives none of these.
        const std::vector<std::byte> much(8 << 20, std::byte{9});
        threads.emplace_back([&, pass = through.pass()]() mutable {
            const std::span<const std::byte> part = std::span(much).first(1 << 20);
            while (pass.try_send(9, part, 7)) {}
            ++waiting;
            of_flush = thrown([&] { pass.flush(); });
            ++over;
        });
        threads.emplace_back([&, pass = through.pass()]() mutable {
            ++waiting;
            of_send = thrown([&] { pass.send(9, much, 7); });
            ++over;
        });
        co_await until([&] { return w.heard[hangs] == 4 && waiting == 2; });
        // Another node's calls go by the same gate meanwhile, and afterwards.
        auto of_others = through.pass();
        const auto add = [&of_others] { return of_others.call(2, kv::add, 1U, 2U).get(); };
        const std::uint64_t before = co_await on_thread(add);
        CHECK(before == 3);
        CHECK(over == 0);
        w.child.kill();
        co_await until([&] { return over == 6; });
        threads.clear();
        for (const ending& one : of_calls) w.lost(one, "far.hang");
        w.lost(of_flush, "gate_pass::flush");
        w.lost(of_send, "gate_pass::send");
        const std::uint64_t after = co_await on_thread(add);
        CHECK(after == 3);
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a node that stops while a thousand calls are under way, in both directions, ends them all", "",
    node_transports) {
    for (const bool caller_stops : {true, false}) {
        run_nodes([caller_stops]() -> task<> {
            shop at_one, at_two;
            std::optional<node<TestType>> one(std::in_place, 1), two(std::in_place, 2);
            std::optional<node_calls<TestType>> from_one(std::in_place, *one), from_two(std::in_place, *two);
            from_one->serve(at_one.store);
            from_two->serve(at_two.store);
            co_await two->listen(fresh_url<TestType>());
            one->add(two->card());
            const std::uint64_t sum = co_await from_one->call(2, kv::add, 1U, 2U);
            CHECK(sum == 3);
            task_group calling;
            std::size_t failed = 0;
            for (int n = 0; n < 1000; ++n) {
                const bool forward = n % 2 == 0;
                calling.spawn([&, forward]() -> task<> {
                    const ending seen =
                        co_await ended(forward ? from_one->call(2, kv::wait) : from_two->call(1, kv::wait));
                    failed += seen.code == errc::closed || seen.code == errc::peer_lost ||
                              seen.code == call_errc::stopped;
                });
            }
            co_await until([&] { return at_one.store.running() == 256 && at_two.store.running() == 256; });
            (caller_stops ? one : two).reset();
            co_await calling.join();
            CHECK(failed == 1000);
            co_await until([&] { return at_one.store.running() == 0 && at_two.store.running() == 0; });
            CHECK(at_one.store.bytes() == 0);
            CHECK(at_two.store.bytes() == 0);
            one.reset();
            two.reset();
        });
    }
}

TEMPLATE_LIST_TEST_CASE("a handler that hears no stop holds nothing up but its own node's end, which says so",
                        "", node_transports) {
    run_nodes([]() -> task<> {
        event go;
        bool began = false;
        service methods;
        methods.on(far::deaf, [&](call_context&) -> task<> {
            began = true;
            co_await without_stop(go.wait());
        });
        node_options hasty;
        hasty.close_limit = 20ms;
        std::optional<node<TestType>> nine(std::in_place, 9, hasty);
        std::optional<node_calls<TestType>> served(std::in_place, *nine);
        served->serve(methods);
        node<TestType> one(1);
        node_calls<TestType> peers(one);
        co_await nine->listen(fresh_url<TestType>());
        one.add(nine->card());
        auto calling = start(ended(peers.call(9, far::deaf)));
        co_await until([&] { return began; });
        auto closing = start(ended(nine->close()));
        const ending seen = co_await calling;  // does not wait for the handler
        CHECK((seen.code == errc::closed || seen.code == errc::peer_lost || seen.code == call_errc::stopped));
        CHECK(methods.running() == 1);
        // Nor does the close, though the handler ends never.
        const ending closed = co_await timeout(closing, 20s);
        CHECK(closed.code == errc::timed_out);
        CHECK_THAT(closed.text, Catch::Contains("node 9: close") && Catch::Contains("far.deaf") &&
                                    Catch::Contains("node 1 (generation"));
        CHECK(methods.running() == 1);
        CHECK(nine->connections() == 0);
        const ending again = co_await timeout(ended(nine->close()), 20s);
        CHECK(again.code == errc::timed_out);
        go.set();
        co_await until([&] { return methods.running() == 0; });
        const ending last = co_await timeout(ended(nine->close()), 20s);
        CHECK(!last.code);
        CHECK(methods.running() == 0);
        nine.reset();
        served.reset();
        co_await one.close();
    });
}

TEST_CASE("a node that is destroyed while a handler hears no stop says which, and waits for it") {
    const death seen = dies([] {
        scheduler on;
        on.run([]() -> task<> {
            service methods;
            bool began = false;
            methods.on(far::deaf, [&](call_context&) -> task<> {
                began = true;
                static_cast<void>(
                    co_await as_result(sleep_for(1h)));  // until it is asked to stop, and longer
                for (int n = 0; n < 20; ++n) co_await without_stop(sleep_for(10ms));
                began = false;
            });
            node_options hasty;
            hasty.close_limit = 20ms;
            std::optional<node<shm>> nine(std::in_place, 9, hasty);
            node_calls<shm> served(*nine);
            served.serve(methods);
            node<shm> one(1);
            node_calls<shm> peers(one);
            co_await nine->listen(fresh_url<shm>());
            one.add(nine->card());
            auto calling = start(ended(peers.call(9, far::deaf)));
            co_await until([&] { return began; });
            nine.reset();
            if (began) std::abort();  // it was not waited for
            co_await calling;
            co_await one.close();
        }());
    });
    CHECK(!seen.aborted);
    CHECK(seen.status == 0);
    CHECK_THAT(seen.said, Catch::Contains("node 9 is destroyed, and waits") && Catch::Contains("far.deaf") &&
                              Catch::Contains("node 1 (generation"));
}

namespace {
/// Prefixes whose numbers are the same.
struct collides {
    static constexpr method<"files.add", void()> files{};
    static constexpr method<"s308.add", void()> other{};
};
static_assert(decltype(collides::files)::service == decltype(collides::other)::service);

duration time_of_thread() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

ending refusal(const std::function<void()>& of) {
    try {
        of();
    } catch (const std::system_error& e) {
        return {e.code(), e.what()};
    }
    return {};
}
}  // namespace

TEST_CASE("services that cannot be offered together are refused where they are given to a node's calls") {
    run_nodes([]() -> task<> {
        shop there;
        service same;  // with the prefix of another one
        same.on(kv::get, [](call_context&, std::string) -> task<std::string> { co_return "another"; });
        service empty;
        const auto nothing = [](call_context&) -> task<> { co_return; };
        service files;
        files.on(collides::files, nothing);
        service other;
        other.on(collides::other, nothing);
        node<shm> nine(9);
        node_calls<shm> at_nine(nine, there.store, files);
        for (service* const one : {&same, &empty, &other}) {
            const ending seen = refusal([&] { at_nine.serve(*one); });
            INFO(seen.text);
            CHECK(seen.code == errc::invalid_argument);
            CHECK_THAT(seen.text, Catch::Contains(one == &same    ? "the prefix of kv.get is offered already"
                                                  : one == &empty ? "without methods"
                                                                  : "the prefixes s308 and files have one"));
        }
        CHECK(refusal([&] { files.on(collides::other, nothing); }).code == errc::invalid_argument);
        // What was offered before works.
        co_await nine.listen(fresh_url<shm>());
        node<shm> one(1);
        node_calls<shm> peers(one);
        one.add(nine.card());
        const std::uint64_t sum = co_await peers.call(9, kv::add, 1U, 2U);
        CHECK(sum == 3);
        co_await one.close();
        co_await nine.close();
    });
}

namespace {
/// How many this process may have.
rlim_t descriptors() {
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    return limit.rlim_cur;
}
}  // namespace

TEST_CASE("to close a node with thousands of connections of calls costs what closing one of few does for "
          "each of them") {
    static constexpr node_id few = under_sanitizer ? 60 : 300;
    static constexpr node_id many = under_sanitizer ? 600 : 3000;
    if (descriptors() < 4 * many + 100) SKIP_TEST("it needs 12,100 descriptors (ulimit -Hn)");
    run_nodes([]() -> task<> {
        duration of_each[2];
        for (const node_id count : {few, many}) {
            service methods;
            methods.on(far::deaf, [](call_context&) -> task<> { co_return; });
            node_options wide;
            wide.connections = 2 * many;
            node<shm> nine(9, wide);
            node_calls<shm> served(nine, methods);
            const std::string url = co_await nine.listen(fresh_url<shm>());
            std::vector<std::unique_ptr<node<shm>>> nodes;
            std::vector<std::unique_ptr<node_calls<shm>>> callers;
            for (node_id id = 10; id < 10 + count; ++id) {
                nodes.push_back(std::make_unique<node<shm>>(id));
                callers.push_back(std::make_unique<node_calls<shm>>(*nodes.back()));
                nodes.back()->add({.id = 9, .urls = {url}});
                co_await callers.back()->call(9, far::deaf);
            }
            CHECK(nine.connections() == count);
            const duration began = time_of_thread();
            co_await nine.close();
            of_each[count == many] = (time_of_thread() - began) / count;
            CHECK(nine.connections() == 0);
            nodes.clear();
            callers.clear();
        }
        // An end that runs the scheduler for itself looks at all the others that have not ended: it costs more the more there are.
        CHECK(of_each[1] < 4 * of_each[0]);
    });
}

TEST_CASE("a call to all of more nodes than a node may have connections is answered by each") {
    static constexpr node_id many = under_sanitizer ? 300 : 3000;
    if (descriptors() < 2 * many + 100) SKIP_TEST("it needs 6,100 descriptors (ulimit -Hn)");
    run_nodes([]() -> task<> {
        service methods;
        methods.on(far::deaf, [](call_context&) -> task<> { co_return; });
        node_options few;
        few.connections = many / 12;
        few.connect_limit = 100s;
        node<shm> one(1, few);
        node_calls<shm> peers(one);
        std::vector<std::unique_ptr<node<shm>>> nodes;
        std::vector<std::unique_ptr<node_calls<shm>>> serving;
        std::vector<node_id> ids;
        for (node_id id = 10; id < 10 + many; ++id) {
            ids.push_back(id);
            nodes.push_back(std::make_unique<node<shm>>(id));
            serving.push_back(std::make_unique<node_calls<shm>>(*nodes.back(), methods));
            co_await nodes.back()->listen(fresh_url<shm>());
            one.add(nodes.back()->card());
        }
        // One after the other, as a measure; of this thread's time, which other programs take nothing of.
        const duration begin = time_of_thread();
        for (std::size_t n = 0; n < many / 10; ++n) co_await peers.call(ids[many - 1 - n], far::deaf);
        const duration of_a_tenth = time_of_thread() - begin;
        const auto each = co_await peers.call_all(ids, far::deaf);
        const duration of_all = time_of_thread() - begin - of_a_tenth;
        // Where each that waits looks at all connections it is 90 times as much.
        if (!under_sanitizer) CHECK(of_all < 40 * of_a_tenth);
        std::size_t answered = 0;
        std::string why;
        for (const auto& one_of : each) {
            answered += one_of.ended ? 1 : 0;
            if (!one_of.ended) why = one_of.why;
        }
        INFO(why);
        CHECK(answered == many);
        CHECK(one.connections() <= few.connections);
        co_await one.close();
        nodes.clear();
        serving.clear();
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a node that is drained answers what it began, over each connection, and serves no more", "",
    node_transports) {
    run_nodes([]() -> task<> {
        event go;
        std::size_t began = 0;
        service methods;
        methods.on(far::deaf, [&](call_context&) -> task<> {
            ++began;
            co_await go.wait();
        });
        std::optional<node<TestType>> nine(std::in_place, 9);
        std::optional<node_calls<TestType>> served(std::in_place, *nine);
        served->serve(methods);
        const std::string url = co_await nine->listen(fresh_url<TestType>());
        std::vector<std::unique_ptr<node<TestType>>> nodes;
        std::vector<std::unique_ptr<node_calls<TestType>>> callers;
        std::vector<std::error_code> codes(4);
        task_group calling;
        for (node_id id = 1; id <= 4; ++id) {
            nodes.push_back(std::make_unique<node<TestType>>(id));
            callers.push_back(std::make_unique<node_calls<TestType>>(*nodes.back()));
            nodes.back()->add({.id = 9, .urls = {url}});
            if (id == 4) break;  // it calls when there is no service any more
            calling.spawn([&, id]() -> task<> {
                const auto got = co_await as_result(callers[id - 1]->call(9, far::deaf));
                codes[id - 1] = got.error();
            });
        }
        co_await until([&] { return began == 3; });
        auto draining = start(served->drain());
        for (int n = 0; n < 100; ++n) co_await yield();
        CHECK_FALSE(draining.done());
        nodes[2].reset();  // a connection that ends meanwhile
        co_await until([&] { return methods.running() == 2; });
        // Over a new connection, too, a request waits, for what comes after the node.
        calling.spawn([&]() -> task<> {
            const auto got = co_await as_result(callers[3]->call(9, far::deaf));
            codes[3] = got.error();
        });
        const auto waits = co_await as_result(timeout(callers[3]->call(9, far::deaf), 300ms));
        CHECK(waits.error() == errc::timed_out);
        CHECK(!codes[3]);
        go.set();
        co_await timeout(draining, 20s);
        co_await nine->close();
        co_await timeout(calling.join(), 20s);
        CHECK(codes[3] == errc::closed);
        CHECK(!codes[0]);
        CHECK(!codes[1]);
        CHECK(codes[2] == errc::closed);
        CHECK(began == 3);
        nine.reset();
        served.reset();
        nodes.clear();
        callers.clear();
    });
}

TEMPLATE_LIST_TEST_CASE("a call by a card that leads to another node ends with an error that says so", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        node_options hasty;
        hasty.connect_limit = 100ms;
        node<TestType> one(1, hasty), three(3);
        node_calls<TestType> peers(one), at_three(three);
        shop there;
        at_three.serve(there.store);
        const std::string where = co_await three.listen(fresh_url<TestType>());
        one.add({.id = 9, .urls = {where}});
        const ending seen = co_await ended(peers.call(9, kv::add, 1U, 2U));
        CHECK(seen.code);
        CHECK_THAT(seen.text, Catch::Contains("node 9") && Catch::Contains("3"));
        // A card that says the truth beside it is right.
        one.add({.id = 3, .urls = {where}});
        const std::uint64_t sum = co_await peers.call(3, kv::add, 1U, 2U);
        CHECK(sum == 3);
        co_await one.close();
        co_await three.close();
    });
}

}  // namespace test_service_node_calls_faults
