// How a verbs domain opens, polls, parks and closes. Included by engine.hpp alone.
#pragma once

#include <rdmacoro/transport/verbs_rc/engine.hpp>

namespace rdmacoro::detail::verbs {

inline engine::engine(scheduler& owner, const verbs_options& options)
    : owner_(owner),
      options_(options),
      device_(options),
      registrar_(device_),
      cache_(registrar_, options.cache),
      regions_(device_),
      slots_(device_.domain(), (options.slot_bytes + 63) / 64 * 64),
      buckets_(256) {
    const auto check = [&](bool good, const char* what) {
        if (!good) throw error(errc::invalid_argument, std::string("verbs: option ") + what);
    };
    check(options.credits >= greeting::least_credits && options.credits <= greeting::most_credits,
          "credits must be 8 to 1024");
    check(options.slot_bytes >= greeting::least_slot && options.slot_bytes <= greeting::most_slot,
          "slot_bytes must be 4096 to 1 MiB");
    check(options.send_depth >= 32 && options.send_depth <= 4096 &&
              (options.send_depth & (options.send_depth - 1)) == 0,
          "send_depth must be a power of two from 32 to 4096");
    by_cm_ = options.connect_by == verbs_connect::rdma_cm ||
             (options.connect_by == verbs_connect::automatic && device_.address().bytes != 0) ||
             device_.iwarp();
    if (options.connect_by == verbs_connect::tcp && device_.iwarp())
        throw error(errc::unsupported,
                    "verbs: " + device_.name() + " is an iWARP device, which connects by rdma_cm only");
    if (by_cm_ && device_.address().bytes == 0)
        throw error(errc::unsupported, "verbs: " + device_.name() +
                                           " has no IP address, which rdma_cm needs; give its network "
                                           "interface one, or set connect_by to verbs_connect::tcp");

    ibv_context* const context = device_.context();
    const std::string name = device_.name();
    completion_channel_.reset(::ibv_create_comp_channel(context));
    if (completion_channel_ == nullptr) throw_system("verbs: completion channel of " + name, errno);
    entries_ = std::min<std::size_t>(options.completion_entries,
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
    if (const int failed = slots_.reserve(options.spare_slots); failed != 0)
        throw_registration_failure(slots_.slab_bytes(), -failed);

    const auto watch_own = [&](own_handler& handler, int fd, fd_handler::function call) {
        handler.self = this;
        handler.ready = call;
        if (::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK) != 0 || !watch(handler, fd, EPOLLIN))
            throw_system("verbs: descriptors of " + name, errno);
    };
    watch_own(completion_handler_, completion_channel_->fd, [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<own_handler&>(self).self->read_completion_events();
    });
    watch_own(async_handler_, context->async_fd, [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<own_handler&>(self).self->read_async_events();
    });
    if (cm_channel_ != nullptr) {
        watch_own(cm_handler_, cm_channel_->fd, [](fd_handler& self, std::uint32_t) noexcept {
            static_cast<own_handler&>(self).self->read_cm_events();
        });
    }
}

inline engine::~engine() {
    // What closed links have sent last still goes out, if the peers take it.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    const auto busy = [this]() noexcept {
        for (core* c = leaving_.front(); c != nullptr; c = leaving_.next(*c)) {
            if (c->busy_leaving()) return true;
        }
        return false;
    };
    while (busy() && std::chrono::steady_clock::now() < limit) {
        progress();
        look_at_descriptors();
        bury();
    }
    while (core* c = all_.front()) {
        if (c->owned()) fatal("a verbs domain was destroyed before its links");
        destroy(*c);
    }
    read_completion_events();
}

// ---- polling

inline bool engine::poll() noexcept {
    bool any = progress() != 0;
    intrusive_list<core, work_tag> turn;
    turn.splice_back(work_);
    while (core* c = turn.pop_front()) any |= c->serve(links_budget) != 0;
    if (!leaving_.empty()) any |= bury();
    if (++polls_ >= (awaited_ != 0 || !leaving_.empty() ? polls_between_looks_soon : polls_between_looks))
        any |= look_at_descriptors();
    ring();
    return any;
}

/// What was posted goes.
inline void engine::ring() noexcept {
    while (core* c = dirty_.pop_front()) c->flush();
}

