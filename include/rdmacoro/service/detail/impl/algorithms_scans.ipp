// Algorithms of collectives: results of the ranks up to each.
#pragma once

#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/algorithms.hpp>

#include <algorithm>
#include <optional>

namespace rdmacoro::detail {

/// In step k a rank gets the result of the 2^k ranks up to the one 2^k before it.
RDMACORO_DECL task<> log_step_scan(collective& c) {
    const std::size_t bytes = c.data().size();
    const bool exclusive = c.kind() == collective_kind::exscan;
    // `sum`: of the ranks up to this one, included. `c.data()`: the result; of exscan nothing at rank 0.
    const collective::scratch partial = c.take_scratch(bytes);
    const collective::scratch other = c.take_scratch(bytes);
    const in_bytes sum = partial.bytes();
    co_await c.copying(sum, c.contribution());
    bool any = false;
    for (unsigned distance = 1; distance < c.size(); distance *= 2) {
        std::optional<receive_step> in;
        std::optional<send_step> out;
        if (c.rank() >= distance) in.emplace(c, c.rank() - distance, other.bytes());
        if (c.rank() + distance < c.size()) out.emplace(c, c.rank() + distance, sum);
        if (out) co_await *out;
        if (in) co_await *in;
        c.check();
        if (!in) continue;
        if (exclusive) {
            if (any) {
                co_await combine_in_turns(c, c.data(), other.bytes(), true);
            } else {
                co_await c.copying(c.data(), other.bytes());
            }
            any = true;
        }
        co_await combine_in_turns(c, sum, other.bytes(), true);
    }
    if (!exclusive) co_await c.copying(c.data(), sum);
}

/// One rank after the other passes the result so far on.
RDMACORO_DECL task<> chain_scan(collective& c) {
    const bool exclusive = c.kind() == collective_kind::exscan;
    const collective::scratch before = c.take_scratch(c.data().size());
    const collective::scratch memory = c.take_scratch(exclusive ? c.data().size() : 0);
    out_bytes sum = c.contribution();
    if (c.rank() != 0) {
        receive_step in(c, c.rank() - 1, before.bytes());
        co_await in;
        c.check();
        const in_bytes into = exclusive ? memory.bytes() : c.data();
        co_await combine_in_turns(c, into, c.contribution(), before.bytes(), true);
        sum = into;
    } else if (!exclusive) {
        co_await c.copying(c.data(), sum);
    }
    if (c.rank() + 1 < c.size()) {
        send_step out(c, c.rank() + 1, sum);
        co_await out;
        c.check();
    }
    if (exclusive && c.rank() != 0) co_await c.copying(c.data(), before.bytes());
}

/// The result of a scan, of those of the ranks before this one: `before`, of at least one of them.
inline task<> end_scan(collective& c, out_bytes before) {
    if (c.kind() == collective_kind::exscan) {
        if (c.rank() != 0) co_await c.copying(c.data(), before);
    } else if (c.rank() == 0) {
        co_await c.copying(c.data(), c.contribution());
    } else {
        co_await combine_in_turns(c, c.data(), c.contribution(), before, true);
    }
}

/// Each rank gives what it contributes to each rank behind it, one after the other.
RDMACORO_DECL task<> flat_scan(collective& c) {
    const std::size_t bytes = c.data().size();
    const collective::scratch sum = c.take_scratch(c.rank() != 0 ? bytes : 0);
    const collective::scratch room = c.take_scratch(c.rank() != 0 ? bytes : 0);
    for (unsigned from = 0; from < c.rank(); ++from) {
        receive_step in(c, from, from == 0 ? sum.bytes() : room.bytes());
        co_await in;
        c.check();
        if (from != 0) co_await combine_in_turns(c, sum.bytes(), room.bytes(), false);
    }
    for (unsigned to = c.rank() + 1; to < c.size(); ++to) {
        send_step out(c, to, c.contribution());
        co_await out;
        c.check();
    }
    co_await end_scan(c, sum.bytes());
}

/// The same, all at a time.
RDMACORO_DECL task<> overlapped_flat_scan(collective& c) {
    const std::size_t bytes = c.data().size();
    const collective::scratch rows = c.take_scratch(c.rank() * bytes);
    transfer_list<receive_step> ins(c, c.rank());
    transfer_list<send_step> outs(c, c.size());
    for (unsigned to = c.rank() + 1; to < c.size(); ++to) outs.begin(c, to, c.contribution());
    for (unsigned from = 0; from < c.rank(); ++from) ins.begin(c, from, block_at(rows.bytes(), bytes, from));
    for (std::size_t at = 0; at < outs.count(); ++at) co_await outs[at];
    for (std::size_t at = 0; at < ins.count(); ++at) co_await ins[at];
    c.check();
    const in_bytes sum = c.rank() != 0 ? block_at(rows.bytes(), bytes, 0) : in_bytes();
    for (unsigned from = 1; from < c.rank(); ++from)
        co_await combine_in_turns(c, sum, block_at(rows.bytes(), bytes, from), false);
    co_await end_scan(c, sum);
}

}  // namespace rdmacoro::detail
