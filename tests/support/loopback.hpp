#pragma once

// A transport for tests: both ends of every link in one process and on one scheduler, with nothing in between but lists
// that a test can look into. It does what any transport may do, on demand: holds messages back, has no room, finishes
// posts later, announces long messages before their payload comes, lends or does not.

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/semaphore.hpp>
#include <rdmacoro/memory/region_table.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro::test {

class loopback_domain;

/// One direction of a loopback link. A test changes the first part whenever it likes.
struct loopback_lane {
    static constexpr std::size_t unlimited = static_cast<std::size_t>(-1);

    bool held = false;             ///< nothing is handed up
    std::size_t room = unlimited;  ///< messages that fit; more are answered `retry`
    bool defers = false;           ///< posts are answered `posted`, and done when they are handed up
    std::size_t announces_above = unlimited;  ///< longer payloads are announced, and come in pieces
    std::size_t piece = 1000;                 ///< bytes of such a piece; one comes at each poll
    bool lends = true;                        ///< `keep` gives memory
    bool defers_one_sided = false;  ///< get and put of the writing end are done at its polls, unless `held`
    std::size_t one_sided_steps = unlimited;  ///< so many of those are still done, at one poll or several
    std::size_t one_sided_room =
        unlimited;                      ///< gets and puts that may be under way; more are answered `retry`
    std::size_t exposures = unlimited;  ///< the writing end can expose so many more pieces of memory
    bool touches = false;    ///< the writing end is in the middle of an access to memory, closed or not
    std::size_t claims = 4;  ///< shared copies that the writing end may have open
    bool helps = true;       ///< the writing end copies its part of shared copies
    std::uint64_t gets = 0;  ///< of the writing end, ever
    std::uint64_t puts = 0;
    std::uint64_t copied_together = 0;  ///< bytes that the writing end copied as its part of shared copies

    struct packet {
        message_header header{};
        std::vector<std::byte> data;
        const_buffers borrowed{};  ///< while `waiting` is set the payload is still here
        completion* waiting = nullptr;
    };
    std::deque<packet> packets;
    std::uint64_t polls = 0;               ///< of the writing end's link
    std::uint64_t paused = 0;              ///< messages at which the sink paused
    std::vector<completion*> transmitted;  ///< to be told at the writer's next poll
    bool closed = false;                   ///< by the writing end
    bool broken = false;                   ///< posts fail, though the link is not down yet
    std::size_t posts_until_down =
        unlimited;             ///< messages that are still taken; the post of the next one ends the link
    std::uint64_t posted = 0;  ///< messages, ever
    std::uint64_t retries = 0;

    // Of the writing end, as an `in_place_link`.
    struct prepared_memory {
        const std::byte* first;
        std::size_t bytes;
    };
    std::vector<prepared_memory> prepared;
    bool refuses_to_prepare = false;
    duration prepare_takes{};  ///< on `prepare_clock`
    manual_clock* prepare_clock = nullptr;
    std::uint64_t staged = 0;    ///< messages by `post`
    std::uint64_t in_place = 0;  ///< messages by `post_in_place`

    [[nodiscard]] bool is_prepared(std::span<const std::byte> memory) const noexcept {
        return std::any_of(prepared.rbegin(), prepared.rend(), [&](const prepared_memory& p) {
            return memory.data() >= p.first && memory.data() + memory.size() <= p.first + p.bytes;
        });
    }
    /// Memory was unmapped: nothing of it is prepared any more.
    void unmapped(std::span<const std::byte> memory) {
        std::erase_if(prepared, [&](const prepared_memory& p) {
            return p.first < memory.data() + memory.size() && memory.data() < p.first + p.bytes;
        });
    }

    static void copy_out_of(packet& p) {
        p.data.resize(p.borrowed.size());
        rdmacoro::detail::copy_out(p.borrowed, 0, p.data.data(), p.data.size());
    }
};

/// One block that both ends copy: `front` and `back` bytes are claimed from its two ends.
struct loopback_shared_copy {
    std::size_t bytes = 0;
    std::size_t front = 0;
    std::size_t back = 0;
    bool open = false;
    [[nodiscard]] std::size_t left() const noexcept { return bytes - front - back; }
};

