// How a verbs domain opens, polls, parks and closes.
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/transport/verbs_rc/engine.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <string>

#include <fcntl.h>
#include <sys/epoll.h>

namespace rdmacoro::detail::verbs {

RDMACORO_DECL engine::engine(scheduler& owner, const verbs_options& options)
    : owner_(owner),
      options_(checked(options)),
      device_(options),
      registrar_(device_),
      cache_(registrar_, options.cache),
      regions_(device_),
      slots_(device_.domain(), (options.slot_bytes + 63) / 64 * 64),
      receive_totals_{options.spare_slots, 0, 0, {}},
      devices_(watching_, this, [](void* self) noexcept { static_cast<engine*>(self)->devices_changed(); }),
      pending_(owner, this, [](void* self) noexcept { static_cast<engine*>(self)->admit_waiting_clients(); }),
      by_number_(options.most_links) {
    by_cm_ = options.connect_by == verbs_connect::rdma_cm ||
             (options.connect_by == verbs_connect::automatic && device_.address().bytes != 0) ||
             device_.iwarp();
    check_device();
    open_queues();
    if (const int failed = slots_.reserve(options.spare_slots); failed != 0)
        throw_registration_failure(slots_.slab_bytes(), -failed);
    watch_own_descriptors();
}

/// The options, if they can be. That does not depend on the device, which is not opened before.
RDMACORO_COLD const verbs_options& engine::checked(const verbs_options& options) {
    const auto check = [](bool good, const char* what) {
        if (!good) throw error(errc::invalid_argument, std::string("verbs: option ") + what);
    };
    check(options.credits >= greeting::least_credits && options.credits <= greeting::most_credits,
          "credits must be 8 to 1024");
    check(options.slot_bytes >= greeting::least_slot && options.slot_bytes <= greeting::most_slot,
          "slot_bytes must be 4096 to 1 MiB");
    check(options.send_depth >= 32 && options.send_depth <= 4096 &&
              (options.send_depth & (options.send_depth - 1)) == 0,
          "send_depth must be a power of two from 32 to 4096");
    check(options.most_links >= 1 && options.most_links <= connection_table<session>::most,
          "most_links must be 1 to 65536");
    check(options.spare_slots <= verbs_options::most_spare_slots, "spare_slots must be 65536 at most");
    check(options.handshake_timeout > duration::zero(), "handshake_timeout must be more than 0");
    check(options.most_waiting >= 1, "most_waiting must be at least 1");
    check(options.acknowledge_timeout <= 31, "acknowledge_timeout must be 0 to 31");
    check(options.traffic_class >= -1 && options.traffic_class <= 255, "traffic_class must be -1 to 255");
    check(options.service_level >= -1 && options.service_level <= 15, "service_level must be -1 to 15");
    check(options.partition_key <= 0xffff, "partition_key must be 0 to 65535");
    check(options.gid_index >= -1 && options.gid_index <= 255, "gid_index must be -1 to 255");
    // Else the queue would have no room for a single link: half of its entries are receives where links share a receive queue.
    check(options.completion_entries >= std::max(options.send_depth + options.credits, 2 * options.credits),
          "completion_entries must be send_depth + credits at least, and twice credits");
    return options;
}

RDMACORO_DECL void engine::check_device() const {
    if (options_.connect_by == verbs_connect::tcp && device_.iwarp())
        throw error(errc::unsupported,
                    "verbs: " + device_.name() + " is an iWARP device, which connects by rdma_cm only");
    if (by_cm_ && device_.address().bytes == 0)
        throw error(errc::unsupported, "verbs: " + device_.name() +
                                           " has no IP address, which rdma_cm needs; give its network "
                                           "interface one, or set connect_by to verbs_connect::tcp");
}

RDMACORO_DECL void engine::open_queues() {
    ibv_context* const context = device_.context();
    const std::string name = device_.name();
    completion_channel_.reset(::ibv_create_comp_channel(context));
    if (completion_channel_ == nullptr) throw_system("verbs: completion channel of " + name, errno);
    shares_receives_ = device_.shares_receives();
    const char* step = "";
    if (make_bank(step) == nullptr) throw_system(std::string("verbs: ") + step + " of " + name, errno);
    cm_channel_.reset(::rdma_create_event_channel());
    if (cm_channel_ == nullptr && by_cm_)
        throw_system("verbs: event channel of rdma_cm (is the module rdma_ucm loaded?)", errno);
}

/// Nullptr: `step` failed, and `errno` is the reason.
RDMACORO_DECL bank* engine::make_bank(const char*& step) noexcept {
    const auto failed = [&step](const char* where) -> bank* {
        step = where;
        if (errno == 0) errno = ENOMEM;
        return nullptr;
    };
    std::unique_ptr<bank> made(new (std::nothrow) bank(slots_, receive_totals_));
    errno = 0;
    if (made == nullptr) return failed("memory for a completion queue");
    try {
        banks_.reserve(banks_.size() + 1);
    } catch (const std::exception&) {
        return failed("memory for a completion queue");
    }
    const auto longest = static_cast<std::size_t>(std::max(device_.attributes().max_cqe, 1));
    const std::size_t doubled = std::size_t{options_.completion_entries}
                                << std::min<std::size_t>(banks_.size(), 8);
    made->entries = std::min(doubled, longest);
    made->queue.reset(::ibv_create_cq(device_.context(), static_cast<int>(made->entries), this,
                                      completion_channel_.get(), 0));
    if (made->queue == nullptr) return failed("completion queue");
    // Of a batch that was polled, not all may be handled yet.
    made->length = static_cast<std::uint64_t>(made->queue->cqe) + batch;
    made->receives_most = made->entries;
    if (shares_receives_) {
        ibv_srq_init_attr shared{};
        shared.attr.max_wr = static_cast<std::uint32_t>(std::min<std::size_t>(
            made->entries / 2, static_cast<std::size_t>(device_.attributes().max_srq_wr)));
        shared.attr.max_sge = 1;
        made->shared.reset(::ibv_create_srq(device_.domain(), &shared));
        const bool never = errno == ENOSYS || errno == EOPNOTSUPP;
        if (made->shared == nullptr && !(never && banks_.empty())) return failed("shared receive queue");
        if (made->shared == nullptr) {
            shares_receives_ = false;
        } else {
            made->receives_most = shared.attr.max_wr;
            made->receives.open_shared(made->shared.get());
        }
    }
    return banks_.emplace_back(std::move(made)).get();
}

RDMACORO_DECL void engine::watch_own_descriptors() {
    const auto watch_own = [&](own_handler& handler, int fd, fd_handler::function call) {
        handler.self = this;
        handler.ready = call;
        if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 ||
            !watching_.watch(handler, fd, EPOLLIN))
            throw_system("verbs: descriptors of " + device_.name(), errno);
    };
    watch_own(completion_handler_, completion_channel_->fd, [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<own_handler&>(self).self->read_completion_events();
    });
    watch_own(async_handler_, device_.context()->async_fd, [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<own_handler&>(self).self->read_async_events();
    });
    // Without it, an adapter that is taken away is noticed all the same: its driver reports it.
    static_cast<void>(devices_.open(kernel_report::devices));
    if (cm_channel_ == nullptr) return;
    watch_own(cm_handler_, cm_channel_->fd, [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<own_handler&>(self).self->read_cm_events();
    });
}

