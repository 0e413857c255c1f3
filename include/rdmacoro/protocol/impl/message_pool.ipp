// Bodies of message_pool.hpp.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/protocol/message_pool.hpp>

namespace rdmacoro {

namespace detail {

RDMACORO_COLD pool_state::pool_state(std::uint64_t units, bool grows)
    : total_(units),
      store_(new message_store(static_cast<std::size_t>(units) * credit_bytes)),
      grows_(grows) {}

RDMACORO_COLD void pool_state::belong_to(const scheduler& owner) {
    if (owner_ != nullptr && owner_ != &owner)
        throw_error(errc::invalid_argument, "message_pool: it belongs to another scheduler");
    owner_ = &owner;
}

RDMACORO_COLD void pool_state::allow(std::uint32_t budget) noexcept {
    if (grows_ && total_ / 16 < budget) total_ = std::uint64_t{budget} * 16;
}

RDMACORO_COLD void pool_state::run_short(const pool_holder& link) noexcept {
    for (int n = 0; n < told_at_once; ++n) {
        pool_holder* const next = holders_.pop_front();
        if (next == nullptr) return;
        holders_.push_back(*next);
        if (next != &link && next->short_of_memory != nullptr) next->short_of_memory(next->self);
    }
}

}  // namespace detail

RDMACORO_COLD message_pool::message_pool(std::size_t bytes, bool grows)
    : state_(new detail::pool_state(bytes / detail::credit_bytes, grows)) {}

RDMACORO_COLD std::size_t message_pool::total() const noexcept {
    return static_cast<std::size_t>(state_->total()) * detail::credit_bytes;
}

RDMACORO_COLD std::size_t message_pool::granted() const noexcept {
    return static_cast<std::size_t>(state_->taken()) * detail::credit_bytes;
}

}  // namespace rdmacoro
