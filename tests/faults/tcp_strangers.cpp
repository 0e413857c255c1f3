#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/tcp.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <chrono>
#include <vector>

#include <sys/resource.h>

namespace test_faults_tcp_strangers {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr auto stay_limit = 15s;
/// More than a listener has places for.
constexpr unsigned crowd = 1100;

/// Connects, greets as the transport wants it, and says nothing to the listener of endpoints.
task<> greet(const std::string& address, std::vector<raw_peer>& strangers) {
    detail::tcp_greeting greeting;
    while (strangers.size() < crowd) {
        raw_peer& fresh = strangers.emplace_back(raw_peer::towards(address));
        greeting.nonce = strangers.size();
        const auto bytes = greeting.store();
        std::size_t sent = 0;
        while (sent != bytes.size()) {
            fresh.try_send(bytes, sent);
            co_await yield();
        }
        // Once the listener takes no more, the system's queue does until it is full.
        if (strangers.size() > 1024 + 64) break;
    }
}

task<> serve(listener<tcp>& listening) {
    endpoint<tcp> one = co_await listening.accept();
    std::vector<std::byte> memory(8);
    const auto got = co_await one.recv(memory);
    co_await one.send(std::span(memory).first(got.bytes));
}

task<> ask_among_strangers(duration& took, std::uint64_t& refused) {
    mailbox_options options;
    options.handshake_limit = stay_limit;
    auto listening = co_await listen<tcp>("127.0.0.1:0", options);
    std::vector<raw_peer> strangers;
    co_await greet(listening.address(), strangers);
    const time_point begin = scheduler::current()->now();
    task_group beside;
    beside.spawn(serve, std::ref(listening));
    endpoint<tcp> here = co_await connect<tcp>(listening.address(), options);
    std::vector<std::byte> memory(8);
    co_await here.send(memory);
    static_cast<void>(co_await here.recv(memory));
    took = scheduler::current()->now() - begin;
    refused = listening.refused();
    co_await beside.join();
}

}  // namespace

TEST_CASE("a thousand strangers that greet and say no more keep no client out for as long as they may stay") {
    rlimit descriptors{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    if (descriptors.rlim_max < 2 * crowd + 100) SKIP_TEST("needs more descriptors");
    descriptors.rlim_cur = descriptors.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    scheduler on{idle::yield{}};
    duration took{};
    std::uint64_t refused = 0;
    on.run(ask_among_strangers(took, refused));
    CHECK(took < stay_limit * 2 / 3);
    CHECK(refused > 0);  // else there was room for all
}

}  // namespace test_faults_tcp_strangers
