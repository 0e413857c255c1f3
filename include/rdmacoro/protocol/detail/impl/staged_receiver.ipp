// Bodies of detail/staged_receiver.hpp.
#pragma once

#include <rdmacoro/protocol/detail/staged_receiver.hpp>

#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD staged_receiver::staged_receiver(rendezvous_context& context, std::size_t limit) noexcept
    : piecewise_streams(context, slot_type_of<slot, owing_slot>),
      limit_(limit),
      blocks_(limit, 1, most_staged) {}

RDMACORO_COLD delivery staged_receiver::requested(const wire_header& h,
                                                  std::span<const std::byte> payload) noexcept {
    staged_request_body body;
    if (h.flags != 0 || !body.load(payload, limit_) || !slots_.in_sequence(body.block))
        return context_.violation();
    if (!slots_.reach(body.block)) {
        context_.close(make_error_code(errc::no_resources));
        return delivery::taken;
    }
    slot& s = at(body.block);
    if (s.now != state::none || s.owed != 0) return context_.violation();
    const std::uint32_t cost = staged_cost(body.length, peer_leaves_, context_.credits().granted());
    receive_request* const r = context_.match(h.tag);
    if (r == nullptr && context_.connection().better_to_defer()) return delivery::defer;
    s.total = body.length;
    s.tag = h.tag;
    s.transfer.there.count = 0;
    s.transfer.there.add({body.address, staged_bytes(s.total), body.key});
    if (r != nullptr) {
        if (context_.pass(cost)) {
            match(body.block, *r);
        } else {
            context_.connection().fail_fill(*r, make_error_code(errc::protocol_violation));
        }
        return delivery::taken;
    }
    unexpected_message* const m = context_.store(h.tag, s.total, cost);
    if (m == nullptr) return delivery::taken;
    m->stream = body.block;
    m->complete = false;
    s.now = state::stored;
    s.message = m;
    context_.announce(*m);
    if (peer_leaves_) fetch(body.block);
    return delivery::taken;
}

RDMACORO_COLD delivery staged_receiver::leaving(const wire_header& h,
                                                std::span<const std::byte> payload) noexcept {
    if (h.tag != 0 || h.flags != 0 || !payload.empty() || std::exchange(peer_leaves_, true))
        return context_.violation();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        if (at(id).now == state::stored) fetch(id);
    }
    return delivery::taken;
}

RDMACORO_COLD void staged_receiver::matched(unexpected_message& m, receive_request& r) noexcept {
    const std::uint32_t id = m.stream;
    slot& s = at(id);
    s.message = nullptr;
    context_.connection().free(m);
    if (s.now == state::stored) {
        match(id, r);
    } else if (context_.connection().begin_fill(r, s.total, s.tag)) {
        s.request = &r;  // it is being got already
    }
}

RDMACORO_COLD bool staged_receiver::forget(receive_request& r) noexcept {
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        if (s.request != &r) continue;
        if (s.withdrawn) return false;  // canceled before
        if (s.now != state::getting || s.block != nullptr) {
            s.request = nullptr;  // the data arrives in a block of this side, and is dropped there
            return true;
        }
        if (!stop(id)) {
            s.withdrawn = true;
            return false;
        }
        s.request = nullptr;
        over(id);
        return true;
    }
    return true;
}

RDMACORO_COLD void staged_receiver::fail(std::error_code reason) noexcept {
    forget_transfers();
    for (std::uint32_t id = 0; id < slots_.size(); ++id) {
        slot& s = at(id);
        if (unexpected_message* m = std::exchange(s.message, nullptr)) context_.connection().lose(*m);
        if (receive_request* r = std::exchange(s.request, nullptr))
            context_.connection().fail_fill(*r, reason);
        if (s.block != nullptr) blocks_.give(std::exchange(s.block, nullptr));
        s.withdrawn = false;
        s.now = state::none;
    }
    blocks_.trim();
}

RDMACORO_COLD bool staged_receiver::refused(std::uint32_t id) noexcept {
    return at(id).now == state::refused;
}

RDMACORO_COLD void staged_receiver::match(std::uint32_t id, receive_request& r) noexcept {
    slot& s = at(id);
    connection_base& connection = context_.connection();
    if (!connection.begin_fill(r, s.total, s.tag)) {
        over(id);
        return;
    }
    if (s.total == 0) {
        connection.end_fill(r, s.tag, 0);
        over(id);
        return;
    }
    s.request = &r;
    const mutable_buffers into = connection.destination(r, s.total);
    if (into.contiguous() && meets_alignment(into, s.total, context_.link_capabilities().get_alignment)) {
        // No memory behind its end is touched.
        s.now = state::getting;
        get(id, into, s.total);
    } else if (!get_to_block(id)) {
        s.request = nullptr;
        connection.fail_fill(r, make_error_code(errc::no_resources));
        over(id);
    }
}

/// The sender leaves: messages without a receive are stored here, whole.
RDMACORO_COLD void staged_receiver::fetch(std::uint32_t id) noexcept {
    slot& s = at(id);
    if (s.total == 0) {
        if (store_whole(s)) over(id);
    } else if (!get_to_block(id)) {
        context_.close(make_error_code(errc::no_resources));
    }
}

/// False: memory is short.
RDMACORO_COLD bool staged_receiver::get_to_block(std::uint32_t id) noexcept {
    slot& s = at(id);
    s.block = blocks_.take();
    if (s.block == nullptr) return false;
    s.now = state::getting;
    const std::size_t bytes = staged_bytes(s.total);
    get(id, std::span<std::byte>(s.block, bytes), bytes);
    return true;
}

RDMACORO_COLD void staged_receiver::transferred(std::uint32_t id, std::error_code outcome) noexcept {
    slot& s = at(id);
    if (outcome && !is_refusal(outcome)) {
        end_link(outcome);
        return;
    }
    connection_base& connection = context_.connection();
    if (std::exchange(s.withdrawn, false))
        connection.fail_fill(*std::exchange(s.request, nullptr), make_error_code(errc::canceled));
    if (outcome) {
        s.now = state::refused;
        await_reason(id);
        return;
    }
    if (receive_request* r = std::exchange(s.request, nullptr)) {
        if (s.block != nullptr) connection.fill(*r, 0, {s.block, s.total});
        connection.end_fill(*r, s.tag, s.total);
    } else if (s.message != nullptr && !store_whole(s)) {
        return;
    }
    over(id);
}

/// False: the link is down.
RDMACORO_COLD bool staged_receiver::store_whole(slot& s) noexcept {
    if (context_.connection().complete(*s.message, {s.block, s.total})) {
        s.message = nullptr;
        return true;
    }
    context_.close(make_error_code(errc::no_resources));
    return false;
}

/// The sender's block is not needed any more.
RDMACORO_COLD void staged_receiver::over(std::uint32_t id) noexcept {
    slot& s = at(id);
    if (s.block != nullptr) blocks_.give(std::exchange(s.block, nullptr));
    s.now = state::none;
    owe(id, owes_received);
}

RDMACORO_COLD post_result staged_receiver::send_owed(std::uint32_t id, std::uint8_t) noexcept {
    return context_.post_copied(staged_received, 0, id, {});
}

}  // namespace rdmacoro::detail
