#include <rdmacoro/protocol/message_pool.hpp>

#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/messaging/mailbox.hpp>
#include <rdmacoro/protocol/protocols.hpp>

#include "conformance/transports.hpp"

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/pattern.hpp"
#include "support/protocol_stranger.hpp"
#include "support/run.hpp"

#include <chrono>
#include <cstddef>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace test_protocol_message_pool {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

#if RDMACORO_WITH_TCP
using transports = std::tuple<shm_as_it_comes, tcp_as_it_comes, sim_plain>;
using real_transports = std::tuple<shm_as_it_comes, tcp_as_it_comes>;
#else
using real_transports = std::tuple<shm_as_it_comes>;
using transports = std::tuple<shm_as_it_comes, sim_plain>;
#endif

constexpr std::size_t least = detail::least_grant * detail::credit_bytes;

/// Private pages of this process, in bytes.
std::size_t private_bytes() {
    std::ifstream status("/proc/self/status");
    std::size_t kib = 0;
    for (std::string word; status >> word;) {
        if (word == "RssAnon:" && status >> kib) break;
    }
    return kib * 1024;
}

template <class T>
using strangers = std::vector<std::unique_ptr<protocol_stranger<T>>>;

/// `count` of them connect, and fill what they get.
template <class T>
task<> crowd_in(typename T::domain& from, listener<T>& listening, std::size_t count, strangers<T>& crowd,
                std::vector<endpoint<T>>& ends) {
    task_group filling;
    for (std::size_t n = 0; n < count; ++n) {
        auto accepting = start(listening.accept());
        auto made = co_await from.connect(listening.address());
        crowd.push_back(
            std::make_unique<protocol_stranger<T>>(std::move(made), default_protocols<T>::fingerprint));
        filling.spawn([](protocol_stranger<T>& one) -> task<> { co_await one.fill(4000); },
                      std::ref(*crowd.back()));
        ends.push_back(co_await accepting);
    }
    co_await filling.join();
}

template <class Endpoint>
task<> echo(Endpoint& end, std::size_t messages, std::size_t bytes) {
    std::vector<std::byte> memory(bytes);
    for (std::size_t n = 0; n < messages; ++n) {
        const auto got = co_await end.recv(memory, 7);
        co_await end.send(std::span(memory).first(got.bytes), 8);
    }
}

/// Round trips of an honest peer; `outcome` is whether all were right.
template <class Endpoint>
task<> is_served(Endpoint& client, Endpoint& server, std::size_t messages, std::size_t bytes, bool& right) {
    task_group serving;
    serving.spawn(echo<Endpoint>, std::ref(server), messages, bytes);
    const auto data = pattern(bytes, 3);
    std::vector<std::byte> into(bytes);
    right = true;
    for (std::size_t n = 0; n < messages; ++n) {
        co_await client.send(data, 7);
        const auto got = co_await client.recv(into, 8);
        right = right && got.bytes == bytes && into == data;
    }
    co_await serving.join();
}

/// What the receiver stores of the crowd's messages of `bytes`, in bytes; each of them is to be connected still.
template <class T>
std::size_t stored_of(const strangers<T>& crowd, std::size_t bytes) {
    std::uint64_t sent = 0;
    std::size_t down = 0;
    for (const auto& one : crowd) {
        sent += one->sent();
        down += one->reason() ? 1 : 0;
    }
    CHECK(down == 0);
    return static_cast<std::size_t>(sent) * detail::message_cost(bytes) * detail::credit_bytes;
}

/// Runs `program(here, there)`, two domains of one scheduler.
template <class Variant, class Program>
void on_two(Program program) {
    scheduler on{impatient{}};
    auto here = Variant::open(on);
    auto there = Variant::open(on);
    on.run([](auto& one, auto& other, Program what) -> task<> {
        co_await timeout(what(one, other), 60s);
    }(*here, *there, program));
}

}  // namespace

TEST_CASE("copies of a pool are one pool, which may end before what was made with it") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        auto pool = std::make_unique<message_pool>(1_MiB);
        const message_pool copy(*pool);
        message_pool other(2_MiB);
        other = copy;
        CHECK(other.total() == 1_MiB);
        mailbox<sim> box(on, {.pool = pool.get()});
        pool.reset();
        CHECK(&other.state() == &copy.state());
        co_return;
    }(world.on));
}

TEST_CASE("a pool is of one scheduler") {
    virtual_time world;
    virtual_time another;
    message_pool pool(1_MiB);
    const mailbox<sim> box(world.on, {.pool = &pool});
    errc why = errc::ok;
    try {
        const mailbox<sim> wrong(another.on, {.pool = &pool});
    } catch (const error& refused) {
        if (refused.code() == errc::invalid_argument) why = errc::invalid_argument;
    }
    CHECK(why == errc::invalid_argument);
}

TEST_CASE("a pool that the program did not make has room for sixteen of its links' budgets") {
    virtual_time world;
    const mailbox<sim> usual(world.on);
    message_pool pool = world.on.service<detail::scheduler_pool>().pool;
    CHECK(pool.total() == message_pool::usual_bytes);
    const mailbox<sim> rich(world.on, {.unexpected_bytes = 64_MiB});
    CHECK(pool.total() == 1024_MiB);
    message_pool own(1_MiB);
    const mailbox<sim> strict(world.on, {.unexpected_bytes = 64_MiB, .pool = &own});
    CHECK(own.total() == 1_MiB);
}

