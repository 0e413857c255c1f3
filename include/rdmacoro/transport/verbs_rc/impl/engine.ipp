// How a verbs domain opens, polls, parks and closes.
#pragma once

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
      options_(options),
      device_(options),
      registrar_(device_),
      cache_(registrar_, options.cache),
      regions_(device_),
      slots_(device_.domain(), (options.slot_bytes + 63) / 64 * 64),
      receives_(slots_, options.spare_slots),
      buckets_(256) {
    by_cm_ = options.connect_by == verbs_connect::rdma_cm ||
             (options.connect_by == verbs_connect::automatic && device_.address().bytes != 0) ||
             device_.iwarp();
    check_options();
    open_queues();
    if (const int failed = slots_.reserve(options.spare_slots); failed != 0)
        throw_registration_failure(slots_.slab_bytes(), -failed);
    watch_own_descriptors();
}

RDMACORO_DECL void engine::check_options() const {
    const auto check = [](bool good, const char* what) {
        if (!good) throw error(errc::invalid_argument, std::string("verbs: option ") + what);
    };
    check(options_.credits >= greeting::least_credits && options_.credits <= greeting::most_credits,
          "credits must be 8 to 1024");
    check(options_.slot_bytes >= greeting::least_slot && options_.slot_bytes <= greeting::most_slot,
          "slot_bytes must be 4096 to 1 MiB");
    check(options_.send_depth >= 32 && options_.send_depth <= 4096 &&
              (options_.send_depth & (options_.send_depth - 1)) == 0,
          "send_depth must be a power of two from 32 to 4096");
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
    entries_ = std::min<std::size_t>(options_.completion_entries,
                                     static_cast<std::size_t>(std::max(device_.attributes().max_cqe, 1)));
    queue_.reset(::ibv_create_cq(context, static_cast<int>(entries_), this, completion_channel_.get(), 0));
    if (queue_ == nullptr) throw_system("verbs: completion queue of " + name, errno);
    ibv_srq_init_attr shared{};
    shared.attr.max_wr = static_cast<std::uint32_t>(
        std::min<std::size_t>(entries_ / 2, static_cast<std::size_t>(device_.attributes().max_srq_wr)));
    shared.attr.max_sge = 1;
    receive_queue_.reset(::ibv_create_srq(device_.domain(), &shared));
    if (receive_queue_ == nullptr) throw_system("verbs: shared receive queue of " + name, errno);
    receives_most_ = shared.attr.max_wr;
    cm_channel_.reset(::rdma_create_event_channel());
    if (cm_channel_ == nullptr && by_cm_)
        throw_system("verbs: event channel of rdma_cm (is the module rdma_ucm loaded?)", errno);
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

// ---- polling

RDMACORO_DECL bool engine::poll() noexcept {
    bool any = progress() != 0;
    intrusive_list<session, work_tag> turn;
    turn.splice_back(work_);
    while (session* c = turn.pop_front()) any |= c->serve(links_budget) != 0;
    if (table_.any_leaving()) any |= table_.reap();
    if (watching_.due(table_.any_leaving(), owner_.coarse_now())) any |= watching_.look();
    ring();
    return any;
}

RDMACORO_DECL void engine::post_receives() noexcept {
    constexpr std::size_t most = 16;
    std::array<ibv_recv_wr, most> requests;  // NOLINT: set below
    std::array<ibv_sge, most> pieces;        // NOLINT
    while (receives_.queued() != 0) {
        std::size_t count = 0;
        for (; count < most; ++count) {
            slot* const s = receives_.next_to_post();
            if (s == nullptr) break;
            pieces[count] = {reinterpret_cast<std::uintptr_t>(s->data),
                             static_cast<std::uint32_t>(slots_.slot_bytes()), s->lkey};
            requests[count] = {};
            requests[count].wr_id = reinterpret_cast<std::uintptr_t>(s);
            requests[count].sg_list = &pieces[count];
            requests[count].num_sge = 1;
            if (count != 0) requests[count - 1].next = &requests[count];
        }
        ibv_recv_wr* refused = nullptr;
        ++receive_posts_;
        if (::ibv_post_srq_recv(receive_queue_.get(), requests.data(), &refused) != 0) {
            while (count-- > 0) {
                receives_.not_posted(*reinterpret_cast<slot*>(requests[count].wr_id));
                if (&requests[count] == refused) break;
            }
            return;  // credits are not returned before a later try
        }
    }
    ++receives_epoch_;
}

// ---- parking

RDMACORO_DECL void engine::arm() noexcept {
    ring();
    static_cast<void>(::ibv_req_notify_cq(queue_.get(), 0));
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

RDMACORO_DECL void engine::read_cm_events() noexcept {
    constexpr int most = 64;
    for (int n = 0; n < most; ++n) {
        rdma_cm_event* event = nullptr;
        if (::rdma_get_cm_event(cm_channel_.get(), &event) != 0) return;
        const cm_news news(*event);
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
                about = static_cast<session*>(event.element.qp->qp_context);
                break;
            default: break;
        }
        const ibv_event_type type = event.event_type;
        ::ibv_ack_async_event(&event);
        switch (type) {
            case IBV_EVENT_QP_FATAL:
            case IBV_EVENT_QP_REQ_ERR:
            case IBV_EVENT_QP_ACCESS_ERR: about->fail(errc::peer_lost); break;
            case IBV_EVENT_QP_LAST_WQE_REACHED: about->last_receive_is_over(); break;
            case IBV_EVENT_DEVICE_FATAL:
            case IBV_EVENT_CQ_ERR:
            case IBV_EVENT_SRQ_ERR: fail_all(errc::peer_lost); break;
            default:
                break;  // a port that is down for a moment costs nothing; links notice one that stays down
        }
    }
}

RDMACORO_DECL void engine::fail_all(errc why) noexcept {
    for (session* c = table_.first(); c != nullptr; c = table_.next(*c)) {
        if (c->now() == session::phase::ready) c->fail(why);
    }
}

// ---- connections

RDMACORO_DECL session* engine::make_session() noexcept {
    return table_.make([this](std::uint32_t place) {
        if (place == generations_.size()) generations_.push_back(0);
        return new session(*this, place, ++generations_[place] & 0x7fff);
    });
}

RDMACORO_DECL int engine::hold_resources() noexcept {
    const std::size_t completions = options_.send_depth + options_.credits;
    if (entries_held_ + completions > entries_ || receives_.wanted() + options_.credits > receives_most_)
        return ENOSPC;
    if (const int failed = slots_.reserve(options_.credits + session::most_staged); failed != 0)
        return -failed;
    entries_held_ += completions;
    receives_.add_wanted(options_.credits);
    post_receives();
    return 0;
}
RDMACORO_DECL void engine::release_resources() noexcept {
    entries_held_ -= options_.send_depth + options_.credits;
    receives_.remove_wanted(options_.credits);
    slots_.unreserve(options_.credits + session::most_staged);
}

RDMACORO_DECL void engine::add_queue_pair(session& c) noexcept {
    session*& first = buckets_[c.number() % buckets_.size()];
    c.next_of_bucket = first;
    first = &c;
}
RDMACORO_DECL void engine::remove_queue_pair(session& c) noexcept {
    session** at = &buckets_[c.number() % buckets_.size()];
    while (*at != nullptr && *at != &c) at = &(*at)->next_of_bucket;
    if (*at != nullptr) *at = c.next_of_bucket;
}

RDMACORO_DECL verbs_counts engine::counts() noexcept {
    verbs_counts sum = table_.counts();
    sum.receive_posts = receive_posts_;
    sum.polls = epoch_ - 1;
    return sum;
}

RDMACORO_DECL greeting engine::own_greeting() const noexcept {
    greeting own;
    own.slot_bytes = static_cast<std::uint32_t>(slots_.slot_bytes());
    own.credits = options_.credits;
    return own;
}

}  // namespace rdmacoro::detail::verbs
