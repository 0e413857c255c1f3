// Bodies of eager_engine.hpp.
#pragma once

#include <rdmacoro/protocol/detail/eager_engine.hpp>

#include <cstring>
#include <utility>

namespace rdmacoro::detail {

[[gnu::noinline]] RDMACORO_DECL delivery eager_engine_base::store(tag_type tag,
                                                                  std::span<const std::byte> payload,
                                                                  std::uint32_t cost) noexcept {
    if (base_.better_to_defer()) return delivery::defer;
    if (unexpected_message* m = base_.keep_message(policy_, tag, payload.size(), payload.size(), cost)) {
        copy_long(m->payload(), payload.data(), payload.size());
        m->stored = payload.size();
        base_.count_copy(payload.size());
        base_.announce(*m);
    }
    return delivery::taken;
}

RDMACORO_DECL delivery eager_engine_base::begin_payload(unsigned, const wire_header& h,
                                                        std::size_t bytes) noexcept {
    const std::uint32_t cost = message_cost(bytes);
    tag_ = h.tag;
    bytes_ = bytes;
    arrived_ = 0;
    message_ = nullptr;
    receive_ = base_.match_counted(h.tag);
    if (receive_ != nullptr) {
        if (!base_.pass(cost)) return delivery::taken;
        if (!base_.begin_fill(*receive_, bytes, tag_)) receive_ = nullptr;
        return delivery::taken;
    }
    if (base_.better_to_defer()) return delivery::defer;
    // Announced when it is complete: no receive gets half of it.
    message_ = base_.keep_message(policy_, h.tag, bytes, bytes, cost);
    return delivery::taken;
}

RDMACORO_DECL std::span<std::byte> eager_engine_base::payload_space() noexcept {
    if (receive_ != nullptr) return base_.space(*receive_, arrived_, bytes_ - arrived_);
    if (message_ != nullptr) return {message_->payload() + arrived_, bytes_ - arrived_};
    return {};
}

RDMACORO_DECL void eager_engine_base::payload_arrived(std::size_t n) noexcept {
    arrived_ += n;
    if (arrived_ < bytes_) return;
    if (receive_ != nullptr) {
        base_.end_fill(*std::exchange(receive_, nullptr), tag_, bytes_);
    } else if (unexpected_message* m = std::exchange(message_, nullptr)) {
        // A receive may have been posted since; it came after the message.
        m->stored = bytes_;
        base_.offer(*m);
    }
}

RDMACORO_COLD void eager_engine_base::cancel_send(send_request& r) noexcept {
    r.unlink();
    base_.finish_send(r, base_.revoke(r));
}

RDMACORO_DECL void eager_engine_base::fail(std::error_code reason) noexcept {
    if (receive_ != nullptr) base_.fail_fill(*std::exchange(receive_, nullptr), reason);
    if (message_ != nullptr) base_.lose_unannounced(*std::exchange(message_, nullptr));
}

}  // namespace rdmacoro::detail
