#include <rdmacoro/protocol/message_pool.hpp>

#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/sim.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/run.hpp"

#include <chrono>
#include <cstring>
#include <random>
#include <vector>

namespace test_protocol_short_pool {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr int links = 10;
constexpr std::uint64_t messages = 250;  // each way of each link
constexpr std::size_t longest = 1400000;

std::size_t some_length(std::mt19937& random) {
    if (random() % 10 != 0) return 8 + random() % 5000;
    return random() % 3 != 0 ? 60000 : 8 + random() % longest;
}

task<> write(endpoint<sim>& to, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> memory(longest + 8);
    for (std::uint64_t n = 0; n < messages; ++n) {
        std::memcpy(memory.data(), &n, sizeof n);
        co_await to.send(std::span<const std::byte>(memory).first(some_length(random)), 1);
        if (random() % 20 == 0) co_await sleep_for(std::chrono::milliseconds(random() % 300));
    }
}

task<> read(endpoint<sim>& from, unsigned seed, std::uint64_t& received) {
    std::mt19937 random(seed);
    std::vector<std::byte> memory(longest + 8);
    for (std::uint64_t n = 0; n < messages; ++n) {
        if (random() % 30 == 0) co_await sleep_for(std::chrono::milliseconds(random() % 400));
        co_await from.recv(memory, 1);
        std::uint64_t number = messages;
        std::memcpy(&number, memory.data(), sizeof number);
        if (number != n) co_return;
        ++received;
    }
}

/// Messages that were received in their order until all were, or a minute of virtual time has passed.
std::uint64_t exchanged(std::size_t total, unsigned seed) {
    sim_world world;
    scheduler on(impatient{}, world.time());
    return on.run(
        [](scheduler& owner, sim_world& within, std::size_t bytes, unsigned first) -> task<std::uint64_t> {
            sim_options options;
            options.world = &within;
            sim::domain here(owner, options);
            sim::domain there(owner, options);
            message_pool near_pool(bytes);
            message_pool far_pool(bytes);
            mailbox_options near_options;
            near_options.pool = &near_pool;
            mailbox_options far_options;
            far_options.pool = &far_pool;
            auto listening = co_await listen<sim>(there, "there", far_options);
            std::vector<endpoint<sim>> near;
            std::vector<endpoint<sim>> far;
            for (int n = 0; n < links; ++n) {
                auto accepting = start(listening.accept());
                near.push_back(co_await connect<sim>(here, "there", near_options));
                far.push_back(co_await accepting);
            }
            std::uint64_t received = 0;
            task_group all;
            for (int n = 0; n < links; ++n) {
                const unsigned own = first * 1000 + static_cast<unsigned>(n) * 4;
                all.spawn(write, std::ref(near[static_cast<std::size_t>(n)]), own);
                all.spawn(write, std::ref(far[static_cast<std::size_t>(n)]), own + 1);
                all.spawn(read, std::ref(near[static_cast<std::size_t>(n)]), own + 2, std::ref(received));
                all.spawn(read, std::ref(far[static_cast<std::size_t>(n)]), own + 3, std::ref(received));
            }
            static_cast<void>(co_await as_result(timeout(all.join(), 60s)));
            co_return received;
        }(on, world, total, seed));
}

}  // namespace

TEST_CASE("links that share a pool too small for all of them go on, in order") {
    for (const std::size_t total : {200_KiB, 1_MiB, 3_MiB}) {
        for (const unsigned seed : {1u, 2u, 3u}) {
            CAPTURE(total, seed);
            CHECK(exchanged(total, seed) == 2 * links * messages);
        }
    }
}

}  // namespace test_protocol_short_pool