/// Both directions of a loopback link, and its two ends. Lane 0: from the connecting end.
struct loopback_wire {
    loopback_lane lanes[2];
    std::vector<loopback_shared_copy> shared[2];  ///< opened by that end
    loopback_domain* domains[2] = {nullptr, nullptr};
    std::shared_ptr<void> beside;  ///< what a transport built on this one keeps for both ends
    capabilities offered{.inline_bytes = 48,
                         .max_message = 16384,
                         .eager_bytes = 4096,
                         .segment_bytes = 16384,
                         .get_alignment = 1,
                         .one_sided = true,
                         .one_sided_offloaded = true,
                         .needs_registration = false,
                         .atomics = false,
                         .put_before_send = true,
                         .revokes_at_once = true};
};

/// A loopback link as its domain sees it.
class loopback_pollable : public rdmacoro::detail::list_node<loopback_pollable> {
public:
    virtual unsigned poll(unsigned budget) noexcept = 0;

protected:
    ~loopback_pollable() { unlink(); }
};

class loopback_connection {
public:
    loopback_connection() noexcept = default;
    loopback_connection(std::shared_ptr<loopback_wire> wire, unsigned side) noexcept
        : wire_(std::move(wire)), side_(side) {}
    loopback_connection(loopback_connection&&) noexcept = default;
    loopback_connection& operator=(loopback_connection&&) noexcept = default;
    ~loopback_connection() {
        if (wire_) wire_->lanes[side_].closed = true;
    }

    [[nodiscard]] const std::shared_ptr<loopback_wire>& wire() const noexcept { return wire_; }
    [[nodiscard]] unsigned side() const noexcept { return side_; }
    [[nodiscard]] std::shared_ptr<loopback_wire> release() noexcept { return std::move(wire_); }

private:
    std::shared_ptr<loopback_wire> wire_;
    unsigned side_ = 0;
};

struct loopback_backlog {
    std::deque<loopback_connection> waiting;
    semaphore arrived{0, false};
    loopback_domain* domain = nullptr;
};

class loopback_listener {
public:
    loopback_listener(std::string name, loopback_domain& domain)
        : name_(std::move(name)), backlog_(std::make_unique<loopback_backlog>()) {
        if (!names().emplace(name_, backlog_.get()).second) {
            throw error(errc::address_in_use, "loopback://" + name_ + ": choose another name");
        }
        backlog_->domain = &domain;
    }
    loopback_listener(loopback_listener&&) noexcept = default;
    loopback_listener& operator=(loopback_listener&&) noexcept = default;
    ~loopback_listener() {
        if (backlog_) names().erase(name_);
    }

    task<loopback_connection> accept() { return accept_from(*backlog_); }
    [[nodiscard]] std::string address() const { return name_; }

    [[nodiscard]] static std::map<std::string, loopback_backlog*>& names() {
        static thread_local std::map<std::string, loopback_backlog*> all;
        return all;
    }

private:
    static task<loopback_connection> accept_from(loopback_backlog& backlog) {
        co_await backlog.arrived.acquire();
        loopback_connection next = std::move(backlog.waiting.front());
        backlog.waiting.pop_front();
        co_return next;
    }

    std::string name_;
    std::unique_ptr<loopback_backlog> backlog_;
};

class loopback_domain final : public progress_source, public rdmacoro::detail::region_owner {
public:
    explicit loopback_domain(scheduler& owner) : owner_(owner) { owner_.add_source(*this); }
    ~loopback_domain() override {
        while (links_.pop_front() != nullptr) {}  // they may outlive us
    }

    task<loopback_connection> connect(std::string_view address) { return connect_to(*this, plain(address)); }
    task<loopback_listener> listen(std::string_view address) { return listen_on(*this, plain(address)); }

