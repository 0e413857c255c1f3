// The tests of services over one transport. The listening side serves calls and streams; both serve casts, as these can go there and
// back.
#pragma once

#include "measure.hpp"
#include "services.hpp"
#include "watch.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/service/calls.hpp>

#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace pingpong {

using bytes_view = std::span<const std::byte>;

/// Values of 8 bytes are numbers, which programs call with most; others are rows of bytes, which are not copied.
struct measured_service {
    static constexpr rdmacoro::method<"pingpong.call8", std::uint64_t(std::uint64_t)> call8{};
    static constexpr rdmacoro::method<"pingpong.call", bytes_view(std::uint64_t, bytes_view)> call{};
    static constexpr rdmacoro::method<"pingpong.cast8", rdmacoro::one_way(std::uint64_t)> cast8{};
    static constexpr rdmacoro::method<"pingpong.cast", rdmacoro::one_way(bytes_view)> cast{};
    static constexpr rdmacoro::method<"pingpong.stream8", rdmacoro::stream<std::uint64_t>()> stream8{};
    static constexpr rdmacoro::method<"pingpong.stream", rdmacoro::stream<std::vector<std::byte>>()> stream{};
};

[[nodiscard]] inline std::uint64_t number_of(bytes_view eight) noexcept {
    std::uint64_t number = 0;
    std::memcpy(&number, eight.data(), sizeof number);
    return number;
}
[[nodiscard]] inline bytes_view bytes_of(const std::uint64_t& number) noexcept {
    return std::as_bytes(std::span(&number, 1));
}

template <rdmacoro::transport T>
class services_over final : public service_side {
    using measured = measured_service;
    using call_context = rdmacoro::call_context;

public:
    explicit services_over(rdmacoro::endpoint<T>& over) : peer_(over), calls_(over) {
        offered_.on(measured::call8, [this](call_context&, std::uint64_t number) -> std::uint64_t {
            const std::uint64_t index = count_arrived();
            take(bytes_of(number), index, direction::to_listening);
            return number_of(value(0, index, direction::from_listening));
        });
        offered_.on(measured::call,
                    [this](call_context&, std::uint64_t index, bytes_view bytes) -> bytes_view {
                        count_arrived();
                        take(bytes, index, direction::to_listening);
                        return value(static_cast<std::size_t>(index % x_->plan.window), index,
                                     direction::from_listening);
                    });
        offered_.on(measured::cast8, [this](call_context&, std::uint64_t number) -> rdmacoro::task<> {
            co_await take_cast(bytes_of(number));  // which lives here
        });
        offered_.on(measured::cast,
                    [this](call_context&, bytes_view bytes) -> rdmacoro::task<> { return take_cast(bytes); });
        offered_.on(measured::stream8,
                    [this](call_context&, rdmacoro::stream_writer<std::uint64_t>& out) -> rdmacoro::task<> {
                        for (std::uint64_t i = 0; i < x_->plan.count; ++i) {
                            const std::uint64_t number = number_of(value(0, i, direction::from_listening));
                            co_await out.write(number);
                            watch::moved();
                        }
                    });
        offered_.on(
            measured::stream,
            [this](call_context&, rdmacoro::stream_writer<std::vector<std::byte>>& out) -> rdmacoro::task<> {
                std::vector<std::byte> item(static_cast<std::size_t>(x_->plan.bytes));
                for (std::uint64_t i = 0; i < x_->plan.count; ++i) {
                    if (x_->plan.verify != 0) x_->fill(item, i, direction::from_listening);
                    co_await out.write(item);
                    watch::moved();
                }
            });
        calls_.serve(offered_);
    }

    void prepare(exchange& x, bool connecting) override {
        x_ = &x;
        connecting_ = connecting;
        arrived_ = 0;
        begun_ = 0;
        ended_ = 0;
        came_.reset();
    }

    rdmacoro::task<tick_count> ask() override {
        const tick_count begin = now_ticks();
        last_ = begin;
        if (x_->plan.test == test_kind::stream) {
            if (numbers()) {
                auto items = co_await calls_.open(measured::stream8);
                co_await read_all(items);
            } else {
                auto items = co_await calls_.open(measured::stream);
                co_await read_all(items);
            }
        } else if (there_and_back()) {
            co_await cast_there_and_back();
        } else {
            rdmacoro::task_group some(rdmacoro::on_child_error::stop_others);
            const bool calling = x_->plan.test == test_kind::call;
            for (std::size_t k = 0; k < x_->plan.window; ++k) {
                if (calling) {
                    some.spawn([this, k] { return call_in_a_row(k); });
                } else {
                    some.spawn([this, k] { return cast_in_a_row(k); });
                }
            }
            co_await some.join();
            if (!calling) co_await receive_ack(peer_);  // all have arrived
        }
        const tick_count took = now_ticks() - begin;
        co_await send_ack(peer_);
        co_return took;
    }

    /// The handlers do the work.
    rdmacoro::task<> answer() override { co_await receive_ack(peer_); }

private:
    [[nodiscard]] bool numbers() const noexcept { return x_->plan.bytes == sizeof(std::uint64_t); }
    [[nodiscard]] bool there_and_back() const noexcept {
        return goes_there_and_back(x_->plan.test, x_->plan.window);
    }
    std::uint64_t count_arrived() noexcept {
        watch::moved();
        return arrived_++;
    }

