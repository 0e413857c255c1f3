// pending_clients: clients of a domain's listeners that have shown their connect_info and have not finished connecting.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/detail/link_timer.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <utility>

namespace rdmacoro::detail {

struct pending_tag;

/// A session that `pending_clients` can have:
///  1. it is linked into one of the queues by its list node, which it unlinks when it stops waiting; once it was admitted, it calls
///     `leave` when it has finished connecting or failed to;
///  2. `pending_begins(now)` is called when it is admitted, and `pending_since()` is that time;
///  3. `pending_admitted()` goes on with its connecting after it has waited: it asks to be admitted once more, and is;
///  4. `pending_expired()` ends its connecting.
template <class Session>
concept pending_client = std::derived_from<Session, list_node<pending_tag>> &&
                         requires(Session& s, const Session& c, time_point now) {
                             { s.pending_begins(now) } noexcept;
                             { c.pending_since() } noexcept -> std::same_as<time_point>;
                             { s.pending_admitted() } noexcept;
                             { s.pending_expired() } noexcept;
                         };

/// Bounds the resources of clients with an incomplete connection, so that those that stop midway leave room. A client that finds no room
/// waits. While some wait, the oldest admitted one is ended once its time has passed, and the newest of those that wait is admitted: it is the
/// least likely to have given up.
template <pending_client Session>
class pending_clients {
public:
    /// `again(host)` is called when one may have had its time while others wait; it calls `admit_waiting`.
    pending_clients(scheduler& by, void* host, link_timer::function again) noexcept
        : by_(by), timer_(by, host, again) {}

    /// The clients that were admitted.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool any_waiting() const noexcept { return !waiting_.empty(); }

    /// Admits `which` where there is room. False: it waits for `pending_admitted`. `grace` is the time that each has.
    [[nodiscard]] bool admit(Session& which, bool has_room, time_point now, duration grace) noexcept {
        list_node<pending_tag>& node = which;
        node.unlink();
        if (has_room) {
            ++size_;
            admitted_.push_back(which);
            which.pending_begins(now);
            return true;
        }
        waiting_.push_front(which);
        if (!timer_.queued()) timer_.set(grace);
        return false;
    }
    /// One that was admitted is pending no longer.
    void leave(Session& which) noexcept {
        static_cast<list_node<pending_tag>&>(which).unlink();
        --size_;
    }

    /// Admits those that wait as far as `has_room()` says, which is true while none is admitted. `now` is the time at the call. The
    /// network may take long for each of them: after `most_time` the others are left to the next turn.
    template <class HasRoom>
    void admit_waiting(HasRoom has_room, time_point now, duration grace) noexcept {
        bool first = true;
        while (!waiting_.empty()) {
            if (!std::exchange(first, false) && by_.now() - now >= most_time) return timer_.set({});
            if (!has_room()) {
                Session* const oldest = admitted_.front();
                if (oldest == nullptr || now - oldest->pending_since() < grace) break;
                oldest->pending_expired();
                continue;
            }
            waiting_.front()->pending_admitted();
        }
        if (any_waiting() && !timer_.queued()) timer_.set(grace);
    }

private:
    static constexpr duration most_time = std::chrono::microseconds(50);

    scheduler& by_;
    std::size_t size_ = 0;
    intrusive_list<Session, pending_tag> admitted_;  // oldest first
    intrusive_list<Session, pending_tag> waiting_;   // newest first
    link_timer timer_;
};

}  // namespace rdmacoro::detail
