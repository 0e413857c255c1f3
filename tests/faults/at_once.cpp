// Every awaitable in the states in which it ends at once: closed, ended, stopped, unknown, alone, of nothing. A coroutine that awaits
// nothing else lets others have their turn within a bounded count of operations, also in a scope that was stopped.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/byte_stream.hpp>
#include <rdmacoro/service/gate.hpp>
#include <rdmacoro/service/job.hpp>
#include <rdmacoro/service/node_calls.hpp>
#include <rdmacoro/transport/plain_stream.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/nodes.hpp"
#include "support/shop.hpp"

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace test_faults_at_once {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// One operation. It keeps its errors to itself: a task that throws counts as an operation.
using step = std::function<task<>()>;

/// So many operations may end one after another at most, and some more that begin in them.
constexpr int most_at_once = 1000;

/// How many operations have ended before another coroutine, which was ready before the first, had its turn.
task<> count_until(const bool& others, step& next, int& count) {
    while (!others && count < most_at_once) {
        co_await next();
        ++count;
    }
}

/// The same operation again and again, and then in a scope that was stopped.
task<> check(const char* what, step next) {
    for (const bool stopped : {false, true}) {
        local_stop_source scope;
        if (stopped) scope.request_stop();
        bool others = false;
        int count = 0;
        task_group beside;
        beside.spawn([&others]() -> task<> {
            others = true;
            co_return;
        });
        co_await with_stop(count_until(others, next, count), scope.get_token());
        INFO(what << (stopped ? ", in a scope that was stopped" : ""));
        CHECK(count < most_at_once);
        co_await beside.join();
    }
}

/// `check` of an awaitable that the expression makes.
#define CHECK_AT_ONCE(...)                                                                                   \
    co_await check(#__VA_ARGS__, [&]() -> task<> { static_cast<void>(co_await as_result(__VA_ARGS__)); })

template <class F>
void run_limited(F body) {
    scheduler on;
    on.run([](F run) -> task<> { co_await timeout(run(), 20s); }(std::move(body)));
}

struct both_ends {
    endpoint<shm> near;
    endpoint<shm> far;
};
task<both_ends> open_link() {
    auto listening = co_await listen<shm>(fresh_url<shm>());
    auto accepting = start(listening.accept());
    auto near = co_await connect<shm>(listening.address());
    auto far = co_await accepting;
    co_return both_ends{std::move(near), std::move(far)};
}

task<> fails_at_once() {
    throw error(errc::closed, "a task");
    co_return;
}
task<> is_refused_at_once() {
    throw error(errc::access_denied, "a task");
    co_return;
}
task<> fails_below() { co_await fails_at_once(); }

struct stubborn {
    int value = 0;
};
struct counting {
    static constexpr method<"counting.sum", int(stream<int>)> sum{};
    static constexpr method<"counting.twice", stream<int>(stream<int>)> twice{};
    static constexpr method<"counting.put", int(stubborn)> put{};
};

}  // namespace

}  // namespace test_faults_at_once

/// Cannot be encoded.
template <>
struct rdmacoro::codec<test_faults_at_once::stubborn> {
    static constexpr std::string_view name = "stubborn";
    static void write(encoder&, const test_faults_at_once::stubborn&) { throw error(errc::unsupported); }
    static bool read(decoder&, test_faults_at_once::stubborn&) { return true; }
};