    /// The value of message `index`.
    bytes_view value(std::size_t slot, std::uint64_t index, direction where) {
        const std::span<std::byte> here = x_->out.slot(slot);
        if (x_->plan.verify != 0) x_->fill(here, index, where);
        return here;
    }
    /// Takes message `index`. A value of another length is wrong at its first byte.
    void take(bytes_view came, std::uint64_t index, direction where) {
        if (came.size() != x_->plan.bytes) [[unlikely]] {
            if (x_->found.wrong++ == 0) x_->found.message = index;
        } else if (x_->plan.verify != 0) {
            x_->check(came, index, where);
        }
    }
    void put_sample(tick_count since) { x_->samples.put(now_ticks() - since); }

    /// Call number k, k + window, and so on.
    rdmacoro::task<> call_in_a_row(std::size_t k) {
        const std::uint64_t windows = x_->plan.windows();
        const std::span<std::byte> in = x_->in.slot(k);
        for (std::uint64_t w = 0; w < windows; ++w) {
            if (numbers()) {
                const std::uint64_t index = begun_++;
                const std::uint64_t number = number_of(value(k, index, direction::to_listening));
                const tick_count since = now_ticks();
                const std::uint64_t got = co_await calls_.call(measured::call8, number);
                put_sample(since);
                take(bytes_of(got), index, direction::from_listening);
            } else {
                const std::uint64_t index = w * x_->plan.window + k;
                const bytes_view out = value(k, index, direction::to_listening);
                const tick_count since = now_ticks();
                const std::size_t got = co_await calls_.call_into(in, measured::call, index, out);
                put_sample(since);
                take(in.first(got), index, direction::from_listening);
            }
            watch::moved();
        }
    }

    rdmacoro::task<> cast_one(std::size_t slot, std::uint64_t index, direction where) {
        const bytes_view out = value(slot, index, where);
        if (numbers()) {
            const std::uint64_t number = number_of(out);
            co_await calls_.cast(measured::cast8, number);
        } else {
            co_await calls_.cast(measured::cast, out);
        }
    }
    rdmacoro::task<> cast_in_a_row(std::size_t k) {
        for (std::uint64_t w = 0; w < x_->plan.windows(); ++w) {
            const std::uint64_t index = begun_++;
            co_await cast_one(k, index, direction::to_listening);
            watch::moved();
            if (++ended_ % x_->plan.window != 0) continue;
            const tick_count now = now_ticks();
            x_->samples.put(now - last_);
            last_ = now;
        }
    }
    rdmacoro::task<> cast_there_and_back() {
        lost_ = false;
        rdmacoro::task_group watching;
        watching.spawn([this] { return end_with_the_link(); });
        for (std::uint64_t i = 0; i < x_->plan.count; ++i) {
            came_.reset();
            const tick_count since = now_ticks();
            co_await cast_one(0, i, direction::to_listening);
            co_await came_.wait();
            if (lost_) break;
            put_sample(since);
        }
        if (!lost_) watching.request_stop();
        co_await watching.join();  // with the link's error
    }
    /// No such message comes, and no cast after the link's end.
    rdmacoro::task<> end_with_the_link() {
        std::byte nothing{};
        const auto ended = co_await rdmacoro::as_result(peer_.recv(std::span(&nothing, 1), never_tag));
        lost_ = true;
        came_.set();
        static_cast<void>(ended.value());
    }
    rdmacoro::task<> take_cast(bytes_view bytes) {
        const std::uint64_t index = count_arrived();
        take(bytes, index, connecting_ ? direction::from_listening : direction::to_listening);
        if (connecting_) {
            came_.set();
        } else if (there_and_back()) {
            co_await cast_one(0, index, direction::from_listening);
        } else if (arrived_ == x_->plan.count) {
            co_await send_ack(peer_);
        }
    }

    template <class Item>
    rdmacoro::task<> read_all(rdmacoro::stream_reader<Item>& items) {
        for (std::uint64_t i = 0; i < x_->plan.count; ++i) {
            const std::optional<Item> item = co_await items.next();
            if (!item) throw run_error("the stream ended before its time");
            if constexpr (std::is_same_v<Item, std::uint64_t>) {
                take(bytes_of(*item), i, direction::from_listening);
            } else {
                take(*item, i, direction::from_listening);
            }
            watch::moved();
            if ((i + 1) % x_->plan.window != 0) continue;
            const tick_count now = now_ticks();
            x_->samples.put(now - last_);
            last_ = now;
        }
        const std::optional<Item> more = co_await items.next();
        if (more) throw run_error("the stream has more elements than it should");
    }

    rdmacoro::endpoint<T>& peer_;
    rdmacoro::service offered_;
    exchange* x_ = nullptr;
    bool connecting_ = false;
    std::uint64_t arrived_ = 0;  // requests, of this exchange
    std::uint64_t begun_ = 0;    // of this side
    std::uint64_t ended_ = 0;
    tick_count last_ = 0;
    rdmacoro::event came_;  // a cast came back, or the link has ended
    bool lost_ = false;
    rdmacoro::calls<T> calls_;
};

template <rdmacoro::transport T>
std::unique_ptr<service_side> make_service_side(rdmacoro::endpoint<T>& over) {
    return std::make_unique<services_over<T>>(over);
}

}  // namespace pingpong
