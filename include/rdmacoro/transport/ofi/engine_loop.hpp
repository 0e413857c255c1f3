// The loop of a libfabric domain. Included by engine.hpp alone.
#pragma once

#include <rdmacoro/transport/ofi/engine.hpp>

namespace rdmacoro::detail::fabric {

/// A wait object is of no use to a scheduler that never sleeps.
[[nodiscard]] inline ofi_options suited_to(const scheduler& owner, ofi_options options) {
    options.may_park = options.may_park && owner.may_park();
    return options;
}

inline engine::engine(scheduler& owner, const ofi_profile& profile, const ofi_options& options)
    : owner_(owner),
      options_(suited_to(owner, options)),
      scheme_(profile.scheme),
      device_(profile, options_),
      serves_(options.one_sided.value_or(device_.profile().one_sided) == ofi_one_sided::served),
      inject_limit_(device_.inject_limit()),
      host_(host_number()),
      memory_(device_),
      registrar_(memory_),
      cache_(registrar_, options.cache),
      regions_(memory_, serves_),
      slots_(memory_, options.slot_bytes != 0 ? options.slot_bytes : device_.profile().slot_bytes),
      scratch_(std::max(inject_limit_, frame_word_bytes)) {
    const auto check = [&](bool good, const std::string& what) {
        if (!good) throw error(errc::invalid_argument, device_.name() + ": options: " + what);
    };
    check(options.credits >= card::least_credits && options.credits <= card::most_credits,
          "credits must be 8 to 1024");
    const std::size_t least = device_.profile().slot_bytes;
    check(slots_.slot_bytes() >= least && slots_.slot_bytes() <= card::most_slot,
          "slot_bytes must be " + std::to_string(least) + " bytes to 1 MiB");
    check(device_.closes_amid_gets() || slots_.slot_bytes() <= most_slot_without_gets,
          "slot_bytes must be 16384 at most with this version of libfabric");
    check(device_.profile().delivery_complete, "the provider does not say when a put has arrived");
    check(device_.longest() >= slots_.slot_bytes(), "slot_bytes is more than the provider's longest message");
    if (const int failed = slots_.reserve(options.spare_slots); failed != 0)
        throw_registration_failure(device_.name(), slots_.slab_bytes(), failed);
    if (device_.wait_fd() >= 0 && !watch(completions_, device_.wait_fd(), EPOLLIN))
        throw error(std::error_code(errno, std::system_category()),
                    device_.name() + ": watch the completion queue");
}

inline engine::~engine() {
    // What closed links have sent last still goes out, if the peers take it: who has it all hangs up. Looking for that comes
    // first: some providers do not bear to be polled when a peer in the same process is gone.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    for (;;) {
        look_at_descriptors();
        bury();
        if (leaving_.empty() || broken_ || std::chrono::steady_clock::now() > limit) break;
        progress();
    }
    while (core* c = all_.front()) {
        if (c->owned()) fatal("a libfabric domain was destroyed before its links");
        destroy(*c);
    }
    unwatch(completions_);
    unbind();
    device_.close_endpoint();
}

/// What is bound to the endpoint has to go before it.
inline void engine::unbind() noexcept {
    if (!device_.asks(FI_MR_ENDPOINT)) return;
    regions_.cut_off();
    cache_.clear();
    slots_.unregister();
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
    return any;
}

inline unsigned engine::progress() noexcept {
    if (broken_) [[unlikely]] {
        ++dry_;  // nothing comes any more: links end
        return 0;
    }
    if (!to_post_.empty()) post_receives();
    ++epoch_;
    std::array<fi_cq_msg_entry, batch> entries;  // NOLINT: the provider writes them
    unsigned came = 0;
    while (came < 8 * batch) {
        const ssize_t got = ::fi_cq_read(device_.queue(), entries.data(), batch);
        if (got > 0) {
            for (std::size_t i = 0; i < static_cast<std::size_t>(got); ++i) dispatch(entries[i]);
            came += static_cast<unsigned>(got);
            if (got == static_cast<ssize_t>(batch)) continue;
        } else if (got == -FI_EAVAIL) {
            dispatch_error();
            ++came;
            continue;
        }
        ++dry_;
        break;
    }
    for (core* c = matched_.front(); c != nullptr; c = matched_.next(*c)) came += c->matched_->progress();
    if (!stalled_.empty()) [[unlikely]] {
        intrusive_list<core, stalled_tag> turn;
        turn.splice_back(stalled_);
        while (core* c = turn.pop_front()) c->pump();
    }
    return came;
}

inline void engine::dispatch(const fi_cq_msg_entry& entry) noexcept {
    auto* const about = static_cast<operation*>(entry.op_context);
    if (about == nullptr) return;
    if (about->what == operation::kind::slot) return slot_over(static_cast<slot&>(*about), entry.len, 0);
    auto& t = static_cast<transfer&>(*about);
    t.owner->piece_over(t, 0);
}