RDMACORO_DECL engine::~engine() {
    // The last frames of closed links still go out, if the peers take them.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    const auto busy = [](const session& c) noexcept { return c.busy_leaving(); };
    while (table_.any_leaving(busy) && std::chrono::steady_clock::now() < limit) {
        progress();
        watching_.look();
        table_.reap();
    }
    while (session* c = table_.first()) {
        if (c->owned()) fatal("a verbs domain, or its scheduler, was destroyed before its links");
        table_.destroy(*c);
    }
    if (regions_.registered() != 0)
        fatal("a verbs domain, or its scheduler, was destroyed before a region of its memory");
    read_completion_events();
}

RDMACORO_COLD void engine::deregister(std::uint64_t key) noexcept {
    require_thread_of(&owner_, "memory for", "was deregistered");
    regions_.remove(key);
}

// ---- polling

RDMACORO_DECL bool engine::poll() noexcept {
    bool any = progress() != 0;
    if (queue_failed_) [[unlikely]]
        device_gone();
    any |= serve_in_turn(work_, [](session& c, unsigned budget) noexcept { return c.serve(budget); });
    if (table_.any_leaving()) any |= table_.reap();
    if (watching_.due(table_.any_leaving(), owner_.coarse_now())) any |= watching_.look();
    if (pending_.any_waiting()) [[unlikely]]
        admit_waiting_clients();
    ring();
    return any;
}