TEMPLATE_LIST_TEST_CASE(
    "fifty strangers who fill what they are granted take a listener's total, and an honest peer is served",
    "", transports) {
    using T = typename TestType::transport_type;
    on_two<TestType>([](auto& here, auto& there) -> task<> {
        constexpr std::size_t count = 50;
        constexpr std::size_t total = std::size_t{8} << 20;
        message_pool pool(total);
        mailbox_options options;
        options.pool = &pool;
        auto listening = co_await listen<T>(there, TestType::address(), options);
        strangers<T> crowd;
        std::vector<endpoint<T>> ends;
        const std::size_t before = private_bytes();
        co_await crowd_in<T>(here, listening, count, crowd, ends);
        const std::size_t after = private_bytes();

        CHECK(pool.footprint() == stored_of<T>(crowd, 4000));
        CHECK(pool.footprint() <= total + count * least);
        CHECK(pool.footprint() > total * 3 / 4);  // they did fill it
        CHECK(pool.granted() <= total);
        // What else a link takes: its own memory, and what the stranger's side has posted.
        if (counts_allocations) CHECK(after - before <= total + count * (least + 64 * 1024));

        auto accepting = start(listening.accept());
        auto client = co_await connect<T>(here, listening.address());
        auto server = co_await accepting;
        for (const std::size_t bytes :
             {std::size_t{8}, std::size_t{4000}, std::size_t{100_KiB}, std::size_t{3_MiB}}) {
            CAPTURE(bytes);
            bool right = false;
            co_await is_served(client, server, 20, bytes, right);
            CHECK(right);
        }
        // Messages whose receive comes last.
        const auto data = pattern(3_MiB, 5);
        auto long_one = start(client.send(data, 1));
        std::uint64_t value = 17;
        auto short_one = start(client.send(bytes_of(value), 2));
        std::uint64_t got = 0;
        co_await server.recv(room_for(got), 2);
        CHECK(got == 17);
        std::vector<std::byte> into(3_MiB);
        co_await server.recv(into, 1);
        CHECK(into == data);
        co_await long_one;
        co_await short_one;

        // What they hold is free when they are gone.
        const std::size_t held = pool.granted();
        ends.clear();
        CHECK(pool.granted() < held / 4);
        bool right = false;
        co_await is_served(client, server, 20, 1_MiB, right);
        CHECK(right);
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a message whose receiver only probes gets the memory that idle links of the pool do not use", "",
    real_transports) {
    using T = typename TestType::transport_type;
    on_two<TestType>([](auto& here, auto& there) -> task<> {
        constexpr std::size_t count = 64;
        message_pool pool(64_MiB);
        mailbox_options options;
        options.pool = &pool;
        auto listening = co_await listen<T>(there, TestType::address(), options);
        std::vector<endpoint<T>> clients;
        std::vector<endpoint<T>> servers;
        for (std::size_t n = 0; n < count; ++n) {
            auto accepting = start(listening.accept());
            clients.push_back(co_await connect<T>(here, listening.address()));
            servers.push_back(co_await accepting);
        }
        const auto data = pattern(1_MiB, 3);
        std::vector<std::byte> into(data.size());
        std::size_t waits = 0;
        for (std::size_t n = 0; n < count; ++n) {
            CAPTURE(n);
            auto probing = start(servers[n].probe());
            auto sending = start(clients[n].send(data, n));
            const received found = co_await probing;
            CHECK(found.bytes == data.size());
            co_await servers[n].recv(into, n);
            CHECK(into == data);
            co_await sending;
            waits += clients[n].counts().credit_waits;
        }
        CHECK(waits > 0);  // the pool was short, and it was given back
        CHECK(pool.granted() <= pool.total());
    });
}

TEMPLATE_LIST_TEST_CASE(
    "fifty strangers take 64 MiB of a listener that was given no pool, and 16 KiB each, and an "
    "honest peer is served",
    "", transports) {
    using T = typename TestType::transport_type;
    on_two<TestType>([](auto& here, auto& there) -> task<> {
        constexpr std::size_t count = 50;
        constexpr std::size_t total = message_pool::usual_bytes;
        static_assert(total == 64_MiB && least == 16_KiB);
        static_assert(count * mailbox_options{}.unexpected_bytes > 2 * total);  // what they might fill
        auto listening = co_await listen<T>(there, TestType::address());
        strangers<T> crowd;
        std::vector<endpoint<T>> ends;
        const std::size_t before = private_bytes();
        co_await crowd_in<T>(here, listening, count, crowd, ends);
        const std::size_t after = private_bytes();
        const std::size_t stored = stored_of<T>(crowd, 4000);
        CHECK(stored <= total + count * least);
        CHECK(stored > total * 3 / 4);  // they did fill it
        if (counts_allocations) CHECK(after - before <= total + count * (least + 64 * 1024));

        auto accepting = start(listening.accept());
        auto client = co_await connect<T>(here, listening.address());
        auto server = co_await accepting;
        for (const std::size_t bytes : {std::size_t{8}, std::size_t{4000}, std::size_t{3_MiB}}) {
            CAPTURE(bytes);
            bool right = false;
            co_await is_served(client, server, 20, bytes, right);
            CHECK(right);
        }
    });
}

}  // namespace test_protocol_message_pool