namespace test_faults_at_once {

TEST_CASE("primitives that are ready, closed or stopped let others have their turn") {
    run_limited([]() -> task<> {
        event is_set(true);
        semaphore permits(1 << 20);
        channel<int> closed(1);
        closed.close();
        thread_channel<int> over(*scheduler::current(), 1);
        over.close();
        task_group none;
        window<task<>> empty(1);
        std::vector<task<>> nothing;
        local_stop_source stopped;
        stopped.request_stop();
        event never;
        CHECK_AT_ONCE(is_set.wait());
        CHECK_AT_ONCE(permits.acquire());
        CHECK_AT_ONCE(closed.receive());
        CHECK_AT_ONCE(closed.send(1));
        CHECK_AT_ONCE(over.receive());
        CHECK_AT_ONCE(none.join());
        CHECK_AT_ONCE(empty.all());
        CHECK_AT_ONCE(empty.cancel());
        CHECK_AT_ONCE(when_all(std::exchange(nothing, {})));
        CHECK_AT_ONCE(when_any(is_set.wait(), is_set.wait()));
        CHECK_AT_ONCE(sleep_for(0s));
        CHECK_AT_ONCE(sleep_for(-1s));
        CHECK_AT_ONCE(timeout(is_set.wait(), 0s));
        CHECK_AT_ONCE(with_stop(never.wait(), stopped.get_token()));
        CHECK_AT_ONCE(without_stop(is_set.wait()));
        CHECK_AT_ONCE(fails_at_once());
        CHECK_AT_ONCE(fails_below());
        CHECK_AT_ONCE(without_stop(fails_below()));
        CHECK_AT_ONCE(timeout(fails_below(), 1h));
        CHECK_AT_ONCE(when_all(fails_below(), fails_below()));
    });
}

TEST_CASE("endpoints, mailboxes and listeners that have ended let others have their turn") {
    run_limited([]() -> task<> {
        both_ends link = co_await open_link();
        std::uint64_t value = 0;
        co_await link.near.send(bytes_of(value), 5);
        co_await link.far.probe(5);
        CHECK_AT_ONCE(link.far.probe(5));
        auto listening = co_await listen<shm>(fresh_url<shm>());
        auto moved = std::move(listening);
        endpoint<shm> of_nothing;
        mailbox<shm> box;
        CHECK_AT_ONCE(listening.accept());
        CHECK_AT_ONCE(connect<shm>("shm://nobody-listens"));
        CHECK_AT_ONCE(listen<shm>("tcp://no-such"));
        CHECK_AT_ONCE(of_nothing.send(bytes_of(value)));
        CHECK_AT_ONCE(of_nothing.recv(room_for(value)));
        CHECK_AT_ONCE(of_nothing.probe());
        CHECK_AT_ONCE(of_nothing.close());
        CHECK_AT_ONCE(box.recv(room_for(value), any_tag, peer_id{7}));
        CHECK_AT_ONCE(box.send(peer_id{7}, bytes_of(value)));
        CHECK_AT_ONCE(box.close());
        CHECK_AT_ONCE(box.gone());
        CHECK_AT_ONCE(box.recv(room_for(value)));
        link.near.abort();
        link.far.abort();
        CHECK_AT_ONCE(link.near.send(bytes_of(value)));
        CHECK_AT_ONCE(link.near.ssend(bytes_of(value)));
        CHECK_AT_ONCE(link.near.recv(room_for(value)));
        CHECK_AT_ONCE(link.near.recv_lent());
        CHECK_AT_ONCE(link.near.probe());
        CHECK_AT_ONCE(link.near.close());
        CHECK_AT_ONCE(link.near.rdma_get(remote_region(), room_for(value)));
    });
}

TEST_CASE("calls and streams of values that have ended let others have their turn") {
    run_limited([]() -> task<> {
        both_ends link = co_await open_link();
        shop there;
        service sums;
        sums.on(counting::sum, [](call_context&, stream_reader<int>&) -> task<int> { co_return 7; });
        sums.on(counting::twice,
                [](call_context&, stream_reader<int>&, stream_writer<int>&) -> task<> { co_return; });
        sums.on(counting::put, [](call_context&, stubborn) { return 1; });
        {
            calls<shm> server(link.far, there.store);
            server.serve(sums);
            calls<shm> client(link.near);
            const auto colour = std::string("colour");
            const stubborn no{};
            std::vector<float> place(8);
            auto rows = co_await client.open(kv::scan, 1U);
            while (co_await rows.next()) {}
            auto written = co_await client.open(counting::sum);
            auto both = co_await client.open(counting::twice);
            both.end();
            while (co_await both.next()) {}
            CHECK_AT_ONCE(rows.next());
            CHECK_AT_ONCE(both.next());
            CHECK_AT_ONCE(both.write(1));
            CHECK_AT_ONCE(client.call(counting::put, no));
            CHECK_AT_ONCE(client.drain());
            link.far.abort();
            while (co_await as_result(client.call(kv::add, 1U, 2U))) {}
            CHECK_AT_ONCE(written.write(1));
            CHECK_AT_ONCE(rows.next());
            CHECK_AT_ONCE(client.call(kv::add, 1U, 2U));
            CHECK_AT_ONCE(timeout(client.call(kv::add, 1U, 2U), 1h));
            CHECK_AT_ONCE(client.call(kv::get, colour));
            CHECK_AT_ONCE(timeout(client.call(kv::get, colour), 1h));
            CHECK_AT_ONCE(client.call_into(std::span(place), kv::fill, 8U));
            CHECK_AT_ONCE(client.cast(kv::note, colour));
            CHECK_AT_ONCE(client.open(kv::scan, 1U));
            CHECK_AT_ONCE(client.open(counting::sum));
            CHECK_AT_ONCE(client.drain());
        }
        link.near.abort();
    });
}

TEST_CASE("streams of bytes that have what is asked for or have ended let others have their turn") {
    run_limited([]() -> task<> {
        both_ends link = co_await open_link();
        byte_stream<shm> near(std::move(link.near));
        byte_stream<shm> far(std::move(link.far));
        byte_stream<shm> of_nothing;
        std::byte one{};
        const std::span<std::byte> byte(&one, 1);
        const std::vector<std::byte> much(100'000);
        task_group writing;
        writing.spawn([&]() -> task<> { co_await near.write(much); });
        co_await far.read_exactly(byte);
        CHECK_AT_ONCE(far.read_some(byte));
        CHECK_AT_ONCE(far.read_exactly(byte));
        CHECK_AT_ONCE(far.read_some(byte.first(0)));
        co_await writing.join();
        co_await near.flush();
        CHECK_AT_ONCE(near.flush());
        CHECK_AT_ONCE(near.write(byte.first(0)));
        CHECK_AT_ONCE(near.write(byte));
        co_await near.shutdown();
        CHECK_AT_ONCE(near.shutdown());
        CHECK_AT_ONCE(near.write(byte));
        while (co_await far.read_some(byte) != 0) {}
        CHECK_AT_ONCE(far.read_some(byte));
        far.abort();
        CHECK_AT_ONCE(far.write(byte));
        CHECK_AT_ONCE(far.write(much));
        CHECK_AT_ONCE(far.flush());
        CHECK_AT_ONCE(far.shutdown());
        CHECK_AT_ONCE(far.close());
        CHECK_AT_ONCE(of_nothing.write(byte));
        CHECK_AT_ONCE(of_nothing.read_some(byte));
    });
}

TEST_CASE("streams over sockets with nothing to do let others have their turn") {
    run_limited([]() -> task<> {
        auto listening = co_await listen_plain("127.0.0.1:0");
        auto accepting = start(listening.accept());
        auto near = co_await connect_plain(listening.address());
        auto far = co_await accepting;
        std::byte one{};
        const std::span<std::byte> byte(&one, 1);
        CHECK_AT_ONCE(near.write(byte.first(0)));
        CHECK_AT_ONCE(near.read_some(byte.first(0)));
        CHECK_AT_ONCE(near.flush());
        co_await near.shutdown();
        CHECK_AT_ONCE(near.shutdown());
        CHECK_AT_ONCE(near.write(byte));
        CHECK_AT_ONCE(far.read_some(byte));
        CHECK_AT_ONCE(far.read_exactly(byte));
    });
}

TEST_CASE("nodes that are connected, unknown, or have left let others have their turn") {
    run_limited([]() -> task<> {
        shop there;
        node<shm> here(1);
        node<shm> nine(9);
        node_calls<shm> client(here);
        node_calls<shm> server(nine, there.store);
        co_await nine.listen(fresh_url<shm>());
        here.add(nine.card());
        auto peer = here.peer(9);
        auto unknown = here.peer(77);
        node_peer<shm> of_nothing;
        auto watch = here.watch(4);
        std::uint64_t value = 0;
        const std::vector<node_id> nobody;
        const std::vector<node_id> all{9, 77};
        static_cast<void>(co_await client.call(9, kv::add, 1U, 2U));
        CHECK_AT_ONCE(peer.connect());
        CHECK_AT_ONCE(peer.register_memory(bytes_of(value)));
        CHECK_AT_ONCE(unknown.connect());
        CHECK_AT_ONCE(unknown.send(bytes_of(value)));
        CHECK_AT_ONCE(unknown.register_memory(bytes_of(value)));
        CHECK_AT_ONCE(client.call(77, kv::add, 1U, 2U));
        CHECK_AT_ONCE(timeout(client.call(77, kv::add, 1U, 2U), 1h));
        CHECK_AT_ONCE(client.cast(77, kv::note, "a note"));
        CHECK_AT_ONCE(client.open(77, kv::scan, 1U));
        CHECK_AT_ONCE(client.call_all(nobody, kv::add, 1U, 2U));
        CHECK_AT_ONCE(client.call_all(all, kv::fail, 0));
        CHECK_AT_ONCE(client.repeat_if_lost([] { return is_refused_at_once(); }));
        CHECK_AT_ONCE(here.listen("no-scheme"));
        CHECK_AT_ONCE(of_nothing.send(bytes_of(value)));
        CHECK_AT_ONCE(of_nothing.recv(room_for(value)));
        CHECK_AT_ONCE(of_nothing.connect());
        here.remove(9);
        co_await nine.close();
        while (peer.is_open()) co_await yield();
        CHECK_AT_ONCE(client.call(9, kv::add, 1U, 2U));
        CHECK_AT_ONCE(timeout(client.call(9, kv::add, 1U, 2U), 1h));
        co_await here.close();
        CHECK_AT_ONCE(client.call(9, kv::add, 1U, 2U));
        CHECK_AT_ONCE(client.cast_all(all, kv::note, "a note"));
        CHECK_AT_ONCE(client.drain());
        CHECK_AT_ONCE(peer.send(bytes_of(value)));
        CHECK_AT_ONCE(peer.recv(room_for(value)));
        CHECK_AT_ONCE(peer.recv_lent());
        CHECK_AT_ONCE(peer.connect());
        CHECK_AT_ONCE(watch.next());
        CHECK_AT_ONCE(here.close());
    });
}

TEST_CASE("a watcher whose events wait lets others have their turn") {
    run_limited([]() -> task<> {
        std::optional<node<shm>> here(std::in_place, 1);
        node_watch watch = here->watch();
        here.reset();
        CHECK_AT_ONCE(watch.next());
    });
}

TEST_CASE("groups of one rank and of none let others have their turn") {
    run_limited([]() -> task<> {
        node<shm> here(1);
        job alone = co_await join_job(here, job_options{.alone = true});
        group all = alone.world();
        const group none;
        int x = 1;
        int y = 0;
        const std::span<int> one(&x, 1);
        const std::span<int> other(&y, 1);
        const std::array<std::size_t, 1> counts{1};
        CHECK_AT_ONCE(all.barrier());
        CHECK_AT_ONCE(all.broadcast(one, root{0}));
        CHECK_AT_ONCE(all.scatter(one, other, root{0}));
        CHECK_AT_ONCE(all.gather(one, other, root{0}));
        CHECK_AT_ONCE(all.allgather(one, other));
        CHECK_AT_ONCE(all.allgatherv(one, other, counts));
        CHECK_AT_ONCE(all.alltoall(one, other));
        CHECK_AT_ONCE(all.reduce(one, other, std::plus<>(), root{0}));
        CHECK_AT_ONCE(all.allreduce(in_place, one, std::plus<>()));
        CHECK_AT_ONCE(all.reduce_scatter(one, other, std::plus<>()));
        CHECK_AT_ONCE(all.scan(one, other, std::plus<>()));
        CHECK_AT_ONCE(all.split(0));
        CHECK_AT_ONCE(none.barrier());
        const group rest = co_await all.shrink();
        CHECK_AT_ONCE(all.barrier());
        CHECK_AT_ONCE(all.shrink());
        CHECK_AT_ONCE(all.split(0));
        co_await alone.leave();
        CHECK_AT_ONCE(alone.leave());
        co_await here.close();
        CHECK_AT_ONCE(join_job(here, job_options{.alone = true}));
    });
}

TEST_CASE("a gate that has nothing to do or has ended lets others have their turn") {
    run_limited([]() -> task<> {
        shop there;
        node<shm> here(1);
        node_calls<shm> client(here);
        std::optional<gate<node_calls<shm>>> through(std::in_place, client);
        auto pass = through->pass();
        std::uint64_t value = 0;
        CHECK_AT_ONCE(pass.flushed());
        CHECK_AT_ONCE(pass.put(77, bytes_of(value)));
        through.reset();
        CHECK_AT_ONCE(pass.flushed());
        CHECK_AT_ONCE(pass.put(77, bytes_of(value)));
        CHECK_AT_ONCE(pass.call(77, kv::add, 1U, std::uint64_t{2}));
    });
}

}  // namespace test_faults_at_once
