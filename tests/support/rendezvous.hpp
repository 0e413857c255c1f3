#pragma once

// For tests of rendezvous policies: their messages as bytes, and two endpoints over one in-memory link.

#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/drop_lost.hpp"
#include "support/recording_sink.hpp"
#include "support/scripted_peer.hpp"

#include <initializer_list>
#include <span>
#include <vector>

namespace rdmacoro::test {

/// The kinds of a rendezvous policy that is the first of its list.
enum class rv : std::uint8_t {
    request = 8,
    ready = 9,
    received = 10,
    sent = 11,
    abandon = 12,
    gone = 13,
    withdraw = 14,
};
inline bool is(const heard_message& m, rv kind) { return m.header.kind == static_cast<std::uint8_t>(kind); }

inline void append(std::vector<std::byte>& raw, std::initializer_list<remote_region> pieces) {
    for (const remote_region& p : pieces) {
        for (const std::uint64_t number : {p.address, p.length, p.key}) {
            raw.resize(raw.size() + 8);
            rdmacoro::detail::store_number(raw.data() + raw.size() - 8, number);
        }
    }
}
/// The payload of a request.
inline std::vector<std::byte> request_body(std::uint32_t stream, std::uint64_t bytes,
                                           std::initializer_list<remote_region> source = {},
                                           shared_copy_id copy = no_shared_copy) {
    std::vector<std::byte> raw(16);
    rdmacoro::detail::store_number(raw.data(), stream);
    rdmacoro::detail::store_number(raw.data() + 4, copy);
    rdmacoro::detail::store_number(raw.data() + 8, bytes);
    append(raw, source);
    return raw;
}
/// The payload of `ready`.
inline std::vector<std::byte> ready_body(std::uint64_t offset,
                                         std::initializer_list<remote_region> destination) {
    std::vector<std::byte> raw(8);
    rdmacoro::detail::store_number(raw.data(), offset);
    append(raw, destination);
    return raw;
}
/// The pieces of memory that a request or `ready` names, which begin after `fixed` bytes.
inline std::vector<remote_region> pieces_of(const heard_message& m, std::size_t fixed) {
    std::vector<remote_region> found;
    for (std::size_t at = fixed; at + 24 <= m.payload.size(); at += 24) {
        const std::byte* raw = m.payload.data() + at;
        found.push_back({rdmacoro::detail::load_number<std::uint64_t>(raw),
                         rdmacoro::detail::load_number<std::uint64_t>(raw + 8),
                         rdmacoro::detail::load_number<std::uint64_t>(raw + 16)});
    }
    return found;
}
inline std::vector<remote_region> source_of(const heard_message& m) { return pieces_of(m, 16); }
inline std::vector<remote_region> destination_of(const heard_message& m) { return pieces_of(m, 8); }

template <class Peer>
void say(Peer& peer, rv kind, tag_type tag, std::span<const std::byte> payload = {}, std::uint8_t flags = 0,
         std::uint16_t credits = 0) {
    peer.send_raw(static_cast<std::uint8_t>(kind), tag, payload, credits, flags);
}
/// Uses the streams before this one, by messages with tag 1000 that nothing waits for: a sender names its streams in order.
template <class Peer>
void use_streams_before(Peer& peer, std::uint32_t stream) {
    for (std::uint32_t n = 0; n < stream; ++n) say(peer, rv::request, 1000, request_body(n, 0));
}

inline task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}

/// Runs `body(peer)` in virtual time, the endpoint and the peer open.
template <protocol_list P>
void with_rendezvous_peer(task<> (*body)(basic_scripted_peer<P>&)) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(basic_scripted_peer<P>&)) -> task<> {
        basic_scripted_peer<P> peer(on);
        co_await peer.open(1u << 20);
        co_await run(peer);
    }(world.on, body));
}

/// Two endpoints and the link between them.
template <protocol_list P>
class endpoint_pair {
public:
    using endpoint_type = endpoint<loopback, P>;

    explicit endpoint_pair(scheduler& on, const mailbox_options& options = {})
        : domain(on),
          wire(std::make_shared<loopback_wire>()),
          a((wire->domains[0] = wire->domains[1] = &domain, on), loopback_connection(wire, 0), options),
          b(on, loopback_connection(wire, 1), options) {}

