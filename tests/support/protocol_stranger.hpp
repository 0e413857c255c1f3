#pragma once

// A peer that speaks the protocol by hand, over any transport, and does what no honest one does: it fills all the memory that it
// is granted, asks for more, and fills that.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/wire.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace rdmacoro::test {

template <class T>
class protocol_stranger {
public:
    /// `fingerprint`: of the list that the other side has; the kind of its `eager` is the first.
    protocol_stranger(typename T::connection made, std::uint64_t fingerprint)
        : fingerprint_(fingerprint), link_(std::move(made), told_) {}

    /// Sends messages of `bytes` as long as there is credit for them. Ends when it has said that it starves and got nothing
    /// for a while, or the link is down.
    task<> fill(std::size_t bytes) { return fill_it(*this, bytes); }

    [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
    /// Its grants altogether, in bytes.
    [[nodiscard]] std::uint64_t granted() const noexcept {
        return std::uint64_t{told_.granted} * rdmacoro::detail::credit_bytes;
    }
    [[nodiscard]] std::error_code reason() const noexcept { return told_.reason; }

private:
    struct sink {
        delivery deliver(const message_header& raw, std::span<const std::byte> payload) noexcept {
            const auto header = rdmacoro::detail::wire_header::load(raw);
            std::uint32_t more = header.credits;
            if (header.kind == static_cast<std::uint8_t>(rdmacoro::detail::control_kind::hello)) {
                if (const auto hello = rdmacoro::detail::wire_hello::load(payload)) {
                    more = hello->budget - hello->withheld;
                    open = true;
                }
            }
            available += more;
            granted += more;
            news += more != 0 ? 1 : 0;
            return delivery::taken;
        }
        delivery begin_payload(const message_header& raw, std::size_t) noexcept { return deliver(raw, {}); }
        std::span<std::byte> payload_space() noexcept { return {}; }
        void payload_arrived(std::size_t) noexcept {}
        void writable() noexcept {}
        void link_down(std::error_code why) noexcept { reason = why; }

        std::uint32_t available = 0;
        std::uint32_t granted = 0;
        std::uint64_t news = 0;
        bool open = false;
        std::error_code reason{};
    };

    task<> say(std::uint8_t kind, tag_type tag, std::span<const std::byte> payload) {
        return say_it(*this, kind, tag, payload);
    }
    static task<> say_it(protocol_stranger& self, std::uint8_t kind, tag_type tag,
                         std::span<const std::byte> payload) {
        const auto header = rdmacoro::detail::wire_header{kind, 0, 0, tag}.store();
        completion& posted = self.posted_.emplace_back();
        posted.done = [](completion&, std::error_code) noexcept {};
        while (!self.told_.reason &&
               self.link_.post(header, const_buffers(payload), posted) == post_result::retry)
            co_await sleep_for(std::chrono::microseconds(50));
    }
    static task<> fill_it(protocol_stranger& self, std::size_t bytes) {
        rdmacoro::detail::wire_hello hello;
        hello.budget = rdmacoro::detail::least_budget;
        hello.fingerprint = self.fingerprint_;
        const auto raw = hello.store();
        co_await self.say(static_cast<std::uint8_t>(rdmacoro::detail::control_kind::hello), 0, raw);
        while (!self.told_.open && !self.told_.reason) co_await sleep_for(std::chrono::microseconds(50));
        self.data_.resize(bytes, std::byte{1});
        const std::uint32_t cost = rdmacoro::detail::message_cost(bytes);
        for (int patience = most_patience; patience > 0 && !self.told_.reason;) {
            if (self.told_.available >= cost) {
                self.told_.available -= cost;
                ++self.sent_;
                co_await self.say(rdmacoro::detail::first_policy_kind, 4711, self.data_);
                continue;
            }
            const std::uint64_t before = self.told_.news;
            co_await self.say(static_cast<std::uint8_t>(rdmacoro::detail::control_kind::starved), 0, {});
            for (; patience > 0 && self.told_.news == before && !self.told_.reason; --patience)
                co_await sleep_for(std::chrono::microseconds(200));
            if (self.told_.news != before) patience = most_patience;
        }
    }

    static constexpr int most_patience = 50;

    sink told_;
    std::deque<completion> posted_;
    std::vector<std::byte> data_;
    std::uint64_t fingerprint_;
    std::uint64_t sent_ = 0;
    typename T::template link<sink> link_;
};

}  // namespace rdmacoro::test
