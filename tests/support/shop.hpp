// A service to call, for tests of service/.
#pragma once

#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/service/method.hpp>
#include <rdmacoro/service/service.hpp>
#include <rdmacoro/service/stream.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
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
            if (how == 12) throw error(errc::peer_lost, "the peer of a handler");
            if (how == 13) throw error(errc::closed, "the peer of a handler");
            if (how == 14) throw std::system_error(std::error_code(), "no code");
            if (how == 15) throw std::system_error(std::error_code(1000, call_category()), "no such code");
            throw 7;
        });
    }
};

}  // namespace rdmacoro::test