inline unsigned engine::progress() noexcept {
    ring();
    if (!to_post_.empty()) post_receives();
    ++epoch_;
    std::array<ibv_wc, batch> completions;  // NOLINT: the device writes them
    unsigned came = 0;
    for (int got = batch; got == batch && came < 8 * batch;) {
        got = ::ibv_poll_cq(queue_.get(), batch, completions.data());
        if (got < 0) [[unlikely]] {
            fail_all(errc::peer_lost);
            break;
        }
        for (int i = 0; i < got; ++i) dispatch(completions[static_cast<std::size_t>(i)]);
        came += static_cast<unsigned>(got);
        if (got < batch) ++dry_;
    }
    return came;
}

// A completion's number says what it is. Of sends: the highest bit, the connection's generation (15 bits) and index (16),
// and the low half of its sequence number. Of receives: the slot's address.
inline void engine::dispatch(const ibv_wc& wc) noexcept {
    if ((wc.wr_id >> 63) != 0) {
        const auto index = static_cast<std::uint32_t>(wc.wr_id >> 32) & 0xffff;
        core* c = index < cores_.size() ? cores_[index] : nullptr;
        if (c != nullptr && c->generation() == (static_cast<std::uint32_t>(wc.wr_id >> 48) & 0x7fff))
            c->sent(static_cast<std::uint32_t>(wc.wr_id), wc.status);
        return;
    }
    slot& s = *reinterpret_cast<slot*>(wc.wr_id);
    --posted_;
    ++in_hand_;
    core* c = find(wc.qp_num);
    if (wc.status == IBV_WC_SUCCESS && c != nullptr) [[likely]]
        return c->arrived(s, wc.byte_len);
    recycle(s);
    if (c != nullptr && wc.status != IBV_WC_SUCCESS) c->fail(errc_of(wc.status));
}

inline void engine::post_receives() noexcept {
    constexpr std::size_t most = 16;
    std::array<ibv_recv_wr, most> requests;  // NOLINT: set below
    std::array<ibv_sge, most> pieces;        // NOLINT
    while (!to_post_.empty()) {
        std::size_t count = 0;
        for (; count < most && !to_post_.empty(); ++count) {
            slot& s = *to_post_.pop_front();
            pieces[count] = {reinterpret_cast<std::uintptr_t>(s.data),
                             static_cast<std::uint32_t>(slots_.slot_bytes()), s.lkey};
            requests[count] = {};
            requests[count].wr_id = reinterpret_cast<std::uintptr_t>(&s);
            requests[count].sg_list = &pieces[count];
            requests[count].num_sge = 1;
            if (count != 0) requests[count - 1].next = &requests[count];
        }
        ibv_recv_wr* refused = nullptr;
        ++receive_posts_;
        const int failed = ::ibv_post_srq_recv(receive_queue_.get(), requests.data(), &refused);
        for (std::size_t i = count; failed != 0 && i-- > 0;) {
            to_post_.push_front(*reinterpret_cast<slot*>(requests[i].wr_id));
            --count;
            if (&requests[i] == refused) break;
        }
        posted_ += count;
        unposted_ -= count;
        if (failed != 0) return;  // credits are not given back before a later try
    }
    ++receives_epoch_;
}

inline void engine::recycle(slot& s) noexcept {
    --in_hand_;
    surplus_ = posted_ + unposted_ + in_hand_ >= wanted_;
    if (!surplus_) {
        to_post_.push_back(s);
        ++unposted_;
    } else {
        slots_.give(s);
    }
}

inline bool engine::lend(slot&) noexcept {
    if (lent_ == options_.spare_slots) return false;
    slot* spare = slots_.take();
    if (spare == nullptr) return false;
    ++lent_;
    recycle(*spare);  // in the place of the one that leaves
    return true;
}
inline void engine::give_back_lent(slot& s) noexcept {
    --lent_;
    slots_.give(s);
}

// ---- parking

inline void engine::arm() noexcept {
    ring();
    static_cast<void>(::ibv_req_notify_cq(queue_.get(), 0));
    polls_ = polls_between_looks;
}
inline void engine::disarm() noexcept {
    read_completion_events();
    polls_ = polls_between_looks;
}

inline void engine::read_completion_events() noexcept {
    ibv_cq* which = nullptr;
    void* context = nullptr;
    while (::ibv_get_cq_event(completion_channel_.get(), &which, &context) == 0)
        ::ibv_ack_cq_events(which, 1);
}

inline bool engine::look_at_descriptors() noexcept {
    polls_ = 0;
    bool more = false;
    const bool any = watcher_.look(more) != 0;
    if (more) polls_ = polls_between_looks;
    return any;
}

