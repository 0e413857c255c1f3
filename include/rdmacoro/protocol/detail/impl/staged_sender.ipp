// Bodies of detail/staged_sender.hpp.
#pragma once

#include <rdmacoro/protocol/detail/staged_sender.hpp>

#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD staged_sender::staged_sender(rendezvous_context& context, std::size_t limit,
                                           std::uint64_t metrics::* sent) noexcept
    : context_(context), blocks_(limit, 1, most_staged), sent_(sent) {}

RDMACORO_COLD start_result staged_sender::start(send_request& r) noexcept {
    if (slots_.exhausted(most_staged)) return start_result::wait_peer;
    const std::size_t bytes = r.from_.size();
    const std::uint32_t cost = staged_cost(bytes, sent_leaving_, context_.credits().peer_budget());
    if (!context_.credits().take(cost)) return start_result::wait_credit;
    const std::uint32_t id = slots_.take();
    if (id == slot_table::none || !prepare(slots_[id])) {
        context_.credits().untake(cost);
        if (id != slot_table::none) slots_.give(id);
        if (busy_ != 0) return start_result::wait_peer;  // a busy block becomes free when it is received
        r.finish(errc::no_resources);
        return start_result::begun;
    }
    slot& s = slots_[id];
    copy_out(r.from_, 0, s.memory, bytes);
    const staged_request_body body{id, static_cast<std::uint32_t>(bytes), s.open.remote().address,
                                   s.open.remote().key};
    std::byte raw[staged_request_body::wire_bytes];
    const post_result posted = context_.post_copied(staged_request, 0, r.tag_, body.store(raw));
    if (posted != post_result::done) {
        slots_.give(id);
        if (posted == post_result::failed) {
            r.finish(context_.why_failed());
            return start_result::begun;
        }
        context_.credits().untake(cost);
        return start_result::wait_room;
    }
    s.busy = true;
    ++busy_;
    ++(context_.counts().*sent_);
    if (bytes != 0) context_.connection().count_copy(bytes);
    context_.under_way();  // no goodbye before the receiver has it
    send_leaving();
    context_.sent_at_once(r);
    return start_result::begun;
}

RDMACORO_COLD delivery staged_sender::received(const wire_header& h,
                                               std::span<const std::byte> payload) noexcept {
    if (h.tag >= slots_.size() || h.flags != 0 || !payload.empty()) return context_.violation();
    const auto id = static_cast<std::uint32_t>(h.tag);
    if (!std::exchange(slots_[id].busy, false)) return context_.violation();
    --busy_;
    slots_.give(id);
    context_.settled();
    context_.room_for_sends();
    return delivery::taken;
}

RDMACORO_COLD void staged_sender::leaving() noexcept {
    leaving_ = true;
    send_leaving();
}

RDMACORO_COLD void staged_sender::fail() noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = slots_[id];
        s.busy = false;
        if (s.memory == nullptr) continue;
        s.open.reset();
        blocks_.give(std::exchange(s.memory, nullptr));
    }
    busy_ = 0;
    blocks_.trim();
}

/// A slot has its block from its first message on.
RDMACORO_COLD bool staged_sender::prepare(slot& s) noexcept {
    if (s.memory != nullptr) return true;
    std::byte* const memory = blocks_.take();
    if (memory == nullptr) return false;
    s.open = context_.expose({memory, blocks_.block_bytes()}, access_rights::remote_read);
    if (!s.open) {
        blocks_.give(memory);
        return false;
    }
    s.memory = memory;
    return true;
}

/// Once, and only where a message waits or one was sent while closing.
RDMACORO_COLD void staged_sender::send_leaving() noexcept {
    if (!leaving_ || sent_leaving_ || busy_ == 0) return;
    sent_leaving_ = context_.post_copied(staged_leaving, 0, 0, {}) == post_result::done;
}

}  // namespace rdmacoro::detail
