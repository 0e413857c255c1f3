// Both ends of a connection with calls over it, and a service to call, for tests of service/.
#pragma once

#include <rdmacoro/service/calls.hpp>

#include "conformance/transports.hpp"
#include "support/catch.hpp"

#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro::test {

using namespace std::chrono_literals;

struct row {
    std::uint32_t key = 0;
    float value = 0;
};

struct kv {
    static constexpr method<"kv.get", std::string(std::string)> get{};
    static constexpr method<"kv.add", std::uint64_t(std::uint64_t, std::uint64_t)> add{};
    static constexpr method<"kv.add_now", std::uint64_t(std::uint64_t, std::uint64_t)> add_now{};
    static constexpr method<"kv.fill", std::vector<float>(std::uint32_t)> fill{};
    static constexpr method<"kv.sum", double(std::vector<float>)> sum{};
    static constexpr method<"kv.scan", stream<row>(std::uint32_t)> scan{};
    static constexpr method<"kv.note", one_way(std::string)> note{};
    static constexpr method<"kv.wait", void()> wait{};
    static constexpr method<"kv.fail", void(int)> fail{};
};

/// Both ends of a connection, on one scheduler.
template <class T>
struct connected_pair {
    endpoint<T> a;
    endpoint<T> b;
};
template <class T>
task<connected_pair<T>> connected_ends(typename T::domain& here, std::string address) {
    auto listening = co_await listen<T>(here, address);
    auto accepting = start(listening.accept());
    auto a = co_await connect<T>(here, listening.address());
    auto b = co_await accepting;
    co_return connected_pair<T>{std::move(a), std::move(b)};
}

struct shop {
    service store;
    std::map<std::string, std::string> values{{"colour", "red"}};
    std::vector<std::string> notes;
    event noted;
    std::size_t stopped = 0;
    std::size_t waiting = 0;

    shop() {
        store.on(kv::get, [this](call_context&, std::string key) -> task<std::string> {
            if (!values.contains(key)) throw std::out_of_range("there is no " + key);
            co_return values.at(key);
        });
        store.on(kv::add, [](call_context&, std::uint64_t a, std::uint64_t b) -> task<std::uint64_t> {
            co_return a + b;
        });
        store.on(kv::add_now, [](call_context&, std::uint64_t a, std::uint64_t b) { return a + b; });
        store.on(kv::fill, [](call_context&, std::uint32_t n) -> task<std::vector<float>> {
            std::vector<float> all(n);
            std::iota(all.begin(), all.end(), 0.0F);
            co_return all;
        });
        store.on(kv::sum, [](call_context&, std::vector<float> all) -> task<double> {
            co_return std::accumulate(all.begin(), all.end(), 0.0);
        });
        store.on(kv::scan, [this](call_context&, std::uint32_t n, stream_writer<row>& out) -> task<> {
            try {
                for (std::uint32_t i = 0; i < n; ++i) co_await out.write(i, 0.5F);
            } catch (const error& ended) {
                if (ended.code() == errc::canceled) ++stopped;
                throw;
            }
            if (n == 7) throw std::runtime_error("seven");
        });
        store.on(kv::note, [this](call_context&, std::string text) -> task<> {
            notes.push_back(std::move(text));
            noted.set();
            co_return;
        });
        store.on(kv::wait, [this](call_context&) -> task<> {
            ++waiting;
            noted.set();
            try {
                co_await sleep_for(1h);
            } catch (const error& ended) {
                if (ended.code() == errc::canceled) ++stopped;
                --waiting;
                throw;
            }
        });
        store.on(kv::fail, [](call_context&, int how) -> task<> {
            if (how == 0) throw error(errc::access_denied, "not you");
            if (how == 1)
                throw std::system_error(std::make_error_code(std::errc::no_space_on_device), "the disk");
            throw 7;
        });
    }
};

/// Runs `body(link)` or `body(link, domain)` with both ends of a connection, `link.a` and `link.b`; then the link ends.
template <class Variant, class Body>
void run_ends(Body body) {
    using T = typename Variant::transport_type;
    scheduler on;
    const auto domain = Variant::open(on);
    on.run([](typename T::domain& here, std::string address, Body run) -> task<> {
        connected_pair<T> link = co_await connected_ends<T>(here, address);
        if constexpr (requires { run(link, here); }) {
            co_await timeout(run(link, here), 60s);
        } else {
            co_await timeout(run(link), 60s);
        }
        link.a.abort();
    }(*domain, Variant::address(), std::move(body)));
}
/// Runs `body(client, server, shop)` or `body(client, server, shop, domain)` with calls at both ends.
template <class Variant, class Body>
void run_pair(Body body) {
    using T = typename Variant::transport_type;
    run_ends<Variant>([&body](connected_pair<T>& link, typename T::domain& here) -> task<> {
        shop there;
        calls<T> server(link.b, there.store);
        calls<T> client(link.a);
        if constexpr (requires { body(client, server, there, here); }) {
            co_await body(client, server, there, here);
        } else {
            co_await body(client, server, there);
        }
    });
}

/// How many messages wait at that end for good: those that are on their way to a receive get a second.
template <class Calls>
task<std::size_t> left_over(Calls& of) {
    for (int n = 0; n < 100; ++n) {
        const auto found = co_await as_result(timeout(of.over().probe(any_tag), 10ms));
        if (!found) break;
        co_await sleep_for(10ms);
    }
    co_return of.over().discard(any_tag);
}

}  // namespace rdmacoro::test
