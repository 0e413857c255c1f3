// What a lane's thread does when it does not only put messages.
#pragma once

#include <rdmacoro/service/detail/gate_lane.hpp>

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD gate_lane::gate_lane(task_port& port, const gate_options& options)
    : port_(port),
      mask_(std::bit_ceil(std::max<std::size_t>(options.messages, 4)) - 1),
      message_bytes_(options.message_bytes),
      free_(std::make_unique<gate_slot*[]>(mask_ + 1)),
      ready_(std::make_unique<gate_slot*[]>(mask_ + 1)) {
    const std::size_t stride = (sizeof(gate_slot) + message_bytes_ + 63) / 64 * 64;
    memory_ = std::make_unique<std::byte[]>(stride * (mask_ + 1) + 63);
    auto* at = memory_.get();
    at += (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
    for (std::size_t i = 0; i <= mask_; ++i, at += stride)
        free_[i] = ::new (static_cast<void*>(at)) gate_slot{nullptr, nullptr, this, nullptr, 0, 0};
    news.lane = this;
}

RDMACORO_COLD gate_flow& gate_lane::find_flow(std::uint32_t peer) {
    const auto at = std::ranges::find(flows_, peer, [](const auto& one) { return one->peer; });
    if (at != flows_.end()) return *(last_ = at->get());
    flows_.push_back(std::make_unique<gate_flow>(peer));
    return *(last_ = flows_.back().get());
}

RDMACORO_DECL gate_lane::put_result gate_lane::wake() noexcept {
    if (interested_.exchange(true, std::memory_order_seq_cst)) return put_result::done;
    return port_.post(news) ? put_result::done : put_result::closed;
}

RDMACORO_DECL bool gate_lane::sleep(const std::atomic<std::uint64_t>& of, std::uint64_t target,
                                    time_point until) noexcept {
    wait_of_.store(&of, std::memory_order_relaxed);
    wait_target_.store(target, std::memory_order_relaxed);
    for (;;) {
        waits_.store(1, std::memory_order_seq_cst);
        bool reached = of.load(std::memory_order_seq_cst) >= target;
        const bool over = port_.closed() || (until != time_point::max() && monotonic_now() >= until);
        if (!reached && !over) {
            wait_for_change(waits_, 1, until);
            continue;
        }
        waits_.store(0, std::memory_order_seq_cst);
        return reached;
    }
}
RDMACORO_DECL bool gate_lane::wait_for_room(gate_flow& to, time_point until) noexcept {
    // Until half of it is back: a thread is not woken for each message.
    const std::uint64_t there = to.put - to.back.load(std::memory_order_seq_cst);
    if (there != 0) return sleep(to.back, to.put - there / 2, until);
    // All of it is back: the room is others', unless all that has come back since it was short.
    const std::uint64_t back = back_.load(std::memory_order_seq_cst);
    return has_room(to) || sleep(back_, back + 1, until);
}
RDMACORO_DECL bool gate_lane::wait_until_back(const gate_flow* of, time_point until) noexcept {
    return of != nullptr ? sleep(of->back, of->put, until) : sleep(back_, put_, until);
}
RDMACORO_DECL void gate_lane::wake_thread(bool in_any_case) noexcept {
    if (!in_any_case) {
        // Of a wait that has ended it may be half the next one's: then that thread looks once more.
        const std::atomic<std::uint64_t>* const of = wait_of_.load(std::memory_order_relaxed);
        if (of == nullptr ||
            of->load(std::memory_order_relaxed) < wait_target_.load(std::memory_order_relaxed))
            return;
    }
    if (waits_.exchange(0, std::memory_order_seq_cst) != 0) wake_threads(waits_);
}

RDMACORO_COLD void gate_lane::fail(const status& with, std::uint32_t peer) noexcept {
    if (failed_.load(std::memory_order_acquire)) return;
    error_ = with;
    error_peer_ = peer;
    failed_.store(true, std::memory_order_release);
}
RDMACORO_COLD std::error_code gate_lane::take_error(std::uint32_t& peer) noexcept {
    if (!failed_.load(std::memory_order_acquire)) return {};
    const std::error_code first = error_;
    peer = error_peer_;
    failed_.store(false, std::memory_order_release);
    return first;
}

}  // namespace rdmacoro::detail