// ---- parking

RDMACORO_DECL void engine::arm() noexcept {
    ring();
    for (const auto& one : banks_) static_cast<void>(::ibv_req_notify_cq(one->queue.get(), 0));
    watching_.look_next();
}
RDMACORO_DECL void engine::disarm() noexcept {
    read_completion_events();
    watching_.look_next();
}

RDMACORO_DECL void engine::read_completion_events() noexcept {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    while (::ibv_get_cq_event(completion_channel_.get(), &which, &context) == 0)
        ::ibv_ack_cq_events(which, 1);
}

/// A request to connect has a queue pair made, which takes a device long: after `most_time` the other events are left to the next
/// turn.
RDMACORO_DECL void engine::read_cm_events() noexcept {
    constexpr duration most_time = std::chrono::microseconds(50);
    const time_point begun = owner_.now();
    for (bool first = true;; first = false) {
        if (!first && owner_.now() - begun >= most_time) return watching_.look_next();
        rdma_cm_event* event = nullptr;
        if (::rdma_get_cm_event(cm_channel_.get(), &event) != 0) return;
        const cm_news news(*event);
        if (news.type == RDMA_CM_EVENT_DEVICE_REMOVAL && device_.has(*event->id)) device_gone();
        // A request has an identifier of its own, and concerns its listener.
        auto* party = static_cast<cm_party*>(
            event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id->context : event->id->context);
        ::rdma_ack_cm_event(event);
        if (party != nullptr) party->cm_event(news);
    }
}

RDMACORO_DECL void engine::read_async_events() noexcept {
    ibv_async_event event{};
    while (::ibv_get_async_event(device_.context(), &event) == 0) {
        session* about = nullptr;
        switch (event.event_type) {
            case IBV_EVENT_QP_FATAL:
            case IBV_EVENT_QP_REQ_ERR:
            case IBV_EVENT_QP_ACCESS_ERR:
            case IBV_EVENT_QP_LAST_WQE_REACHED:
            case IBV_EVENT_COMM_EST: about = static_cast<session*>(event.element.qp->qp_context); break;
            default: break;
        }
        const ibv_event_type type = event.event_type;
        ::ibv_ack_async_event(&event);
        switch (type) {
            case IBV_EVENT_QP_FATAL:
            case IBV_EVENT_QP_REQ_ERR:
            case IBV_EVENT_QP_ACCESS_ERR: about->fail(errc::peer_lost); break;
            case IBV_EVENT_QP_LAST_WQE_REACHED: about->last_receive_is_over(); break;
            case IBV_EVENT_COMM_EST: about->first_message_came(); break;
            case IBV_EVENT_DEVICE_FATAL: device_gone(); break;
            case IBV_EVENT_CQ_ERR:
            case IBV_EVENT_SRQ_ERR:
                device_gone();
                break;  // new links would share that queue, and hear nothing
            default:
                break;  // a port that is down for a moment costs nothing; links notice one that stays down. Its state,
                    // LID and GIDs are asked for by each connection.
        }
    }
}

RDMACORO_COLD void engine::devices_changed() noexcept {
    if (!device_.listed()) device_gone();
}

RDMACORO_DECL void engine::fail_all(errc why) noexcept {
    for (session* c = table_.first(); c != nullptr; c = table_.next(*c)) {
        if (c->now() == session::phase::ready) c->fail(why);
    }
}

/// Links, openings and accepts end; what is destroyed later is gone already. By the driver's event, the connection manager's, or the
/// kernel's report, whichever comes first.
RDMACORO_DECL void engine::device_gone() noexcept {
    if (std::exchange(broken_, true)) return;
    // Both descriptors report an error from now on, for ever: watched, they would keep a scheduler from parking.
    watching_.unwatch(completion_handler_);
    watching_.unwatch(async_handler_);
    for (session* c = table_.first(); c != nullptr; c = table_.next(*c)) c->device_gone();
    while (device_watcher* one = watchers_.pop_front()) one->device_gone();
}

// ---- connections

RDMACORO_DECL session* engine::make_session() noexcept {
    return table_.make([this](std::uint32_t place) {
        if (place == generations_.size()) generations_.push_back(0);
        return new session(*this, place, ++generations_[place] & 0x7fff);
    });
}