inline void engine::read_cm_events() noexcept {
    constexpr int most = 64;
    for (int n = 0; n < most; ++n) {
        rdma_cm_event* event = nullptr;
        if (::rdma_get_cm_event(cm_channel_.get(), &event) != 0) return;
        const cm_news news(*event);
        // A request comes on an identifier of its own; its listener is whose business it is.
        auto* party = static_cast<cm_party*>(
            event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->listen_id->context : event->id->context);
        ::rdma_ack_cm_event(event);
        if (party != nullptr) party->cm_event(news);
    }
}

inline void engine::read_async_events() noexcept {
    ibv_async_event event{};
    while (::ibv_get_async_event(device_.context(), &event) == 0) {
        core* about = nullptr;
        switch (event.event_type) {
            case IBV_EVENT_QP_FATAL:
            case IBV_EVENT_QP_REQ_ERR:
            case IBV_EVENT_QP_ACCESS_ERR:
            case IBV_EVENT_QP_LAST_WQE_REACHED:
                about = static_cast<core*>(event.element.qp->qp_context);
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

inline void engine::fail_all(errc why) noexcept {
    for (core* c = all_.front(); c != nullptr; c = all_.next(*c)) {
        if (c->now() == core::phase::ready) c->fail(why);
    }
}

// ---- connections

inline core* engine::make_core() noexcept {
    try {
        if (free_indices_.empty()) {
            if (cores_.size() == (1u << 16)) return nullptr;
            free_indices_.reserve(cores_.size() + 1);
            generations_.push_back(0);
            cores_.push_back(nullptr);
            free_indices_.push_back(static_cast<std::uint32_t>(cores_.size() - 1));
        }
        const std::uint32_t index = free_indices_.back();
        auto* made = new core(*this, index, ++generations_[index] & 0x7fff);
        free_indices_.pop_back();
        cores_[index] = made;
        all_.push_back(*made);
        ++connections_;
        return made;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

inline int engine::hold_resources() noexcept {
    const std::size_t completions = options_.send_depth + options_.credits;
    if (entries_held_ + completions > entries_ || wanted_ + options_.credits > receives_most_) return ENOSPC;
    if (const int failed = slots_.reserve(options_.credits + core::most_staged); failed != 0) return -failed;
    entries_held_ += completions;
    wanted_ += options_.credits;
    while (posted_ + unposted_ + in_hand_ < wanted_) {
        slot* s = slots_.take();
        if (s == nullptr) break;
        to_post_.push_back(*s);
        ++unposted_;
    }
    post_receives();
    return 0;
}
inline void engine::release_resources() noexcept {
    entries_held_ -= options_.send_depth + options_.credits;
    wanted_ -= options_.credits;
    slots_.unreserve(options_.credits + core::most_staged);
}

inline core* engine::find(std::uint32_t number) noexcept {
    core* c = buckets_[number % buckets_.size()];
    while (c != nullptr && c->number() != number) c = c->next_of_bucket;
    return c;
}
inline void engine::add_queue_pair(core& c) noexcept {
    core*& first = buckets_[c.number() % buckets_.size()];
    c.next_of_bucket = first;
    first = &c;
}
inline void engine::remove_queue_pair(core& c) noexcept {
    core** at = &buckets_[c.number() % buckets_.size()];
    while (*at != nullptr && *at != &c) at = &(*at)->next_of_bucket;
    if (*at != nullptr) *at = c.next_of_bucket;
}

inline bool engine::bury() noexcept {
    bool any = false;
    for (core* c = leaving_.front(); c != nullptr;) {
        core* after = leaving_.next(*c);
        if (c->leave_step(false)) {
            destroy(*c);
            any = true;
        }
        c = after;
    }
    return any;
}

inline void engine::destroy(core& c) noexcept {
    static_cast<void>(c.leave_step(true));
    of_the_gone_ += c.counts();
    cores_[c.index()] = nullptr;
    free_indices_.push_back(c.index());
    --connections_;
    delete &c;
}

inline verbs_counts engine::counts() noexcept {
    verbs_counts sum = of_the_gone_;
    for (core* c = all_.front(); c != nullptr; c = all_.next(*c)) sum += c->counts();
    sum.receive_posts = receive_posts_;
    sum.polls = epoch_ - 1;
    return sum;
}

}  // namespace rdmacoro::detail::verbs
