// The turn of a tcp engine..
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_DECL tcp_region_memory::tcp_region_memory() {
    void* memory = ::mmap(nullptr, entries * sizeof(region_entry), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw error(errc::no_resources, "tcp: memory for the table of regions");
    first_ = static_cast<region_entry*>(memory);
}

RDMACORO_DECL tcp_region_memory::~tcp_region_memory() { ::munmap(first_, entries * sizeof(region_entry)); }

RDMACORO_DECL tcp_engine::tcp_engine(scheduler& owner, const tcp_options& options)
    : owner_(owner),
      options_(options),
      regions_(region_memory_.table()),
      chunks_(new tcp_chunk_pool),
      liveness_(owner, options.peer_timeout),
      ring_(*this, options.features) {
    if (options.most_waiting == 0)
        throw error(errc::invalid_argument, "tcp: option most_waiting must be at least 1");
    if (options.handshake_timeout <= duration::zero())
        throw error(errc::invalid_argument, "tcp: option handshake_timeout must be more than 0");
    options_.most_polled = std::min(options_.most_polled, most_hot);
    hot_.reserve(options_.most_polled);
    batch_.reserve(options_.most_polled + most_batched);
}

RDMACORO_DECL tcp_engine::~tcp_engine() {
    for (tcp_session* session = all_.front(); session != nullptr; session = all_.next(*session)) {
        if (session->owned_)
            fatal(
                "a tcp domain, or its scheduler, was destroyed before its links, connections and listeners");
    }
    if (regions_.registered() != 0)
        fatal("a tcp domain, or its scheduler, was destroyed before a region of its memory");
    destroy_dead();
    while (!all_.empty() && ring_.wait()) {
        ring_.reap();
        destroy_dead();
    }
    // On another thread than its own the ring can't wait; the kernel ends the requests when it is closed.
    while (tcp_session* session = all_.front()) {
        if (session->fd_ >= 0) ::close(session->fd_);
        delete session;
    }
}

RDMACORO_COLD void tcp_engine::deregister(std::uint64_t key) noexcept {
    require_thread_of(&owner_, "memory for", "was deregistered");
    regions_.remove(key);
}

RDMACORO_DECL tcp_session& tcp_engine::add_socket(int fd) {
    auto* session = new (std::nothrow) tcp_session(*this, fd);
    if (session == nullptr) {
        ::close(fd);
        throw_error(errc::no_resources, "tcp: memory for a socket");
    }
    all_.push_back(*session);
    ++sockets_;
    return *session;
}

RDMACORO_DECL io_uring_sqe& tcp_engine::request(tcp_session& session, tcp_request what) noexcept {
    io_uring_sqe& sqe = ring_.request();
    at_once_ += what == tcp_request::receive_now || what == tcp_request::send_now ? 1 : 0;
    sqe.user_data = reinterpret_cast<std::uint64_t>(&session) | static_cast<unsigned>(what);
    return sqe;
}

RDMACORO_DECL bool tcp_engine::poll() noexcept {
    ++turn_;
    sent_ = 0;
    if (at_rest()) {
        ++epoch_;
        return false;
    }
    collect_batch();
    submit_sends();
    for (tcp_session* session : batch_) session->submit_receive();
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

RDMACORO_DECL void tcp_engine::submit_sends() noexcept {
    intrusive_list<tcp_session, tcp_dirty_tag> now;
    now.splice_back(dirty_);
    while (sent_ < most_sent) {
        tcp_session* const session = now.pop_front();
        if (session == nullptr) return;
        if (session->lets_wait()) {
            session->mark_dirty();
        } else {
            session->submit_send();
        }
    }
    now.splice_back(dirty_);  // the rest are the first in the next poll
    dirty_.splice_back(now);
}

/// Arms the hot links that have been quiet.
RDMACORO_DECL void tcp_engine::cool_quiet() noexcept {
    for (std::size_t i = 0; i < hot_.size();) {
        tcp_session& session = *hot_[i];
        const bool idle = session.can_receive();
        if (turn_ - session.last_active_turn_ < cold_after || (!idle && !session.stalled_)) {
            ++i;
            continue;
        }
        cool(session);
        if (idle) session.arm_receive();  // a stalled one is tried when its sink takes messages again
    }
}

/// Collects the sockets that can receive, then asks each for memory. Asking may call sinks.
RDMACORO_DECL void tcp_engine::collect_batch() noexcept {
    batch_.clear();
    cool_quiet();
    for (tcp_session* session : hot_) {
        if (session->can_receive()) batch_.push_back(session);
    }
    intrusive_list<tcp_session, tcp_readable_tag> later;
    for (std::size_t tries = 0; tries < most_batched && !readable_.empty(); ++tries) {
        tcp_session* session = readable_.pop_front();
        if (session->can_receive()) {
            batch_.push_back(session);
        } else if (session->waited_polls_ != 0) {
            later.push_back(*session);  // its messages gather; then it receives again
        }
    }
    readable_.splice_back(later);
    std::size_t prepared = 0;
    for (tcp_session* session : batch_) {
        if (!session->can_receive()) continue;
        if (session->prepare_receive()) {
            batch_[prepared++] = session;
        } else {
            session->try_soon();
        }
    }
    batch_.resize(prepared);
}

RDMACORO_DECL bool tcp_engine::serve_all() noexcept {
    bool moved = false;
    // A socket that is served may be marked again, for the next time.
    intrusive_list<tcp_session, tcp_work_tag> now;
    now.splice_back(work_);
    intrusive_list<tcp_session, tcp_readable_tag> again;
    again.splice_back(stalled_);
    // Once a poll has handed up its budget of messages, the remaining links are read, as sinks have given them memory, but hand up none.
    // They come before links that were marked again.
    unsigned left = messages_of_a_poll;
    intrusive_list<tcp_session, tcp_work_tag> had_turn;
    const auto serve = [&](tcp_session& session) noexcept {
        const unsigned done = session.serve(std::min(left, messages_of_a_link));
        if (done == 0) return;
        moved = true;
        if (left == 0) return;
        left -= std::min(left, done);
        if (left == 0) had_turn.splice_back(work_);
    };
    while (tcp_session* session = now.pop_front()) serve(*session);
    while (tcp_session* session = again.pop_front()) serve(*session);
    if (!had_turn.empty()) [[unlikely]]
        work_.splice_back(had_turn);
    return moved;
}

RDMACORO_DECL void tcp_engine::submit_and_reap() noexcept {
    do {
        if (ring_.wants_enter()) ring_.enter();
        ring_.reap();
    } while (at_once_ != 0);
    vectors_used_ = 0;
    headers_used_ = 0;
}

RDMACORO_DECL void tcp_engine::completed(std::uint64_t user_data, int outcome, unsigned flags) noexcept {
    const auto what = static_cast<tcp_request>(user_data & 63);
    if (what == tcp_request::cancel) return;
    tcp_session& session = *reinterpret_cast<tcp_session*>(user_data & ~std::uint64_t{63});
    switch (what) {
        case tcp_request::receive_now:
            --at_once_;
            session.receive_outcome_ = outcome;
            session.received_ = true;
            if (outcome == -EAGAIN && session.hot_) [[likely]] {
                session.received_ = false;
                return;
            }
            if (session.phase_ != tcp_session::phase::closed) session.mark_work();
            return;
        case tcp_request::send_now:
            --at_once_;
            session.sent(outcome);
            return;
        case tcp_request::receive_many:
            if ((flags & IORING_CQE_F_BUFFER) != 0) {
                const auto buffer = static_cast<std::uint16_t>(flags >> IORING_CQE_BUFFER_SHIFT);
                if (outcome > 0 && session.phase_ != tcp_session::phase::closed) {
                    session.hold(buffer, static_cast<std::uint32_t>(outcome));
                } else {
                    ring_.return_buffer(buffer);
                }
            }
            if (outcome == -EINVAL) ring_.give_up_multishot();
            if (outcome == -ENOBUFS) session.found_no_buffer_ = true;
            if ((flags & IORING_CQE_F_MORE) == 0) {
                session.armed_ = tcp_session::armed::no;
                --session.in_kernel_;
            }
            break;
        case tcp_request::readable:
            session.armed_ = tcp_session::armed::no;
            --session.in_kernel_;
            if (session.phase_ != tcp_session::phase::closed) {
                session.try_soon();
                return;
            }
            break;
        case tcp_request::writable:
            session.full_ = false;
            --session.in_kernel_;
            session.mark_dirty();
            break;
        case tcp_request::connect:
        case tcp_request::accept:
            session.outcome_ = outcome;
            --session.in_kernel_;
            if (what == tcp_request::accept && session.phase_ == tcp_session::phase::closed && outcome >= 0)
                ::close(outcome);
            break;
        case tcp_request::cancel: return;
    }
    if (session.phase_ != tcp_session::phase::closed) {
        session.mark_work();
    } else if (session.in_kernel_ == 0) {
        if (session.fd_ >= 0) ::close(std::exchange(session.fd_, -1));
        if (!session.owned_) reap(session);
    }
}

RDMACORO_DECL void tcp_engine::reap(tcp_session& session) noexcept {
    list_node<tcp_work_tag>& node = session;
    if (!node.linked()) dead_.push_back(session);
}

RDMACORO_DECL void tcp_engine::destroy_dead() noexcept {
    while (tcp_session* session = dead_.pop_front()) {
        --sockets_;
        static_cast<list_node<tcp_all_tag>&>(*session).unlink();
        delete session;
    }
}

RDMACORO_DECL void tcp_engine::enable() noexcept {
    if (std::exchange(enabled_, true)) return;
    ring_.enable();
    if (ring_.reserve_files(options_.most_polled)) {
        places_ = static_cast<std::uint32_t>((std::uint64_t{1} << options_.most_polled) - 1);
    }
}

RDMACORO_DECL void tcp_engine::heat(tcp_session& session) noexcept {
    session.hot_ = true;
    hot_.push_back(&session);
    const int place = std::countr_zero(places_);
    if (places_ == 0 || !ring_.set_file(static_cast<unsigned>(place), session.fd_)) return;
    session.place_ = place;
    places_ &= places_ - 1;
}

RDMACORO_DECL void tcp_engine::cool(tcp_session& session) noexcept {
    if (!session.hot_) return;
    session.hot_ = false;
    if (session.place_ >= 0) {
        ring_.set_file(static_cast<unsigned>(session.place_), -1);
        places_ |= std::uint32_t{1} << session.place_;
        session.place_ = -1;
    }
    for (tcp_session*& place : hot_) {
        if (place == &session) {
            place = hot_.back();
            hot_.pop_back();
            return;
        }
    }
}

RDMACORO_DECL void tcp_engine::arm() noexcept {
    parking_ = true;
    ring_.arm();
    for (std::size_t i = 0; i < hot_.size();) {
        tcp_session& session = *hot_[i];
        if (!session.can_receive()) {
            ++i;
            continue;
        }
        cool(session);
        session.arm_receive();
    }
    while (ring_.wants_enter()) submit_and_reap();
}

RDMACORO_DECL void tcp_engine::disarm() noexcept {
    parking_ = false;
    ring_.disarm();
}

}  // namespace rdmacoro::detail
