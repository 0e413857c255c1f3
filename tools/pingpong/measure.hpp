// The exchanges of messages that are measured, both sides of each.
#pragma once

#include "control.hpp"
#include "pattern.hpp"
#include "payload.hpp"
#include "samples.hpp"
#include "watch.hpp"
#include "window.hpp"

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pingpong {

/// The way of a message; its payload is the sending side's pattern.
enum class direction : std::uint64_t { to_listening, from_listening };

/// One side's part of an exchange: plan, buffers, samples and findings. Reused by the next exchange for its
/// memory.
class exchange {
public:
    void prepare(const exchange_message& agreed) {
        plan = agreed;
        found = {};
        out.prepare(static_cast<std::size_t>(plan.bytes), static_cast<std::size_t>(plan.buffers));
        in.prepare(static_cast<std::size_t>(plan.bytes), static_cast<std::size_t>(plan.buffers));
    }

    /// Fills the payload of message `index`.
    void fill(std::span<std::byte> to, std::uint64_t index, direction where) const noexcept {
        fill_pattern(to, pattern_seed(plan.phase, static_cast<std::uint64_t>(where), index));
        if (index == plan.spoil && !to.empty()) to[to.size() / 2] ^= std::byte{1};
    }
    /// Checks the payload of message `index`.
    void check(std::span<const std::byte> arrived, std::uint64_t index, direction where) noexcept {
        const std::size_t at =
            first_wrong(arrived, pattern_seed(plan.phase, static_cast<std::uint64_t>(where), index));
        if (at == arrived.size()) return;
        if (found.wrong++ == 0) {
            found.message = index;
            found.offset = at;
        }
    }
    [[gnu::always_inline]] void check_length(const rdmacoro::received& got) const {
        if (got.bytes != plan.bytes) [[unlikely]]
            wrong_length(got.bytes);
    }

    exchange_message plan{};
    payload out;
    payload in;
    sample_log samples;
    findings found{};

private:
    [[noreturn, gnu::cold, gnu::noinline]] void wrong_length(std::size_t bytes) const {
        throw run_error("a message of " + std::to_string(bytes) + " bytes came where one of " +
                        std::to_string(plan.bytes) + " was sent");
    }
};

template <class Endpoint>
using send_op = decltype(std::declval<Endpoint&>().send(rdmacoro::const_buffers{}, data_tag));
template <class Endpoint>
using recv_op = decltype(std::declval<Endpoint&>().recv(rdmacoro::mutable_buffers{}, data_tag));
template <class Endpoint>
using get_op =
    decltype(std::declval<Endpoint&>().rdma_get(rdmacoro::remote_region{}, std::span<std::byte>{}));
template <class Endpoint>
using put_op =
    decltype(std::declval<Endpoint&>().rdma_put(std::span<const std::byte>{}, rdmacoro::remote_region{}));

template <class Endpoint>
rdmacoro::task<> send_ack(Endpoint& peer) {
    const std::byte nothing{};
    co_await peer.send(std::span(&nothing, 1), ack_tag);
}
template <class Endpoint>
rdmacoro::task<> receive_ack(Endpoint& peer) {
    std::byte nothing{};
    co_await peer.recv(std::span(&nothing, 1), ack_tag);
}

// ---- latency: one message there, one back. The connecting side's function returns the ticks that the exchange took.

template <bool Verify, class Endpoint>
rdmacoro::task<tick_count> ask_latency(Endpoint& peer, exchange& x) {
    const std::span<std::byte> out = x.out.slot(0);
    const std::span<std::byte> in = x.in.slot(0);
    const std::uint64_t count = x.plan.count;
    tick_count total = 0;
    tick_count last = now_ticks();
    for (std::uint64_t i = 0; i < count; ++i) {
        if constexpr (Verify) {
            x.fill(out, i, direction::to_listening);
            last = now_ticks();
        }
        co_await peer.send(out, data_tag);
        const rdmacoro::received got = co_await peer.recv(in, data_tag);
        const tick_count now = now_ticks();
        x.samples.put(now - last);
        total += now - last;
        last = now;
        x.check_length(got);
        if constexpr (Verify) x.check(in, i, direction::from_listening);
        watch::reached(i);
    }
    co_return total;
}

template <bool Verify, class Endpoint>
rdmacoro::task<> answer_latency(Endpoint& peer, exchange& x) {
    const std::span<std::byte> out = x.out.slot(0);
    const std::span<std::byte> in = x.in.slot(0);
    const std::uint64_t count = x.plan.count;
    for (std::uint64_t i = 0; i < count; ++i) {
        const rdmacoro::received got = co_await peer.recv(in, data_tag);
        x.check_length(got);
        if constexpr (Verify) {
            x.check(in, i, direction::to_listening);
            x.fill(out, i, direction::from_listening);
        }
        co_await peer.send(out, data_tag);
        watch::reached(i);
    }
}

// ---- rate, bandwidth: one way. The window is kept full at both sides: as one operation ends the next begins in its
// place. A sample is the time between the ends of two windows. Acknowledgements are awaited a group late, so that they
// delay nothing, except the last: the clock stops when all messages have arrived.

template <bool Verify, class Endpoint>
rdmacoro::task<tick_count> send_stream(Endpoint& peer, exchange& x) {
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    const std::uint64_t windows = x.plan.windows();
    const std::uint64_t ack_every = x.plan.ack_every;
    const std::uint64_t acks = (windows + ack_every - 1) / ack_every;
    std::uint64_t acks_seen = 0;
    operation_window<send_op<Endpoint>> sends(window);
    const tick_count begin = now_ticks();
    tick_count last = begin;
    for (std::uint64_t w = 0; w < windows; ++w) {
        for (std::size_t k = 0; k < window; ++k) {
            if (w != 0) {
                co_await sends[k];
                sends.end(k);
            }
            const std::span<std::byte> out = x.out.slot(k);
            if constexpr (Verify) x.fill(out, w * window + k, direction::to_listening);
            sends.begin(k, peer.send(out, data_tag));
        }
        const tick_count now = now_ticks();
        x.samples.put(now - last);
        last = now;
        watch::reached(w);
        if ((w + 1) % ack_every == 0 && w >= ack_every) {
            co_await receive_ack(peer);
            ++acks_seen;
        }
    }
    for (std::size_t k = 0; k < window; ++k) {
        co_await sends[k];
        sends.end(k);
    }
    for (; acks_seen < acks; ++acks_seen) co_await receive_ack(peer);
    co_return now_ticks() - begin;
}

template <bool Verify, class Endpoint>
rdmacoro::task<> receive_stream(Endpoint& peer, exchange& x) {
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    const std::uint64_t windows = x.plan.windows();
    const std::uint64_t ack_every = x.plan.ack_every;
    operation_window<recv_op<Endpoint>> receives(window);
    for (std::size_t k = 0; k < window; ++k) receives.begin(k, peer.recv(x.in.slot(k), data_tag));
    for (std::uint64_t w = 0; w < windows; ++w) {
        const bool more = w + 1 != windows;
        for (std::size_t k = 0; k < window; ++k) {
            const rdmacoro::received got = co_await receives[k];
            receives.end(k);
            x.check_length(got);
            const std::span<std::byte> in = x.in.slot(k);
            if constexpr (Verify) x.check(in, w * window + k, direction::to_listening);
            if (more) receives.begin(k, peer.recv(in, data_tag));
        }
        watch::reached(w);
        if ((w + 1) % ack_every == 0 || !more) co_await send_ack(peer);
    }
}

// ---- bidirectional: both sides run this. Neither is ahead of the other by more than a window.

template <bool Verify, class Endpoint>
rdmacoro::task<tick_count> exchange_both_ways(Endpoint& peer, exchange& x, bool measures) {
    const direction sent = measures ? direction::to_listening : direction::from_listening;
    const direction received = measures ? direction::from_listening : direction::to_listening;
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    const std::uint64_t windows = x.plan.windows();
    operation_window<recv_op<Endpoint>> receives(window);
    operation_window<send_op<Endpoint>> sends(window);
    const tick_count begin = now_ticks();
    tick_count last = begin;
    for (std::uint64_t w = 0; w <= windows; ++w) {
        for (std::size_t k = 0; k < window; ++k) {
            const std::span<std::byte> in = x.in.slot(k);
            const std::span<std::byte> out = x.out.slot(k);
            if (w != 0) {
                const rdmacoro::received got = co_await receives[k];
                receives.end(k);
                x.check_length(got);
                if constexpr (Verify) x.check(in, (w - 1) * window + k, received);
                co_await sends[k];
                sends.end(k);
            }
            if (w == windows) continue;
            receives.begin(k, peer.recv(in, data_tag));
            if constexpr (Verify) x.fill(out, w * window + k, sent);
            sends.begin(k, peer.send(out, data_tag));
        }
        if (w == 0) continue;  // no operation was awaited yet
        const tick_count now = now_ticks();
        if (measures) x.samples.put(now - last);
        last = now;
        watch::reached(w);
    }
    if (measures) {
        co_await receive_ack(peer);
    } else {
        co_await send_ack(peer);
    }
    co_return now_ticks() - begin;
}

// ---- get, put: the connecting side does all of it, a window at a time. The listening side prepares and checks payloads
// on request, outside the measured time.

template <class Endpoint>
rdmacoro::task<> ask_step(Endpoint& peer, step_message::what what, std::uint64_t window) {
    const control_bytes request = encode(step_message{what, window});
    co_await peer.send(request, control_tag);
    if (what == step_message::what::end) co_return;
    control_bytes reply{};
    const rdmacoro::received got = co_await peer.recv(reply, control_tag);
    static_cast<void>(decode<stepped_message>(reply, got.bytes));
}

template <class Op, class Endpoint, class Make>
rdmacoro::task<tick_count> ask_one_sided(Endpoint& peer, exchange& x, Make make) {
    const bool get = x.plan.test == test_kind::get;
    const bool verify = x.plan.verify != 0;
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    operation_window<Op> operations(window);
    tick_count total = 0;
    for (std::uint64_t w = 0; w < x.plan.windows(); ++w) {
        if (verify && get) co_await ask_step(peer, step_message::what::prepare, w);
        if (verify && !get) {
            for (std::size_t k = 0; k < window; ++k)
                x.fill(x.out.slot(k), w * window + k, direction::to_listening);
        }
        const tick_count begin = now_ticks();
        if (window == 1) {
            co_await make(0);
        } else {
            for (std::size_t k = 0; k < window; ++k) operations.begin(k, make(k));
            for (std::size_t k = 0; k < window; ++k) {
                co_await operations[k];
                operations.end(k);
            }
        }
        const tick_count took = now_ticks() - begin;
        x.samples.put(took);
        total += took;
        watch::reached(w);
        if (verify && !get) co_await ask_step(peer, step_message::what::check, w);
        if (verify && get) {
            for (std::size_t k = 0; k < window; ++k)
                x.check(x.in.slot(k), w * window + k, direction::from_listening);
        }
    }
    co_await ask_step(peer, step_message::what::end, 0);
    co_return total;
}

template <class Endpoint>
rdmacoro::task<tick_count> ask_get(Endpoint& peer, exchange& x, rdmacoro::remote_region there) {
    return ask_one_sided<get_op<Endpoint>>(peer, x, [&peer, &x, there](std::size_t k) {
        const std::span<std::byte> in = x.in.slot(k);
        return peer.rdma_get(there.part(x.in.offset(k), in.size()), in);
    });
}
template <class Endpoint>
rdmacoro::task<tick_count> ask_put(Endpoint& peer, exchange& x, rdmacoro::remote_region there) {
    return ask_one_sided<put_op<Endpoint>>(peer, x, [&peer, &x, there](std::size_t k) {
        const std::span<std::byte> out = x.out.slot(k);
        return peer.rdma_put(out, there.part(x.out.offset(k), out.size()));
    });
}

template <class Endpoint>
rdmacoro::task<> answer_one_sided(Endpoint& peer, exchange& x) {
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    for (;;) {
        control_bytes raw{};
        const rdmacoro::received got = co_await peer.recv(raw, control_tag);
        const auto step = decode<step_message>(raw, got.bytes);
        if (step.ask == step_message::what::end) co_return;
        for (std::size_t k = 0; k < window; ++k) {
            if (step.ask == step_message::what::prepare) {
                x.fill(x.out.slot(k), step.window * window + k, direction::from_listening);
            } else {
                x.check(x.in.slot(k), step.window * window + k, direction::to_listening);
            }
        }
        watch::reached(step.window);
        const control_bytes reply = encode(stepped_message{});
        co_await peer.send(reply, control_tag);
    }
}

// ---- by kind

/// The connecting side's part; `there` is the listening side's memory for one-sided tests.
template <class Endpoint>
rdmacoro::task<tick_count> ask(Endpoint& peer, exchange& x, const rdmacoro::remote_region& there) {
    const bool verify = x.plan.verify != 0;
    switch (x.plan.test) {
        case test_kind::latency: return verify ? ask_latency<true>(peer, x) : ask_latency<false>(peer, x);
        case test_kind::rate:
        case test_kind::bandwidth: return verify ? send_stream<true>(peer, x) : send_stream<false>(peer, x);
        case test_kind::bidirectional:
            return verify ? exchange_both_ways<true>(peer, x, true)
                          : exchange_both_ways<false>(peer, x, true);
        case test_kind::get: return ask_get(peer, x, there);
        case test_kind::put: return ask_put(peer, x, there);
        case test_kind::call:
        case test_kind::cast:
        case test_kind::stream: break;  // services.hpp
    }
    throw run_error("no such test");
}

template <class Endpoint>
rdmacoro::task<> without_ticks(rdmacoro::task<tick_count> measured) {
    static_cast<void>(co_await std::move(measured));
}

/// The listening side's part.
template <class Endpoint>
rdmacoro::task<> answer(Endpoint& peer, exchange& x) {
    const bool verify = x.plan.verify != 0;
    switch (x.plan.test) {
        case test_kind::latency:
            return verify ? answer_latency<true>(peer, x) : answer_latency<false>(peer, x);
        case test_kind::rate:
        case test_kind::bandwidth:
            return verify ? receive_stream<true>(peer, x) : receive_stream<false>(peer, x);
        case test_kind::bidirectional:
            return without_ticks<Endpoint>(verify ? exchange_both_ways<true>(peer, x, false)
                                                  : exchange_both_ways<false>(peer, x, false));
        case test_kind::get:
        case test_kind::put: return answer_one_sided(peer, x);
        case test_kind::call:
        case test_kind::cast:
        case test_kind::stream: break;  // services.hpp
    }
    throw run_error("the peer asks for a test that this version does not know");
}

}  // namespace pingpong
