#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/tcp.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <algorithm>
#include <chrono>
#include <string>
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
/// Of a listener.
constexpr std::size_t places = 1024;

/// Connects, greets as the transport wants it, and says nothing to the listener of endpoints.
task<> greet_once(std::vector<raw_peer>& strangers, std::string address, std::string from) {
    raw_peer& fresh = strangers.emplace_back(raw_peer::towards(address, from));
    detail::tcp_greeting greeting;
    greeting.nonce = strangers.size();
    const auto bytes = greeting.store();
    std::size_t sent = 0;
    while (sent != bytes.size()) {
        fresh.try_send(bytes, sent);
        co_await yield();
    }
}

task<> greet(const std::string& address, std::vector<raw_peer>& strangers) {
    while (strangers.size() < crowd) {
        co_await greet_once(strangers, address, "127.0.0.1");
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

constexpr auto long_stay_limit = 200s;

/// What a flood from one host did to others: one that greeted before it and says no more yet, and one that connects after it.
struct flood_result {
    duration took{};             // until the one that came after it was served
    bool slow_gone = true;       // the one that came before it
    std::ptrdiff_t dropped = 0;  // of the flood
};

task<> ask_beside_a_flood(flood_result& seen) {
    mailbox_options options;
    options.handshake_limit = long_stay_limit;
    auto listening = co_await listen<tcp>("0.0.0.0:0", options);
    const std::string address = "127.0.0.1" + listening.address().substr(listening.address().rfind(':'));
    std::vector<raw_peer> strangers;
    strangers.reserve(places);
    co_await greet_once(strangers, address, "127.0.0.3");
    while (strangers.size() < places) co_await greet_once(strangers, address, "127.0.0.2");
    const time_point begin = scheduler::current()->now();
    task_group beside;
    beside.spawn(serve, std::ref(listening));
    endpoint<tcp> here = co_await connect<tcp>(address, options);
    std::vector<std::byte> memory(8);
    co_await here.send(memory);
    static_cast<void>(co_await here.recv(memory));
    seen.took = scheduler::current()->now() - begin;
    seen.slow_gone = strangers.front().ended();
    const auto dropped = [&] {
        return std::count_if(strangers.begin() + 1, strangers.end(),
                             [](const raw_peer& one) { return one.ended(); });
    };
    while ((seen.dropped = dropped()) == 0) co_await yield();
    co_await beside.join();
}

bool allow_descriptors() {
    rlimit descriptors{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    descriptors.rlim_cur = descriptors.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    return descriptors.rlim_max >= 2 * crowd + 100;
}

}  // namespace

TEST_CASE("a flood of strangers that greet and say no more takes the places of its own host alone, and one "
          "at once") {
    if (!allow_descriptors()) SKIP_TEST("needs more descriptors");
    scheduler on{idle::yield{}};
    flood_result seen;
    on.run(ask_beside_a_flood(seen));
    CHECK(seen.took < long_stay_limit / 10);  // for so long, one of another host keeps its place
    CHECK_FALSE(seen.slow_gone);
    CHECK(seen.dropped == 1);
}

TEST_CASE("a thousand strangers that greet and say no more keep no client out for as long as they may stay") {
    if (!allow_descriptors()) SKIP_TEST("needs more descriptors");
    scheduler on{idle::yield{}};
    duration took{};
    std::uint64_t refused = 0;
    on.run(ask_among_strangers(took, refused));
    CHECK(took < stay_limit * 2 / 3);
    CHECK(refused > 0);  // else there was room for all
}

}  // namespace test_faults_tcp_strangers
