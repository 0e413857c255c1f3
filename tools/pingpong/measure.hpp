// The exchanges of messages that are measured, both sides of each: the only code that is compiled for each transport and list.
#pragma once

#include "exchange.hpp"
#include "one_sided.hpp"
#include "watch.hpp"
#include "window.hpp"

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace pingpong {

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
rdmacoro::task<> send_ack(Endpoint& over) {
    const std::byte nothing{};
    co_await over.send(std::span(&nothing, 1), ack_tag);
}
template <class Endpoint>
rdmacoro::task<> receive_ack(Endpoint& over) {
    std::byte nothing{};
    co_await over.recv(std::span(&nothing, 1), ack_tag);
}

// ---- latency: one message there, one back. The connecting side's function returns the ticks that the exchange took.

template <class Endpoint>
rdmacoro::task<tick_count> ask_latency(Endpoint& over, exchange& x) {
    const bool verify = x.plan.verify != 0;
    const std::span<std::byte> out = x.out.slot(0);
    const std::span<std::byte> in = x.in.slot(0);
    const std::uint64_t count = x.plan.count;
    tick_count total = 0;
    tick_count last = now_ticks();
    for (std::uint64_t i = 0; i < count; ++i) {
        if (verify) {
            x.fill(out, i, direction::to_listening);
            last = now_ticks();
        }
        co_await over.send(out, data_tag);
        const rdmacoro::received got = co_await over.recv(in, data_tag);
        const tick_count now = now_ticks();
        x.samples.put(now - last);
        total += now - last;
        last = now;
        x.check_length(got);
        if (verify) x.check(in, i, direction::from_listening);
        watch::moved();
    }
    co_return total;
}

template <class Endpoint>
rdmacoro::task<> answer_latency(Endpoint& over, exchange& x) {
    const bool verify = x.plan.verify != 0;
    const std::span<std::byte> out = x.out.slot(0);
    const std::span<std::byte> in = x.in.slot(0);
    const std::uint64_t count = x.plan.count;
    for (std::uint64_t i = 0; i < count; ++i) {
        const rdmacoro::received got = co_await over.recv(in, data_tag);
        x.check_length(got);
        if (verify) {
            x.check(in, i, direction::to_listening);
            x.fill(out, i, direction::from_listening);
        }
        co_await over.send(out, data_tag);
        watch::moved();
    }
}

// ---- rate, bandwidth: one way. The window is kept full at both sides: as one operation ends the next begins in its
// place. A sample is the time between the ends of two windows. Acknowledgements are awaited a group late, so that they
// delay nothing, except the last: the clock stops when all messages have arrived.

template <class Endpoint>
rdmacoro::task<tick_count> send_stream(Endpoint& over, exchange& x) {
    const bool verify = x.plan.verify != 0;
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    const std::uint64_t windows = x.plan.windows();
    const std::uint64_t ack_every = x.plan.ack_every;
    const std::uint64_t acks = (windows + ack_every - 1) / ack_every;
    std::uint64_t acks_seen = 0;
    operation_window<send_op<Endpoint>> sends(window);
    const tick_count begin = now_ticks();
    tick_count last = begin;
    for (std::uint64_t w = 0; w <= windows; ++w) {
        for (std::size_t k = 0; k < window; ++k) {
            if (w != 0) {
                co_await sends[k];
                sends.end(k);
                watch::moved();
            }
            if (w == windows) continue;
            const std::span<std::byte> out = x.out.slot(k);
            if (verify) x.fill(out, w * window + k, direction::to_listening);
            sends.begin(k, over.send(out, data_tag));
        }
        if (w == 0) continue;  // no send was awaited yet
        const tick_count now = now_ticks();
        x.samples.put(now - last);
        last = now;
        if ((w + 1) % ack_every == 0 && w >= ack_every) {
            co_await receive_ack(over);
            ++acks_seen;
        }
    }
    for (; acks_seen < acks; ++acks_seen) co_await receive_ack(over);
    co_return now_ticks() - begin;
}

template <class Endpoint>
rdmacoro::task<> receive_stream(Endpoint& over, exchange& x) {
    const bool verify = x.plan.verify != 0;
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    const std::uint64_t windows = x.plan.windows();
    const std::uint64_t ack_every = x.plan.ack_every;
    operation_window<recv_op<Endpoint>> receives(window);
    for (std::size_t k = 0; k < window; ++k) receives.begin(k, over.recv(x.in.slot(k), data_tag));
    for (std::uint64_t w = 0; w < windows; ++w) {
        const bool more = w + 1 != windows;
        for (std::size_t k = 0; k < window; ++k) {
            const rdmacoro::received got = co_await receives[k];
            receives.end(k);
            watch::moved();
            x.check_length(got);
            const std::span<std::byte> in = x.in.slot(k);
            if (verify) x.check(in, w * window + k, direction::to_listening);
            if (more) receives.begin(k, over.recv(in, data_tag));
        }
        if ((w + 1) % ack_every == 0 || !more) co_await send_ack(over);
    }
}

// ---- bidirectional: both sides run this. Neither is ahead of the other by more than a window.

template <class Endpoint>
rdmacoro::task<tick_count> exchange_both_ways(Endpoint& over, exchange& x, bool measures) {
    const bool verify = x.plan.verify != 0;
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
                if (verify) x.check(in, (w - 1) * window + k, received);
                co_await sends[k];
                sends.end(k);
                watch::moved();
            }
            if (w == windows) continue;
            receives.begin(k, over.recv(in, data_tag));
            if (verify) x.fill(out, w * window + k, sent);
            sends.begin(k, over.send(out, data_tag));
        }
        if (w == 0) continue;  // no operation was awaited yet
        const tick_count now = now_ticks();
        if (measures) x.samples.put(now - last);
        last = now;
    }
    if (measures) {
        co_await receive_ack(over);
    } else {
        co_await send_ack(over);
    }
    co_return now_ticks() - begin;
}