    [[nodiscard]] region register_memory(std::span<std::byte> memory, access_rights rights) {
        return region(*this, memory, regions_.add(memory, rights));
    }
    [[nodiscard]] scheduler& owner() noexcept { return owner_; }
    [[nodiscard]] rdmacoro::detail::region_table& regions() noexcept { return regions_; }
    void add_link(loopback_pollable& link) noexcept { links_.push_back(link); }

    void deregister(std::uint64_t key) noexcept override { regions_.remove(key); }
    bool poll() noexcept override {
        bool any = false;
        for (loopback_pollable* link = links_.front(); link != nullptr;) {
            loopback_pollable* after = links_.next(*link);
            any |= link->poll(64) != 0;
            link = after;
        }
        return any;
    }

private:
    static std::string plain(std::string_view address) {
        if (address.substr(0, 11) == "loopback://") address.remove_prefix(11);
        return std::string(address);
    }
    static task<loopback_connection> connect_to(loopback_domain& self, std::string name) {
        const auto found = loopback_listener::names().find(name);
        if (found == loopback_listener::names().end()) {
            throw error(errc::connection_refused, "loopback://" + name + ": there is no listener");
        }
        loopback_backlog& backlog = *found->second;
        auto wire = std::make_shared<loopback_wire>();
        wire->domains[0] = &self;
        wire->domains[1] = backlog.domain;
        backlog.waiting.emplace_back(wire, 1);
        backlog.arrived.release();
        co_return loopback_connection(std::move(wire), 0);
    }
    static task<loopback_listener> listen_on(loopback_domain& self, std::string name) {
        if (name.empty()) throw error(errc::address_invalid, "loopback://: a name is missing");
        co_return loopback_listener(std::move(name), self);
    }

    scheduler& owner_;
    std::vector<rdmacoro::detail::region_entry> table_{1024};
    rdmacoro::detail::region_table regions_{table_};
    rdmacoro::detail::intrusive_list<loopback_pollable> links_;
};

template <class Sink>
class loopback_link final : public loopback_pollable {
public:
    loopback_link(loopback_connection made, Sink& sink)
        : sink_(sink), side_(made.side()), wire_(made.release()) {
        wire_->domains[side_]->add_link(*this);
    }
    loopback_link(const loopback_link&) = delete;
    loopback_link& operator=(const loopback_link&) = delete;
    ~loopback_link() { shut(make_error_code(errc::closed)); }