/// Nullptr: `errno` is the reason.
RDMACORO_DECL bank* engine::bank_with_room() noexcept {
    const std::size_t completions = options_.send_depth + options_.credits;
    const auto has_room = [&](const bank& one) {
        return one.entries_held + completions <= one.entries &&
               (!shares_receives_ || one.receives.pool().wanted() + options_.credits <= one.receives_most);
    };
    for (const auto& one : banks_) {
        if (has_room(*one)) return one.get();
    }
    const char* step = "";
    bank* const made = make_bank(step);
    if (made != nullptr && has_room(*made)) return made;
    if (made != nullptr) {
        banks_.pop_back();  // not even an empty one has room
        errno = ENOSPC;
    }
    return nullptr;
}

/// One without messages of its last link that were not read yet: they would keep slots from the next. Nullptr: there is no memory.
RDMACORO_DECL receive_queue* engine::own_receives() noexcept {
    const auto idle = std::find_if(free_receives_.begin(), free_receives_.end(),
                                   [](const receive_queue* one) { return one->pool().held() == 0; });
    if (idle != free_receives_.end()) {
        receive_queue* const taken = *idle;
        free_receives_.erase(idle);
        return taken;
    }
    try {
        free_receives_.reserve(own_receives_.size() + 1);
        return own_receives_.emplace_back(std::make_unique<receive_queue>(slots_, receive_totals_)).get();
    } catch (const std::exception&) {
        return nullptr;
    }
}

RDMACORO_DECL failed_step engine::hold_resources(bank*& from, receive_queue*& receives) noexcept {
    constexpr const char* making_room = "make room for one more link";
    if (broken_) return {ENODEV, making_room};
    if (links_ >= options_.most_links) return {ENOSPC, making_room};
    bank* const found = bank_with_room();
    if (found == nullptr) return {errno, making_room};
    if (const int failed = slots_.reserve(options_.credits + session::most_staged); failed != 0)
        return {-failed, registering};
    receives = shares_receives_ ? &found->receives : own_receives();
    if (receives == nullptr || !receives->add_wanted(options_.credits)) {
        if (receives != nullptr && !shares_receives_) free_receives_.push_back(receives);
        slots_.unreserve(options_.credits + session::most_staged);
        return {ENOMEM, making_room};
    }
    found->entries_held += options_.send_depth + options_.credits;
    ++links_;
    receives->post();
    from = found;
    return {};
}
RDMACORO_DECL void engine::release_resources(bank& from, receive_queue& receives, bool loses) noexcept {
    from.entries_held -= options_.send_depth + options_.credits;
    --links_;
    if (loses) {
        lost_receives_ += options_.credits;
        slots_.unreserve(session::most_staged);
        return;
    }
    receives.remove_wanted(options_.credits);
    if (!shares_receives_) {
        empty_own(from, receives);
        free_receives_.push_back(&receives);
    }
    slots_.unreserve(options_.credits + session::most_staged);
}

RDMACORO_DECL void engine::empty_own(const bank& of, receive_queue& receives) noexcept {
    receives.close_own();
    // Completions of its slots may still be in the queue, where the device did not remove them.
    empty(of);
    receives.withdraw();
}

RDMACORO_DECL void engine::empty(const bank& which) noexcept {
    if (broken_) return;
    const std::uint64_t all = which.all_taken_at();
    while (which.taken < all) static_cast<void>(progress());
}

// ---- clients that have not finished connecting

RDMACORO_COLD bool engine::admit_pending(session& c) noexcept {
    return pending_.admit(c, has_room_for_client(), owner_.now(), pending_grace());
}
RDMACORO_COLD void engine::admit_waiting_clients() noexcept {
    pending_.admit_waiting([this] { return has_room_for_client(); }, owner_.now(), pending_grace());
}

RDMACORO_DECL verbs_counts engine::counts() noexcept {
    verbs_counts sum = table_.counts();
    sum.receive_posts = receive_totals_.posts;
    sum.polls = epoch_ - 1;
    sum.lost_receives = lost_receives_;
    sum.unfinished = pending_.size();
    return sum;
}

RDMACORO_DECL greeting engine::own_greeting() const noexcept {
    greeting own;
    own.slot_bytes = static_cast<std::uint32_t>(slots_.slot_bytes());
    own.credits = options_.credits;
    return own;
}

}  // namespace rdmacoro::detail::verbs