// ---- get, put: the connecting side does all of it, a window at a time. The listening side prepares and checks payloads
// on request, outside the measured time: one_sided.hpp.

template <class Op, class Make>
rdmacoro::task<tick_count> ask_one_sided(peer& control, exchange& x, Make make) {
    const bool get = x.plan.test == test_kind::get;
    const bool verify = x.plan.verify != 0;
    const std::size_t window = static_cast<std::size_t>(x.plan.window);
    rdmacoro::task_group beside;
    beside.spawn([&control] { return tell_progress(control); });
    operation_window<Op> operations(window);
    tick_count total = 0;
    for (std::uint64_t w = 0; w < x.plan.windows(); ++w) {
        if (verify && get) co_await ask_step(control, step_message::what::prepare, w);
        if (verify && !get) {
            for (std::size_t k = 0; k < window; ++k)
                x.fill(x.out.slot(k), w * window + k, direction::to_listening);
        }
        const tick_count begin = now_ticks();
        if (window == 1) {
            co_await make(0);
            watch::moved();
        } else {
            for (std::size_t k = 0; k < window; ++k) operations.begin(k, make(k));
            for (std::size_t k = 0; k < window; ++k) {
                co_await operations[k];
                operations.end(k);
                watch::moved();
            }
        }
        const tick_count took = now_ticks() - begin;
        x.samples.put(took);
        total += took;
        if (verify && !get) co_await ask_step(control, step_message::what::check, w);
        if (verify && get) {
            for (std::size_t k = 0; k < window; ++k)
                x.check(x.in.slot(k), w * window + k, direction::from_listening);
        }
    }
    beside.request_stop();
    co_await beside.join();
    co_await ask_step(control, step_message::what::end, 0);
    co_return total;
}

// ---- by kind

/// The connecting side's part; `there` is the listening side's memory for one-sided tests. `control` is the same peer.
template <class Endpoint>
rdmacoro::task<tick_count> ask(peer& control, Endpoint& over, exchange& x,
                               const rdmacoro::remote_region& there) {
    switch (x.plan.test) {
        case test_kind::latency: return ask_latency(over, x);
        case test_kind::rate:
        case test_kind::bandwidth: return send_stream(over, x);
        case test_kind::bidirectional: return exchange_both_ways(over, x, true);
        case test_kind::get:
            return ask_one_sided<get_op<Endpoint>>(control, x, [&over, &x, there](std::size_t k) {
                const std::span<std::byte> in = x.in.slot(k);
                return over.rdma_get(there.part(x.in.offset(k), in.size()), in);
            });
        case test_kind::put:
            return ask_one_sided<put_op<Endpoint>>(control, x, [&over, &x, there](std::size_t k) {
                const std::span<std::byte> out = x.out.slot(k);
                return over.rdma_put(out, there.part(x.out.offset(k), out.size()));
            });
        case test_kind::call:
        case test_kind::cast:
        case test_kind::stream: break;  // services.hpp
    }
    throw run_error("no such test");
}

/// The listening side's part.
template <class Endpoint>
rdmacoro::task<> answer(peer& control, Endpoint& over, exchange& x) {
    switch (x.plan.test) {
        case test_kind::latency: return answer_latency(over, x);
        case test_kind::rate:
        case test_kind::bandwidth: return receive_stream(over, x);
        case test_kind::bidirectional: return without_ticks(exchange_both_ways(over, x, false));
        case test_kind::get:
        case test_kind::put: return answer_steps(control, x);
        case test_kind::call:
        case test_kind::cast:
        case test_kind::stream: break;  // services.hpp
    }
    throw run_error("the peer asks for a test that this version does not know");
}

}  // namespace pingpong