    [[nodiscard]] post_result post(const message_header& header, const const_buffers& payload,
                                   completion& c) noexcept {
        loopback_lane& lane = out();
        const post_result answer = may_post(lane);
        if (answer != post_result::done) return answer;
        ++lane.posted;
        ++lane.staged;
        lane.packets.push_back({header, {}, payload, lane.defers ? &c : nullptr});
        if (lane.defers) return post_result::posted;
        loopback_lane::copy_out_of(lane.packets.back());
        return post_result::done;
    }
    /// The payload stays borrowed until it is handed up.
    [[nodiscard]] post_result post_in_place(const message_header& header, const const_buffers& payload,
                                            completion& c) noexcept {
        loopback_lane& lane = out();
        const post_result answer = may_post(lane);
        if (answer != post_result::done) return answer;
        ++lane.posted;
        ++lane.in_place;
        lane.packets.push_back({header, {}, payload, &c});
        return post_result::posted;
    }
    [[nodiscard]] bool prepare_in_place(std::span<const std::byte> memory) noexcept {
        loopback_lane& lane = out();
        if (lane.prepare_clock != nullptr) lane.prepare_clock->advance(lane.prepare_takes);
        if (lane.refuses_to_prepare) return false;
        if (!lane.is_prepared(memory)) lane.prepared.push_back({memory.data(), memory.size()});
        return true;
    }
    [[nodiscard]] bool in_place(std::span<const std::byte> memory) noexcept {
        return out().is_prepared(memory);
    }
    [[nodiscard]] post_result post_copied(const message_header& header,
                                          const const_buffers& payload) noexcept {
        loopback_lane& lane = out();
        const post_result answer = may_post(lane);
        if (answer != post_result::done) return answer;
        ++lane.posted;
        lane.packets.push_back({header, {}, payload, nullptr});
        loopback_lane::copy_out_of(lane.packets.back());
        return post_result::done;
    }
    [[nodiscard]] post_result get(const remote_region& there, std::span<std::byte> into,
                                  completion& c) noexcept {
        ++out().gets;
        return begin({true, there, into.data(), &c});
    }
    [[nodiscard]] post_result put(std::span<const std::byte> from, const remote_region& there,
                                  completion& c) noexcept {
        ++out().puts;
        return begin({false, there, const_cast<std::byte*>(from.data()), &c});
    }
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        if (out().exposures == 0) return {};
        if (out().exposures != loopback_lane::unlimited) --out().exposures;
        loopback_domain& mine = *wire_->domains[side_];
        return rdmacoro::detail::try_register(mine, mine.regions(), memory, rights);
    }

    [[nodiscard]] bool touches_closed_memory() noexcept {
        if (!down_ && in().touches) wants_end_of_touch_ = true;
        return !down_ && in().touches;
    }

    [[nodiscard]] shared_copy_id open_shared_copy(std::size_t bytes) noexcept {
        auto& all = wire_->shared[side_];
        const auto is_free = [](const loopback_shared_copy& c) { return !c.open; };
        auto at = std::find_if(all.begin(), all.end(), is_free);
        if (at == all.end()) {
            if (all.size() >= out().claims) return no_shared_copy;
            at = all.emplace(all.end());
        }
        *at = {bytes, 0, 0, true};
        return static_cast<shared_copy_id>(at - all.begin());
    }
    void close_shared_copy(shared_copy_id id) noexcept { wire_->shared[side_][id].open = false; }
    [[nodiscard]] post_result copy_from_front(shared_copy_id id, const remote_region& there,
                                              std::span<std::byte> into, completion& c) noexcept {
        return begin_together({true, there, into.data(), &c, 1 - side_, id});
    }
    [[nodiscard]] post_result copy_from_back(shared_copy_id id, std::span<const std::byte> from,
                                             const remote_region& there, completion& c) noexcept {
        return begin_together({false, there, const_cast<std::byte*>(from.data()), &c, side_, id});
    }

    [[nodiscard]] bool revoke(completion& c) noexcept {
        for (loopback_lane::packet& p : out().packets) {
            if (p.waiting != &c) continue;
            loopback_lane::copy_out_of(p);
            p.waiting = nullptr;
            return true;
        }
        if (std::erase(out().transmitted, &c) != 0) return true;
        std::erase_if(transfers_, [&](const transfer& t) { return t.done == &c; });
        return false;
    }

    unsigned poll(unsigned budget) noexcept override {
        ++out().polls;
        unsigned moved = 0;
        while (!down_ && !out().transmitted.empty()) {
            completion* c = out().transmitted.front();
            out().transmitted.erase(out().transmitted.begin());
            c->done(*c, {});
            ++moved;
        }
        while (!down_ && moved < budget && !transfers_.empty() && !out().held && out().one_sided_steps != 0) {
            if (out().one_sided_steps != loopback_lane::unlimited) --out().one_sided_steps;
            transfer t = transfers_.front();
            transfers_.erase(transfers_.begin());
            ++moved;
            const std::optional<errc> verdict = t.copy == no_shared_copy ? move(t) : copy_some(t);
            if (!verdict) {
                transfers_.push_back(t);
                break;  // as much as is copied at one poll
            }
            t.done->done(*t.done, make_error_code(*verdict));
        }
        while (!down_ && moved < budget && !in().held && !in().packets.empty()) {
            if (!hand_up()) break;
            ++moved;
            if (announced_) break;  // the next piece comes at the next poll
        }
        if (!down_ && wants_room_ && out().packets.size() < out().room &&
            transfers_.size() < out().one_sided_room) {
            wants_room_ = false;
            sink_.writable();
            ++moved;
        }
        if (!down_ && wants_end_of_touch_ && !in().touches) {
            wants_end_of_touch_ = false;
            sink_.writable();
            ++moved;
        }
        if (!down_ && in().closed && in().packets.empty()) {
            close(make_error_code(errc::peer_lost));
            ++moved;
        }
        return moved;
    }

    [[nodiscard]] lent_buffer keep() noexcept {
        if (!delivering_ || !in().lends) return {};
        kept_ = true;
        auto* kept = new std::vector<std::byte>(std::move(in().packets.front().data));
        return lent_buffer(
            *kept,
            [](void* owner, std::uint64_t) noexcept { delete static_cast<std::vector<std::byte>*>(owner); },
            kept, 0);
    }

    void close(std::error_code reason) noexcept {
        if (down_) return;
        shut(reason);
        sink_.link_down(reason);
    }

    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return wire_->offered; }
    [[nodiscard]] scheduler& owner() noexcept { return wire_->domains[side_]->owner(); }
    [[nodiscard]] std::string peer_name() const { return "loopback"; }

    /// The queue that this end writes to, and the one that it reads from.
    [[nodiscard]] loopback_lane& out() noexcept { return wire_->lanes[side_]; }
    [[nodiscard]] loopback_lane& in() noexcept { return wire_->lanes[1 - side_]; }
    [[nodiscard]] bool down() const noexcept { return down_; }
    [[nodiscard]] loopback_wire& wire() noexcept { return *wire_; }