inline void engine::dispatch_error() noexcept {
    fi_cq_err_entry entry{};
    if (::fi_cq_readerr(device_.queue(), &entry, 0) <= 0) return;
    auto* const about = static_cast<operation*>(entry.op_context);
    // An injected message that did not arrive: nobody knows whose, but the gap in the numbers of the frames tells the peer.
    if (about == nullptr) return;
    const int error = entry.err != 0 ? entry.err : FI_EIO;
    if (about->what == operation::kind::slot) return slot_over(static_cast<slot&>(*about), 0, error);
    auto& t = static_cast<transfer&>(*about);
    t.owner->piece_over(t, error);
}

inline void engine::slot_over(slot& s, std::size_t bytes, int error) noexcept {
    if (s.now == slot::use::sending) {
        --sending_;
        core* c = find(s.of);
        slots_.give(s);
        if (c != nullptr) c->slot_sent(error);
        return;
    }
    --posted_;
    ++held_;
    s.now = slot::use::holds;
    s.bytes = static_cast<std::uint32_t>(bytes);
    frame f;
    core* c = error == 0 && bytes <= slots_.slot_bytes() && f.load(s.data, bytes) ? find(f.link) : nullptr;
    if (wanted_ > device_.most_receives()) refill();
    if (c != nullptr) [[likely]]
        return c->arrived(s, f);
    if (error == 0) ++of_the_gone_.strangers;
    recycle(s);
}

/// As many as there are credits for, and the provider takes; others wait inside the provider, which promises that nothing is
/// lost (FI_RM_ENABLED).
inline void engine::post_receives() noexcept {
    while (!to_post_.empty() && posted_ < device_.most_receives()) {
        slot& s = *to_post_.first;
        const ssize_t answer = ::fi_recv(device_.endpoint(), s.data, slots_.slot_bytes(), s.descriptor,
                                         FI_ADDR_UNSPEC, &s.scratch);
        if (answer != 0) return;
        ++of_the_gone_.receive_posts;
        to_post_.pop_front();
        --queued_;
        s.now = slot::use::posted;
        ++posted_;
    }
}

inline std::size_t engine::receives_wanted() const noexcept {
    return std::min(wanted_ > held_ ? wanted_ - held_ : 0, device_.most_receives());
}
/// A slow reader must not starve the others where the provider takes fewer receives than there are credits.
inline void engine::refill() noexcept {
    while (posted_ + queued_ < receives_wanted()) {
        slot* s = slots_.take();
        if (s == nullptr) return;
        to_post_.push_back(*s);
        ++queued_;
    }
}

inline void engine::recycle(slot& s) noexcept {
    if (s.now == slot::use::holds) --held_;
    if (posted_ + queued_ >= receives_wanted()) return slots_.give(s);
    s.now = slot::use::free;
    to_post_.push_back(s);
    ++queued_;
    if (!broken_) post_receives();
}

inline bool engine::lend(slot& s) noexcept {
    if (lent_ == options_.spare_slots) return false;
    slot* spare = slots_.take();
    if (spare == nullptr) return false;
    ++lent_;
    --held_;
    s.now = slot::use::lent;
    recycle(*spare);  // in the place of the one that leaves
    return true;
}
inline void engine::give_back_lent(slot& s) noexcept {
    --lent_;
    slots_.give(s);
}

inline core* engine::find(std::uint64_t number) noexcept {
    const std::uint32_t place = place_of(number);
    core* c = place < cores_.size() ? cores_[place] : nullptr;
    return c != nullptr && c->number() == number ? c : nullptr;
}

// ---- parking

inline int engine::wake_fd() noexcept {
    if (!broken_ && (!device_.may_wait() || !stalled_.empty() || !to_post_.empty())) return -1;
    for (core* c = matched_.front(); c != nullptr; c = matched_.next(*c)) {
        if (!c->matched_->may_wait()) return -1;
    }
    return watcher_.descriptor();
}

inline bool engine::look_at_descriptors() noexcept {
    polls_ = 0;
    bool more = false;
    const bool any = watcher_.look(more) != 0;
    if (more) polls_ = polls_between_looks;
    return any;
}

// ---- regions

inline void engine::deregister(std::uint64_t key) noexcept {
    if (serves_) settle(key);
    regions_.remove(key);
}

/// Waits for what this side moves for peers in a region that is about to go.
inline void engine::settle(std::uint64_t region_key) noexcept {
    const auto touched = [&]() noexcept {
        bool any = false;
        for (core* c = all_.front(); c != nullptr; c = all_.next(*c)) {
            c->refuse(region_key);
            any |= c->touches(region_key);
        }
        return any;
    };
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (touched() && std::chrono::steady_clock::now() < limit) progress();
    if (touched()) reopen_endpoint();
}

