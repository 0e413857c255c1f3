// The turn of a tcp engine. Included by engine.hpp alone.
#pragma once

#include <rdmacoro/transport/tcp/engine.hpp>

#include <bit>
#include <cerrno>

#include <unistd.h>

namespace rdmacoro::detail {

inline tcp_engine::~tcp_engine() {
    for (tcp_core* core = all_.front(); core != nullptr; core = all_.next(*core)) {
        if (core->owned_) fatal("a tcp domain was destroyed before its links, connections and listeners");
    }
    destroy_dead();
    while (!all_.empty() && ring_.wait()) {
        ring_.reap();
        destroy_dead();
    }
    // On another thread than its own the ring can't wait; the kernel ends the requests when it is closed.
    while (tcp_core* core = all_.front()) {
        if (core->fd_ >= 0) ::close(core->fd_);
        delete core;
    }
}

inline tcp_core& tcp_engine::add_socket(int fd) {
    auto* core = new (std::nothrow) tcp_core(*this, fd);
    if (core == nullptr) {
        ::close(fd);
        throw_error(errc::no_resources, "tcp: memory for a socket");
    }
    all_.push_back(*core);
    ++sockets_;
    return *core;
}

inline io_uring_sqe& tcp_engine::request(tcp_core& core, tcp_request what) noexcept {
    io_uring_sqe& sqe = ring_.request();
    at_once_ += what == tcp_request::receive_now || what == tcp_request::send_now ? 1 : 0;
    sqe.user_data = reinterpret_cast<std::uint64_t>(&core) | static_cast<unsigned>(what);
    return sqe;
}

inline bool tcp_engine::poll() noexcept {
    ++turn_;
    collect_batch();
    submit_sends();
    for (tcp_core* core : batch_) core->submit_receive();
    if (ring_.wants_enter() || ring_.has_completions()) submit_and_reap();
    bool moved = serve_all();
    if (parking_) {
        // Requests that were just made must be with the kernel before the scheduler sleeps.
        while (ring_.wants_enter()) submit_and_reap();
        moved = moved || !work_.empty() || !readable_.empty() || !dirty_.empty();
    }
    if (!moved) ++epoch_;
    destroy_dead();
    return moved;
}

inline void tcp_engine::submit_sends() noexcept {
    intrusive_list<tcp_core, tcp_dirty_tag> now;
    now.splice_back(dirty_);
    while (tcp_core* core = now.pop_front()) {
        if (core->lets_wait()) {
            core->mark_dirty();
        } else {
            core->submit_send();
        }
    }
}

/// Collects who can receive, then asks each where to. Asking may call sinks.
inline void tcp_engine::collect_batch() noexcept {
    batch_.clear();
    for (tcp_core* core : hot_) {
        if (core->can_receive()) batch_.push_back(core);
    }
    for (std::size_t tries = 0; tries < most_batched && !readable_.empty(); ++tries) {
        tcp_core* core = readable_.pop_front();
        if (core->can_receive()) batch_.push_back(core);
    }
    std::size_t prepared = 0;
    for (tcp_core* core : batch_) {
        if (!core->can_receive()) continue;
        if (core->prepare_receive()) {
            batch_[prepared++] = core;
        } else {
            core->try_soon();
        }
    }
    batch_.resize(prepared);
}

inline bool tcp_engine::serve_all() noexcept {
    bool moved = false;
    // Who is served may be marked again, for the next time.
    intrusive_list<tcp_core, tcp_work_tag> now;
    now.splice_back(work_);
    intrusive_list<tcp_core, tcp_readable_tag> again;
    again.splice_back(stalled_);
    while (tcp_core* core = now.pop_front()) moved |= core->serve(serve_budget) != 0;
    while (tcp_core* core = again.pop_front()) moved |= core->serve(serve_budget) != 0;
    return moved;
}

inline void tcp_engine::submit_and_reap() noexcept {
    do {
        if (ring_.wants_enter()) ring_.enter();
        ring_.reap();
    } while (at_once_ != 0);
    vectors_used_ = 0;
    headers_used_ = 0;
}

inline void tcp_engine::completed(std::uint64_t user_data, int outcome, unsigned flags) noexcept {
    const auto what = static_cast<tcp_request>(user_data & 63);
    if (what == tcp_request::cancel) return;
    tcp_core& core = *reinterpret_cast<tcp_core*>(user_data & ~std::uint64_t{63});
    switch (what) {
        case tcp_request::receive_now:
            --at_once_;
            core.receive_outcome_ = outcome;
            core.received_ = true;
            if (outcome == -EAGAIN && core.hot_) [[likely]] {
                core.received_ = false;
                return;
            }
            if (core.phase_ != tcp_core::phase::closed) core.mark_work();
            return;
        case tcp_request::send_now:
            --at_once_;
            core.sent(outcome);
            return;
        case tcp_request::receive_many:
            if ((flags & IORING_CQE_F_BUFFER) != 0) {
                const auto buffer = static_cast<std::uint16_t>(flags >> IORING_CQE_BUFFER_SHIFT);
                if (outcome > 0 && core.phase_ != tcp_core::phase::closed) {
                    core.hold(buffer, static_cast<std::uint32_t>(outcome));
                } else {
                    ring_.return_buffer(buffer);
                }
            }
            if (outcome == -EINVAL) ring_.give_up_multishot();
            if ((flags & IORING_CQE_F_MORE) == 0) {
                core.armed_ = tcp_core::armed::no;
                --core.in_kernel_;
            }
            break;
        case tcp_request::readable:
            core.armed_ = tcp_core::armed::no;
            --core.in_kernel_;
            if (core.phase_ != tcp_core::phase::closed) {
                core.try_soon();
                return;
            }
            break;
        case tcp_request::writable:
            core.full_ = false;
            --core.in_kernel_;
            core.mark_dirty();
            break;
        case tcp_request::connect:
        case tcp_request::accept:
            core.outcome_ = outcome;
            --core.in_kernel_;
            if (what == tcp_request::accept && core.phase_ == tcp_core::phase::closed && outcome >= 0)
                ::close(outcome);
            break;
        case tcp_request::cancel: return;
    }
    if (core.phase_ != tcp_core::phase::closed) {
        core.mark_work();
    } else if (core.in_kernel_ == 0) {
        if (core.fd_ >= 0) ::close(std::exchange(core.fd_, -1));
        if (!core.owned_) bury(core);
    }
}

inline void tcp_engine::bury(tcp_core& core) noexcept {
    list_node<tcp_work_tag>& node = core;
    if (!node.linked()) dead_.push_back(core);
}

inline void tcp_engine::destroy_dead() noexcept {
    while (tcp_core* core = dead_.pop_front()) {
        --sockets_;
        static_cast<list_node<tcp_all_tag>&>(*core).unlink();
        delete core;
    }
}

inline void tcp_engine::enable() noexcept {
    if (std::exchange(enabled_, true)) return;
    ring_.enable();
    if (ring_.reserve_files(options_.most_polled)) {
        places_ = static_cast<std::uint32_t>((std::uint64_t{1} << options_.most_polled) - 1);
    }
}

inline void tcp_engine::heat(tcp_core& core) noexcept {
    core.hot_ = true;
    hot_.push_back(&core);
    const int place = std::countr_zero(places_);
    if (places_ == 0 || !ring_.set_file(static_cast<unsigned>(place), core.fd_)) return;
    core.place_ = place;
    places_ &= places_ - 1;
}

inline void tcp_engine::cool(tcp_core& core) noexcept {
    if (!core.hot_) return;
    core.hot_ = false;
    if (core.place_ >= 0) {
        ring_.set_file(static_cast<unsigned>(core.place_), -1);
        places_ |= std::uint32_t{1} << core.place_;
        core.place_ = -1;
    }
    for (tcp_core*& place : hot_) {
        if (place == &core) {
            place = hot_.back();
            hot_.pop_back();
            return;
        }
    }
}

/// Takes its place from a hot link that has been quiet.
inline bool tcp_engine::make_place() noexcept {
    for (tcp_core* core : hot_) {
        if (turn_ - core->last_active_turn_ < cold_after) continue;
        cool(*core);
        core->try_soon();  // arms when nothing is there
        return true;
    }
    return false;
}

inline void tcp_engine::arm() noexcept {
    parking_ = true;
    ring_.arm();
    for (tcp_core* core : hot_) {
        if (core->can_receive()) core->arm_receive();
    }
    while (ring_.wants_enter()) submit_and_reap();
}

inline void tcp_engine::disarm() noexcept {
    parking_ = false;
    ring_.disarm();
}

}  // namespace rdmacoro::detail