private:
    struct transfer {
        bool read;
        remote_region there;
        std::byte* local;
        completion* done;
        unsigned claim_of = 0;  // the end that opened `copy`
        shared_copy_id copy = no_shared_copy;
        bool admitted = false;
    };
    static constexpr std::size_t copied_at_once = 1000;

    post_result may_post(loopback_lane& lane) noexcept {
        if (down_ || lane.broken) return post_result::failed;
        if (lane.packets.size() < lane.room) {
            if (lane.posts_until_down == 0) {
                close(make_error_code(errc::peer_lost));
                return post_result::failed;
            }
            if (lane.posts_until_down != loopback_lane::unlimited) --lane.posts_until_down;
            return post_result::done;
        }
        ++lane.retries;
        wants_room_ = true;
        return post_result::retry;
    }

    post_result begin(const transfer& t) noexcept {
        if (down_ || out().broken) return post_result::failed;
        if (transfers_.size() >= out().one_sided_room) {
            ++out().retries;
            wants_room_ = true;
            return post_result::retry;
        }
        if (!out().defers_one_sided && check(t) == errc::ok) {
            move(t);
            return post_result::done;
        }
        transfers_.push_back(t);
        // Where the end of a region stops nothing, what is under way goes on whatever becomes of it.
        transfers_.back().admitted = !wire_->offered.revokes_at_once && check(t) == errc::ok;
        return post_result::posted;
    }
    post_result begin_together(const transfer& t) noexcept {
        if (down_ || out().broken) return post_result::failed;
        if (transfers_.size() >= out().one_sided_room) return post_result::retry;
        transfers_.push_back(t);
        return post_result::posted;
    }
    /// One piece of a shared copy. Nothing: there is more to come.
    std::optional<errc> copy_some(transfer& t) noexcept {
        auto& all = wire_->shared[t.claim_of];
        if (t.copy >= all.size() || !all[t.copy].open || all[t.copy].bytes != t.there.length)
            return errc::bad_key;
        loopback_shared_copy& shared = all[t.copy];
        if (const errc verdict = check(t); verdict != errc::ok) return verdict;
        if (!t.read && !out().helps) return {};
        const std::size_t now = std::min(shared.left(), copied_at_once);
        if (now == 0) return errc::ok;
        const std::size_t at = t.read ? shared.front : shared.bytes - shared.back - now;
        (t.read ? shared.front : shared.back) += now;
        auto* there = reinterpret_cast<std::byte*>(t.there.address) + at;
        std::memcpy(t.read ? t.local + at : there, t.read ? there : t.local + at, now);
        out().copied_together += now;
        return shared.left() == 0 ? std::optional(errc::ok) : std::nullopt;
    }
    errc check(const transfer& t) noexcept {
        return wire_->domains[1 - side_]->regions().check(t.there.key, t.there.address, t.there.length,
                                                          t.read ? access_rights::remote_read
                                                                 : access_rights::remote_write);
    }
    errc move(const transfer& t) noexcept {
        const errc verdict = t.admitted ? errc::ok : check(t);
        if (verdict != errc::ok || t.there.length == 0) return verdict;
        auto* there = reinterpret_cast<std::byte*>(t.there.address);
        std::memcpy(t.read ? t.local : there, t.read ? there : t.local, t.there.length);
        return errc::ok;
    }

    /// The first message of the incoming lane, or its next piece. False: the sink says later.
    bool hand_up() noexcept {
        loopback_lane::packet& p = in().packets.front();
        if (p.waiting != nullptr) {
            loopback_lane::copy_out_of(p);
            in().transmitted.push_back(std::exchange(p.waiting, nullptr));
        }
        if (!announced_ && p.data.size() > in().announces_above) {
            if (sink_.begin_payload(p.header, p.data.size()) == delivery::defer) return false;
            announced_ = true;
            arrived_ = 0;
            return true;
        }
        if (announced_) {
            const std::span<std::byte> space = sink_.payload_space();
            std::size_t now = std::min(p.data.size() - arrived_, in().piece);
            if (!space.empty()) {
                now = std::min(now, space.size());
                std::memcpy(space.data(), p.data.data() + arrived_, now);
            }
            arrived_ += now;
            announced_ = arrived_ < p.data.size();
            sink_.payload_arrived(now);
            if (!announced_ && !down_) in().packets.pop_front();
            return true;
        }
        delivering_ = true;
        kept_ = false;
        const delivery answer = sink_.deliver(p.header, p.data);
        delivering_ = false;
        if (answer == delivery::defer) return false;
        if (answer == delivery::pause) ++in().paused;
        if (!down_) in().packets.pop_front();
        return true;
    }

    void shut(std::error_code reason) noexcept {
        if (down_) return;
        down_ = true;
        unlink();
        out().closed = true;
        for (loopback_lane::packet& p : out().packets) {
            if (completion* c = std::exchange(p.waiting, nullptr)) {
                loopback_lane::copy_out_of(p);
                c->done(*c, reason);
            }
        }
        for (completion* c : std::exchange(out().transmitted, {})) c->done(*c, reason);
        for (const transfer& t : std::exchange(transfers_, {})) t.done->done(*t.done, reason);
    }

    Sink& sink_;
    unsigned side_;
    std::shared_ptr<loopback_wire> wire_;
    std::vector<transfer> transfers_;
    std::size_t arrived_ = 0;  // of the message that was announced
    bool announced_ = false;
    bool delivering_ = false;
    bool kept_ = false;
    bool wants_room_ = false;
    bool wants_end_of_touch_ = false;
    bool down_ = false;
};

struct loopback {
    static constexpr const char* name = "loopback";
    static constexpr const char* description = "both ends in one process, for tests";
    static constexpr capabilities static_capabilities{.inline_bytes = 48,
                                                      .max_message = 16384,
                                                      .eager_bytes = 4096,
                                                      .segment_bytes = 16384,
                                                      .get_alignment = 1,
                                                      .one_sided = true,
                                                      .one_sided_offloaded = true,
                                                      .needs_registration = false,
                                                      .atomics = false,
                                                      .put_before_send = true,
                                                      .revokes_at_once = true};
    using domain = loopback_domain;
    using connection = loopback_connection;
    using listener = loopback_listener;
    template <class Sink>
    using link = loopback_link<Sink>;
};

static_assert(transport<loopback>);
static_assert(one_sided_link<loopback::link<rdmacoro::detail::sink_archetype>>);
static_assert(late_access_link<loopback::link<rdmacoro::detail::sink_archetype>>);
static_assert(in_place_link<loopback::link<rdmacoro::detail::sink_archetype>>);
static_assert(shared_copy_link<loopback::link<rdmacoro::detail::sink_archetype>>);

}  // namespace rdmacoro::test