inline void engine::cut_off(core& c, bool peer_lives) noexcept {
    if (serves_) return;  // what this side moves by itself has ended
    cache_.clear();       // so that the end of a region is that of its registration
    if (c.to_ == FI_ADDR_UNSPEC) return;
    const bool by_connection = device_.profile().access_ends_with == ofi_access::connection;
    if (by_connection && !peer_lives && disconnected(c)) return;
    // What other links get ends by itself, most likely.
    const auto limit = std::chrono::steady_clock::now() + patience;
    while (!device_.closes_amid_gets() && gets() && std::chrono::steady_clock::now() < limit) progress();
    reopen_endpoint();
}

/// Whether the provider's connection to the peer ends soon, as that of a process that died does: what was coming is gone with it.
/// Each word that is sent would begin another connection, and is answered as busy meanwhile; nobody hears it.
inline bool engine::disconnected(core& c) noexcept {
    if (options_.counters) return false;  // ofi_rxm is busy for other reasons, too, when it counts
    constexpr auto pause = std::chrono::milliseconds(2);
    auto now = std::chrono::steady_clock::now();
    const auto limit = now + patience;
    for (auto next = now; now < limit; now = std::chrono::steady_clock::now()) {
        if (now >= next) {
            c.store_word(frame_kind::credit, scratch());
            if (::fi_inject(device_.endpoint(), scratch(), frame_word_bytes, c.to_) != 0) return true;
            next = now + pause;
        }
        progress();
    }
    return false;
}

/// Whether the provider is getting something.
inline bool engine::gets() noexcept {
    for (core* c = all_.front(); c != nullptr; c = all_.next(*c)) {
        if (c->gets()) return true;
    }
    return false;
}

inline void engine::reopen_endpoint() noexcept {
    if (broken_) return;
    ++of_the_gone_.reopened;
    unwatch(completions_);
    unbind();
    bool usable = true;
    if (!device_.closes_amid_gets() && gets()) {
        ++of_the_gone_.abandoned;
        usable = device_.abandon_endpoint() == 0 && of_the_gone_.abandoned < ofi_counts::most_abandoned;
    } else {
        device_.close_endpoint();
    }
    posted_ = sending_ = 0;
    slots_.for_each([this](slot& s) noexcept {
        if (s.now == slot::use::posted) {
            s.now = slot::use::free;
            to_post_.push_back(s);
            ++queued_;
        } else if (s.now == slot::use::sending) {
            slots_.give(s);
        }
    });
    for (core* c = all_.front(); c != nullptr; c = all_.next(*c)) {
        c->fail(errc::peer_lost);
        c->endpoint_gone();
    }
    broken_ = !usable || device_.open_endpoint().failed != 0 || slots_.register_again() != 0 ||
              (device_.wait_fd() >= 0 && !watch(completions_, device_.wait_fd(), EPOLLIN));
    if (!broken_) post_receives();
}

// ---- connections

inline core* engine::make_core() noexcept {
    if (broken_) return nullptr;
    try {
        if (free_places_.empty()) {
            if (cores_.size() == (1u << 16)) return nullptr;
            free_places_.reserve(cores_.size() + 1);
            cores_.push_back(nullptr);
            free_places_.push_back(static_cast<std::uint32_t>(cores_.size() - 1));
        }
        const std::uint32_t place = free_places_.back();
        auto* made = new core(*this, numbers_.next(place));
        free_places_.pop_back();
        cores_[place] = made;
        all_.push_back(*made);
        ++connections_;
        return made;
    } catch (const std::exception&) {
        return nullptr;
    }
}

inline int engine::hold_resources(core&) noexcept {
    if (const int failed = slots_.reserve(options_.credits + core::most_staged); failed != 0) return failed;
    wanted_ += options_.credits;
    refill();
    if (!broken_) post_receives();
    return 0;
}
inline void engine::release_resources(core& c) noexcept {
    if (c.to_ != FI_ADDR_UNSPEC) device_.release(c.to_);
    wanted_ -= options_.credits;
    slots_.unreserve(options_.credits + core::most_staged);
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
    const std::uint32_t place = place_of(c.number());
    cores_[place] = nullptr;
    free_places_.push_back(place);
    --connections_;
    delete &c;
}

inline ofi_counts engine::counts() noexcept {
    ofi_counts sum = of_the_gone_;
    for (core* c = all_.front(); c != nullptr; c = all_.next(*c)) sum += c->counts();
    sum.polls = epoch_;
    return sum;
}

}  // namespace rdmacoro::detail::fabric