    /// The bytes that one end writes, its gets and puts among them.
    [[nodiscard]] loopback_lane& from_a() noexcept { return wire->lanes[0]; }
    [[nodiscard]] loopback_lane& from_b() noexcept { return wire->lanes[1]; }
    void hold(bool held) noexcept { from_a().held = from_b().held = held; }
    task<> open() { return open_both(*this); }
    /// Whether neither end keeps anything of a message, but for those that a lost peer did not finish.
    [[nodiscard]] bool at_rest() noexcept {
        drop_lost(a.connection());
        drop_lost(b.connection());
        return domain.regions().registered() == 0 && a.connection().mailbox().store().live() == 0 &&
               b.connection().mailbox().store().live() == 0 &&
               a.connection().mailbox().matching().unexpected() == 0 &&
               b.connection().mailbox().matching().unexpected() == 0;
    }

    loopback_domain domain;
    std::shared_ptr<loopback_wire> wire;
    endpoint_type a;
    endpoint_type b;

private:
    static task<> open_both(endpoint_pair& pair) {
        while (!pair.a.is_open() || !pair.b.is_open()) co_await yield();
    }
};

/// Runs `body(pair)` in virtual time, both ends open.
template <protocol_list P>
void with_pair(task<> (*body)(endpoint_pair<P>&)) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(endpoint_pair<P>&)) -> task<> {
        endpoint_pair<P> pair(on);
        co_await pair.open();
        co_await run(pair);
    }(world.on, body));
}

/// `count` pieces of `bytes` bytes, `gap` bytes apart.
struct scattered {
    scattered(std::size_t count, std::size_t bytes, std::size_t gap)
        : memory(count * (bytes + gap), std::byte{0xee}), bytes_(bytes), gap_(gap) {
        for (std::size_t n = 0; n < count; ++n) {
            pieces.push_back(std::span(memory).subspan(n * (bytes + gap), bytes));
            const_pieces.push_back(pieces.back());
        }
    }
    [[nodiscard]] mutable_buffers into() const {
        return mutable_buffers(std::span<const std::span<std::byte>>(pieces));
    }
    [[nodiscard]] const_buffers from() const {
        return const_buffers(std::span<const std::span<const std::byte>>(const_pieces));
    }
    void fill(std::span<const std::byte> data) { rdmacoro::detail::copy_in(data, into(), 0); }
    [[nodiscard]] std::vector<std::byte> gathered(std::size_t size) const {
        std::vector<std::byte> all(size);
        rdmacoro::detail::copy_out(from(), 0, all.data(), size);
        return all;
    }
    /// Whether the bytes between the pieces are as they were.
    [[nodiscard]] bool gaps_untouched() const {
        for (std::size_t n = 0; n < pieces.size(); ++n) {
            for (std::size_t i = 0; i < gap_; ++i) {
                if (memory[n * (bytes_ + gap_) + bytes_ + i] != std::byte{0xee}) return false;
            }
        }
        return true;
    }

    std::vector<std::byte> memory;
    std::vector<std::span<std::byte>> pieces;
    std::vector<std::span<const std::byte>> const_pieces;

private:
    std::size_t bytes_;
    std::size_t gap_;
};

/// A header without its credits, which depend on what came before.
inline std::vector<std::byte> bytes_of(const heard_message& m) {
    rdmacoro::detail::wire_header h = m.header;
    h.credits = 0;
    const auto header = h.store();
    return {header.begin(), header.end()};
}
/// Sends and receives one message on tag 77 from `a` to `b`: the link is as good as before.
template <class Pair>
task<> works(Pair& pair) {
    const auto data = pattern(2000, 9u);
    std::vector<std::byte> into(2000);
    auto receiving = start(pair.b.recv(into, 77));
    co_await pair.a.send(data, 77);
    co_await receiving;
    CHECK(into == data);
}

/// A violation by a peer, and how it is done.
template <class Peer>
struct forbidden {
    const char* what;
    void (*act)(Peer&);
};

}  // namespace rdmacoro::test
