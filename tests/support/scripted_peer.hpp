#pragma once

// An endpoint over the in-memory transport, and a peer that sends exactly the frames a test tells it to send.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include "support/loopback.hpp"
#include "support/run.hpp"

#include <deque>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace rdmacoro::test {

/// A message of the endpoint on the wire.
struct heard_message {
    rdmacoro::detail::wire_header header;
    std::vector<std::byte> payload;
};

/// A sink that notes everything.
struct noting_sink {
    delivery deliver(const message_header& raw, std::span<const std::byte> payload) noexcept {
        heard.push_back({rdmacoro::detail::wire_header::load(raw), {payload.begin(), payload.end()}});
        return delivery::taken;
    }
    delivery begin_payload(const message_header&, std::size_t) noexcept { return delivery::taken; }
    std::span<std::byte> payload_space() noexcept { return {}; }
    void payload_arrived(std::size_t) noexcept {}
    void writable() noexcept { ++writables; }
    void link_down(std::error_code why) noexcept { reason = why; }

    std::deque<heard_message> heard;
    int writables = 0;
    std::error_code reason{};
};

/// The kinds of a default protocol list on the wire.
enum class wire_kind : std::uint8_t {
    hello = 1,
    credit = 2,
    goodbye = 3,
    goodbye_seen = 4,
    starved = 5,
    ahead = 6,
    recall = 7,
    eager = 8,
    announce = 9,
    piece = 10,
    proceed = 11,
    abandon = 12,
    gone = 13,
    taken = 14,
};

/// The payload of an announcement.
inline std::vector<std::byte> announcement(std::uint32_t stream, std::uint32_t flags, std::uint64_t bytes) {
    std::vector<std::byte> raw(16);
    rdmacoro::detail::store_number(raw.data(), stream);
    rdmacoro::detail::store_number(raw.data() + 4, flags);
    rdmacoro::detail::store_number(raw.data() + 8, bytes);
    return raw;
}

template <protocol_list P = protocols<eager<>, segmented<>>>
class basic_scripted_peer {
public:
    using endpoint_type = endpoint<loopback, P>;

    explicit basic_scripted_peer(scheduler& on, const mailbox_options& options = {})
        : domain_(on), wire_(std::make_shared<loopback_wire>()), link_(prepared(), told_) {
        self_ = std::make_unique<endpoint_type>(on, loopback_connection(wire_, 0), options);
    }

    /// The endpoint under test, and what happens on the way to it and from it.
    [[nodiscard]] endpoint_type& self() noexcept { return *self_; }
    [[nodiscard]] loopback_lane& to_peer() noexcept { return wire_->lanes[0]; }
    [[nodiscard]] loopback_lane& from_peer() noexcept { return wire_->lanes[1]; }
    [[nodiscard]] loopback_wire& wire() noexcept { return *wire_; }
    void destroy_self() noexcept { self_.reset(); }

    // The actions of the peer.
    void say(wire_kind kind, tag_type tag = 0, std::span<const std::byte> payload = {},
             std::uint16_t credits = 0, std::uint8_t flags = 0) {
        send_raw(static_cast<std::uint8_t>(kind), tag, payload, credits, flags);
    }
    void send_raw(std::uint8_t kind, tag_type tag, std::span<const std::byte> payload,
                  std::uint16_t credits = 0, std::uint8_t flags = 0) {
        const rdmacoro::detail::wire_header h{kind, flags, credits, tag};
        completion unused;
        static_cast<void>(link_.post(h.store(), const_buffers(payload), unused));
    }
    void send_hello(std::uint32_t budget = rdmacoro::detail::least_budget) {
        rdmacoro::detail::wire_hello hello;
        hello.budget = budget;
        hello.fingerprint = P::fingerprint;
        const auto raw = hello.store();
        say(wire_kind::hello, 0, raw);
    }
    /// Hellos both ways.
    task<> open(std::uint32_t budget = rdmacoro::detail::least_budget) { return open_it(*this, budget); }

    [[nodiscard]] std::deque<heard_message>& heard() noexcept { return told_.heard; }
    /// The next message of the endpoint, taken out.
    task<heard_message> hear() { return hear_next(*this); }
    [[nodiscard]] std::error_code reason() const noexcept { return told_.reason; }
    [[nodiscard]] loopback_link<noting_sink>& link() noexcept { return link_; }

private:
    static constexpr int most_turns = 1'000'000;

    loopback_connection prepared() {
        wire_->domains[0] = wire_->domains[1] = &domain_;
        return loopback_connection(wire_, 1);
    }
    static task<> open_it(basic_scripted_peer& peer, std::uint32_t budget) {
        peer.send_hello(budget);
        while (!peer.self().is_open() || peer.heard().empty()) co_await yield();
        peer.heard().clear();
    }
    static task<heard_message> hear_next(basic_scripted_peer& peer) {
        for (int turns = 0; peer.heard().empty(); ++turns) {
            if (turns == most_turns) throw std::runtime_error("the connection says nothing more");
            co_await yield();
        }
        heard_message next = std::move(peer.heard().front());
        peer.heard().pop_front();
        co_return next;
    }

    loopback_domain domain_;
    std::shared_ptr<loopback_wire> wire_;
    noting_sink told_;
    loopback_link<noting_sink> link_;
    std::unique_ptr<endpoint_type> self_;
};
using scripted_peer = basic_scripted_peer<>;

}  // namespace rdmacoro::test
