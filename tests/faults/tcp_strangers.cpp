#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/tcp.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <list>
#include <string>
#include <utility>
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
/// Of a listener whose process may have four times as many descriptors.
constexpr std::size_t most_places = 1024;

/// While it lives, the process may have fewer descriptors than it can.
class fewer_descriptors {
public:
    explicit fewer_descriptors(rlim_t count) {
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
        rlimit few = before_;
        few.rlim_cur = count;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    }
    fewer_descriptors(const fewer_descriptors&) = delete;
    fewer_descriptors& operator=(const fewer_descriptors&) = delete;
    ~fewer_descriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
    rlimit before_{};
};

/// A listener in a process that has descriptors for so many places.
task<listener<tcp>> listen_with(std::size_t places, tcp::domain& domain, const mailbox_options& options) {
    const fewer_descriptors few(4 * places);
    co_return co_await listen<tcp>(domain, "0.0.0.0:0", options);
}

/// The same listener as a client of this host names it.
std::string here_at(const listener<tcp>& listening) {
    const std::string address = listening.address();
    return "127.0.0.1" + address.substr(address.rfind(':'));
}

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
constexpr auto return_stay_limit = 60s;

/// What a flood from one host did to others: one that greeted before it and says no more yet, and one that connects after it.
struct flood_result {
    duration took{};             // until the one that came after it was served
    bool slow_gone = true;       // the one that came before it
    std::ptrdiff_t dropped = 0;  // of the flood
};

task<> ask_beside_a_flood(std::size_t places, flood_result& seen) {
    mailbox_options options;
    options.handshake_limit = long_stay_limit;
    tcp::domain domain(*scheduler::current());
    auto listening = co_await listen_with(places, domain, options);
    const std::string address = here_at(listening);
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
    while ((seen.dropped = dropped()) == 0 && scheduler::current()->now() - begin < long_stay_limit / 20)
        co_await yield();
    co_await beside.join();
}

/// Strangers of one host that connect, greet, and do so again when they are dropped: more slowly than that, else the system's queue
/// would stay full.
class greeting_flood {
public:
    greeting_flood(std::string address, std::size_t count) : address_(std::move(address)) {
        while (all_.size() < count) all_.emplace_back(connected());
    }

    void go_on() {
        for (one& each : all_) {
            if (each.sent == detail::tcp_greeting::wire_bytes) continue;
            detail::tcp_greeting greeting;
            greeting.nonce = 4711;
            each.socket.try_send(greeting.store(), each.sent);
        }
        if (++turns_ % 16 != 0) return;
        const auto gone =
            std::find_if(all_.begin(), all_.end(), [](const one& each) { return each.socket.ended(); });
        if (gone == all_.end()) return;
        ++dropped_;
        all_.erase(gone);
        all_.emplace_back(connected());
    }
    [[nodiscard]] unsigned dropped() const noexcept { return dropped_; }

private:
    struct one {
        explicit one(raw_peer fresh) : socket(std::move(fresh)) {}
        raw_peer socket;
        std::size_t sent = 0;
    };
    [[nodiscard]] raw_peer connected() const { return raw_peer::towards(address_, "127.0.0.2"); }

    std::string address_;
    std::list<one> all_;
    unsigned turns_ = 0;
    unsigned dropped_ = 0;
};

/// The time until a client of another host was served.
task<> ask_beside_those_that_return(std::size_t places, duration& took) {
    mailbox_options options;
    options.handshake_limit = return_stay_limit;
    tcp_options few;
    few.most_waiting = 4;
    tcp::domain domain(*scheduler::current(), few);
    auto listening = co_await listen_with(places, domain, options);
    const time_point begin = scheduler::current()->now();
    greeting_flood flood(here_at(listening), places + 20);
    const auto late = [&] { return scheduler::current()->now() - begin > return_stay_limit / 10; };
    while (flood.dropped() == 0 && !late()) {
        flood.go_on();
        co_await yield();
    }
    bool served = false;
    task_group beside;
    beside.spawn(serve, std::ref(listening));
    beside.spawn(
        [](std::string address, const mailbox_options& how, bool& done) -> task<> {
            endpoint<tcp> here = co_await connect<tcp>(address, how);
            std::vector<std::byte> memory(8);
            co_await here.send(memory);
            static_cast<void>(co_await here.recv(memory));
            done = true;
        },
        here_at(listening), std::cref(options), std::ref(served));
    while (!served && !late()) {
        flood.go_on();
        co_await yield();
    }
    took = scheduler::current()->now() - begin;
    if (!served) beside.request_stop();
    static_cast<void>(co_await as_result(beside.join()));
}

bool allow_descriptors() {
    rlimit descriptors{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    descriptors.rlim_cur = descriptors.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
    return descriptors.rlim_max >= 4 * most_places;
}

}  // namespace

TEST_CASE("a flood of strangers that greet and say no more takes the places of its own host alone, and one "
          "at once") {
    if (!allow_descriptors()) SKIP_TEST("needs more descriptors");
    scheduler on{idle::yield{}};
    flood_result seen;
    on.run(ask_beside_a_flood(most_places, seen));
    CHECK(seen.took < long_stay_limit / 10);  // for so long, one of another host keeps its place
    CHECK_FALSE(seen.slow_gone);
    CHECK(seen.dropped == 1);
}

TEST_CASE("strangers that have greeted give way before they have taken the descriptors of the process") {
    scheduler on{idle::yield{}};
    flood_result seen;
    on.run(ask_beside_a_flood(64, seen));
    CHECK(seen.took < long_stay_limit / 10);
    CHECK_FALSE(seen.slow_gone);
    CHECK(seen.dropped == 1);
}

TEST_CASE("strangers of one host that greet, say no more and connect again keep no client of another host "
          "out") {
    scheduler on{impatient{}};
    duration took{};
    on.run(ask_beside_those_that_return(16, took));
    CHECK(took < return_stay_limit / 10);  // for so long each keeps its place
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
