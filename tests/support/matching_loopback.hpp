#pragma once

// Loopback that matches by itself. Beside what every loopback link does it carries tagged messages: short ones are taken
// over at once, long ones stay in their sender's memory until a receive has met them and then move a piece at each poll.
// On demand it has no room, ends things late rather than at once, and gives receives back late.

#include "support/counting_new.hpp"
#include "support/loopback.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// A tagged message from its post until it is received or discarded.
struct tagged_message {
    std::uint64_t tag = 0;
    std::uint32_t note = 0;
    std::size_t bytes = 0;
    std::vector<std::byte> data;    ///< once it is copied out of its sender's memory
    const_buffers borrowed{};       ///< before that
    completion* waiting = nullptr;  ///< the sender's, while its memory is borrowed
    bool is_long = false;
    bool dead = false;  ///< its sender is gone, and its memory too
};

/// Tagged messages of one direction. A test changes the first part whenever it likes.
struct tagged_lane {
    static constexpr std::size_t unlimited = static_cast<std::size_t>(-1);

    // Of the writing end.
    bool held = false;             ///< nothing arrives
    std::size_t room = unlimited;  ///< messages that may be on their way; more are answered `retry`
    bool defers = false;           ///< short posts are answered `posted`, and done when they arrive
    bool keeps = false;            ///< what was posted is not done yet
    std::size_t piece = 100'000;   ///< bytes of a long message that move at one poll
    // Of the reading end.
    bool answers_late = false;      ///< nothing is answered `done`
    bool withdraws_late = false;    ///< withdrawn operations end at the next poll
    bool refuses_claims = false;    ///< every other claim is answered `retry`
    std::size_t posts = unlimited;  ///< receives that may be posted, and that move bytes; more: `retry`

    std::uint64_t met = 0;        ///< messages that met a posted receive, ever
    std::uint64_t claims = 0;     ///< messages claimed
    std::uint64_t discarded = 0;  ///< of those, thrown away
    std::uint64_t retries = 0;

    struct posted_receive {
        std::uint64_t tag;
        std::uint64_t mask;
        mutable_buffers into;
        tagged_completion* done;
    };
    struct transfer {
        tagged_message* from;
        mutable_buffers into;
        tagged_completion* done;
        std::size_t at;
    };
    struct ended {
        tagged_completion* what;
        std::error_code outcome;
    };
    std::vector<tagged_message*> sent;
    std::vector<tagged_message*> unexpected;
    std::vector<tagged_message*> claimed;  ///< by their name, less one; nullptr: free
    std::vector<posted_receive> receives;
    std::vector<transfer> transfers;
    std::vector<ended> ends;               ///< of the reading end, for its next poll
    std::vector<completion*> transmitted;  ///< of the writing end
    tagged_completion* claim = nullptr;

    [[nodiscard]] tagged_message& take() {
        if (spare_.empty()) {
            all_.push_back(std::make_unique<tagged_message>());
            spare_.reserve(all_.size());
            return *all_.back();
        }
        tagged_message& m = *spare_.back();
        spare_.pop_back();
        return m;
    }
    void give(tagged_message& m) {
        m.borrowed = {};
        m.waiting = nullptr;
        m.dead = false;
        spare_.push_back(&m);
    }
    /// Its sender's memory is free.
    void copy_out_of(tagged_message& m) {
        m.data.resize(m.bytes);
        rdmacoro::detail::copy_out(m.borrowed, 0, m.data.data(), m.bytes);
        if (m.waiting != nullptr) transmitted.push_back(std::exchange(m.waiting, nullptr));
    }
    template <class Visit>
    void each_message(Visit visit) {
        for (auto& m : all_) visit(*m);
    }

private:
    std::vector<std::unique_ptr<tagged_message>> all_;
    std::vector<tagged_message*> spare_;
};

/// Both directions, and the link's traits. Lane 0: from the connecting end.
struct tagged_wire {
    tagged_lane lanes[2];
    matching_traits traits{.tag_bits = 64, .buffered_bytes = 4096, .pieces = 4};

    /// Applied to the wires of connections that this thread makes from now on; nullptr: none.
    using shape = void (*)(tagged_wire&);
    [[nodiscard]] static shape& of_new_ones() noexcept {
        static thread_local shape how = nullptr;
        return how;
    }
};

template <class Sink>
class matching_loopback_link final : public loopback_pollable {
public:
    matching_loopback_link(loopback_connection made, Sink& sink)
        : sink_(sink), side_(made.side()), tagged_(beside(made)), under_(std::move(made), *this) {
        under_.unlink();  // polled from here
        under_.wire().domains[side_]->add_link(*this);
    }
    matching_loopback_link(const matching_loopback_link&) = delete;
    matching_loopback_link& operator=(const matching_loopback_link&) = delete;
    ~matching_loopback_link() { shut(make_error_code(errc::closed)); }

    // ---- as every loopback link

    [[nodiscard]] post_result post(const message_header& header, const const_buffers& payload,
                                   completion& c) noexcept {
        return under_.post(header, payload, c);
    }
    [[nodiscard]] post_result post_copied(const message_header& header,
                                          const const_buffers& payload) noexcept {
        const allocations_apart its_own;
        return under_.post_copied(header, payload);
    }
    [[nodiscard]] post_result get(const remote_region& there, std::span<std::byte> into,
                                  completion& c) noexcept {
        return under_.get(there, into, c);
    }
    [[nodiscard]] post_result put(std::span<const std::byte> from, const remote_region& there,
                                  completion& c) noexcept {
        return under_.put(from, there, c);
    }
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        return under_.expose(memory, rights);
    }
    [[nodiscard]] lent_buffer keep() noexcept { return under_.keep(); }
    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept {
        return under_.capabilities();
    }
    [[nodiscard]] scheduler& owner() noexcept { return under_.owner(); }
    [[nodiscard]] std::string peer_name() const { return "matching loopback"; }

    [[nodiscard]] bool revoke(completion& c) noexcept {
        tagged_lane& lane = out();
        bool found = std::erase(lane.transmitted, &c) != 0;
        lane.each_message([&](tagged_message& m) {
            if (m.waiting != &c || m.is_long) return;
            m.waiting = nullptr;
            lane.copy_out_of(m);
            found = true;
        });
        return found || under_.revoke(c);
    }

    // ---- matching

    [[nodiscard]] const matching_traits& matching() const noexcept { return tagged_->traits; }

    [[nodiscard]] post_result post_tagged(std::uint64_t tag, std::uint32_t note, const const_buffers& payload,
                                          completion& c) noexcept {
        const allocations_apart its_own;
        tagged_lane& lane = out();
        if (down_ || under_.out().broken) return post_result::failed;
        if (lane.sent.size() >= lane.room) return no_room(lane, wants_.send);
        tagged_message& m = lane.take();
        m.tag = tag;
        m.note = note;
        m.bytes = payload.size();
        m.borrowed = payload;
        m.is_long = m.bytes > tagged_->traits.buffered_bytes;
        lane.sent.push_back(&m);
        if (m.is_long || lane.defers) {
            m.waiting = &c;
            return post_result::posted;
        }
        lane.copy_out_of(m);
        return post_result::done;
    }

    [[nodiscard]] post_result post_receive(std::uint64_t tag, std::uint64_t mask, const mutable_buffers& into,
                                           tagged_completion& c) noexcept {
        const allocations_apart its_own;
        tagged_lane& lane = in();
        if (down_) return post_result::failed;
        if (lane.receives.size() >= lane.posts) return no_room(lane, wants_.receive);
        const auto found = std::find_if(lane.unexpected.begin(), lane.unexpected.end(),
                                        [&](auto* m) { return (m->tag & mask) == tag; });
        if (found == lane.unexpected.end()) {
            lane.receives.push_back({tag, mask, into, &c});
            return post_result::posted;
        }
        tagged_message& m = **found;
        lane.unexpected.erase(found);
        ++lane.met;
        return begin(m, into, c);
    }

    [[nodiscard]] post_result claim(tagged_completion& c) noexcept {
        const allocations_apart its_own;
        tagged_lane& lane = in();
        if (down_) return post_result::failed;
        if (lane.refuses_claims && (refused_ = !refused_)) return no_room(lane, wants_.claim);
        if (lane.unexpected.empty()) {
            lane.claim = &c;
            return post_result::posted;
        }
        tagged_message& m = *lane.unexpected.front();
        lane.unexpected.erase(lane.unexpected.begin());
        set_aside(m, c);
        return late(c);
    }

    [[nodiscard]] post_result receive_claimed(claimed_message name, const mutable_buffers& into,
                                              tagged_completion& c) noexcept {
        const allocations_apart its_own;
        tagged_lane& lane = in();
        if (down_) return post_result::failed;
        if (lane.transfers.size() >= lane.posts) return no_room(lane, wants_.transfer);
        return begin(*std::exchange(lane.claimed[name - 1], nullptr), into, c);
    }

    void discard(claimed_message name) noexcept {
        const allocations_apart its_own;
        tagged_lane& lane = in();
        ++lane.discarded;
        release(*std::exchange(lane.claimed[name - 1], nullptr));
    }

    [[nodiscard]] bool withdraw(completion& c) noexcept {
        const allocations_apart its_own;
        tagged_lane& lane = in();
        if (lane.claim == &c) return taken_back(*std::exchange(lane.claim, nullptr));
        const auto found = std::find_if(lane.receives.begin(), lane.receives.end(),
                                        [&](const auto& posted) { return posted.done == &c; });
        if (found == lane.receives.end()) return false;  // it has met a message
        tagged_completion& posted = *found->done;
        lane.receives.erase(found);
        return taken_back(posted);
    }

    unsigned poll(unsigned budget) noexcept override {
        unsigned moved = 0;
        while (!down_ && !out().keeps && !out().transmitted.empty()) {
            completion* c = out().transmitted.front();
            out().transmitted.erase(out().transmitted.begin());
            c->done(*c, {});
            ++moved;
        }
        // Only entries from before this poll end now: their completions may post more.
        for (std::size_t n = in().ends.size(); !down_ && n > 0 && !in().ends.empty(); --n, ++moved) {
            const tagged_lane::ended e = in().ends.front();
            in().ends.erase(in().ends.begin());
            e.what->done(*e.what, e.outcome);
        }
        if (!down_) moved += move_pieces();
        while (!down_ && moved < budget && !in().held && !in().sent.empty()) {
            arrive();
            ++moved;
        }
        if (!down_) moved += under_.poll(budget);
        if (!down_ && found_room()) {
            sink_.writable();
            ++moved;
        }
        return moved;
    }

    void close(std::error_code reason) noexcept {
        shut(reason);
        under_.close(reason);
    }

    /// The lane that this end writes to, and the lane that it reads from.
    [[nodiscard]] tagged_lane& out() noexcept { return tagged_->lanes[side_]; }
    [[nodiscard]] tagged_lane& in() noexcept { return tagged_->lanes[1 - side_]; }
    [[nodiscard]] tagged_wire& tagged() noexcept { return *tagged_; }
    [[nodiscard]] loopback_link<matching_loopback_link>& under() noexcept { return under_; }

    // ---- the sink of the link below

    delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept {
        return sink_.deliver(header, payload);
    }
    delivery begin_payload(const message_header& header, std::size_t bytes) noexcept {
        return sink_.begin_payload(header, bytes);
    }
    std::span<std::byte> payload_space() noexcept { return sink_.payload_space(); }
    void payload_arrived(std::size_t n) noexcept { sink_.payload_arrived(n); }
    void writable() noexcept { sink_.writable(); }
    void link_down(std::error_code reason) noexcept {
        shut(reason);
        sink_.link_down(reason);
    }

private:
    static std::shared_ptr<tagged_wire> beside(const loopback_connection& made) {
        std::shared_ptr<void>& kept = made.wire()->beside;
        if (!kept) {
            auto fresh = std::make_shared<tagged_wire>();
            if (const tagged_wire::shape how = tagged_wire::of_new_ones()) how(*fresh);
            kept = std::move(fresh);
        }
        return std::static_pointer_cast<tagged_wire>(kept);
    }

    static post_result no_room(tagged_lane& lane, bool& wanted) noexcept {
        ++lane.retries;
        wanted = true;
        return post_result::retry;
    }
    /// Whether there is room now for something that found none.
    bool found_room() noexcept {
        const bool found = (wants_.send && out().sent.size() < out().room) ||
                           (wants_.receive && in().receives.size() < in().posts) ||
                           (wants_.transfer && in().transfers.size() < in().posts) || wants_.claim;
        if (found) wants_ = {};
        return found;
    }

    /// A message has matched a receive.
    post_result begin(tagged_message& m, const mutable_buffers& into, tagged_completion& c) noexcept {
        tell_of(m, c);
        if (m.is_long) {
            in().transfers.push_back({&m, into, &c, 0});
            return post_result::posted;
        }
        if (m.waiting != nullptr) in().copy_out_of(m);
        rdmacoro::detail::copy_in(std::span(m.data).first(m.bytes), into, 0);
        release(m);
        return late(c);
    }
    static void tell_of(const tagged_message& m, tagged_completion& c) noexcept {
        c.tag = m.tag;
        c.bytes = m.bytes;
        c.note = m.note;
    }
    post_result late(tagged_completion& c) noexcept {
        if (!in().answers_late) return post_result::done;
        in().ends.push_back({&c, {}});
        return post_result::posted;
    }
    bool taken_back(tagged_completion& c) noexcept {
        if (!in().withdraws_late) return true;
        in().ends.push_back({&c, make_error_code(errc::canceled)});
        return false;
    }
    void set_aside(tagged_message& m, tagged_completion& c) noexcept {
        tagged_lane& lane = in();
        ++lane.claims;
        auto place = std::find(lane.claimed.begin(), lane.claimed.end(), nullptr);
        if (place == lane.claimed.end()) place = lane.claimed.insert(place, nullptr);
        *place = &m;
        tell_of(m, c);
        c.claim = static_cast<claimed_message>(place - lane.claimed.begin()) + 1;
    }
    /// The message is not read any more.
    void release(tagged_message& m) noexcept {
        if (m.waiting != nullptr) in().transmitted.push_back(m.waiting);
        in().give(m);
    }

    /// The next message comes.
    void arrive() noexcept {
        tagged_lane& lane = in();
        tagged_completion* told = nullptr;
        {
            const allocations_apart its_own;
            tagged_message& m = *lane.sent.front();
            lane.sent.erase(lane.sent.begin());
            if (!m.is_long && m.waiting != nullptr) lane.copy_out_of(m);
            const auto found = std::find_if(lane.receives.begin(), lane.receives.end(),
                                            [&](const auto& r) { return (m.tag & r.mask) == r.tag; });
            if (found != lane.receives.end()) {
                const tagged_lane::posted_receive r = *found;
                lane.receives.erase(found);
                ++lane.met;
                if (begin(m, r.into, *r.done) == post_result::done) told = r.done;
            } else if (lane.claim != nullptr) {
                set_aside(m, *lane.claim);
                told = std::exchange(lane.claim, nullptr);
            } else {
                lane.unexpected.push_back(&m);
            }
        }
        if (told != nullptr) told->done(*told, {});
    }

    unsigned move_pieces() noexcept {
        tagged_lane& lane = in();
        unsigned moved = 0;
        for (std::size_t i = 0; !down_ && !lane.held && i < lane.transfers.size();) {
            tagged_lane::transfer& t = lane.transfers[i];
            if (t.from->dead) {
                ++i;
                continue;
            }
            ++moved;
            const std::size_t fits = std::min(t.from->bytes, t.into.size());
            const std::size_t now = std::min(fits - t.at, lane.piece);
            for (std::size_t done = 0; done < now;) {
                const std::span<std::byte> to = t.into.at_offset(t.at + done);
                const std::size_t part = std::min(to.size(), now - done);
                rdmacoro::detail::copy_out(t.from->borrowed, t.at + done, to.data(), part);
                done += part;
            }
            t.at += now;
            if (t.at < fits) {
                ++i;
                continue;
            }
            tagged_completion* c = t.done;
            {
                const allocations_apart its_own;
                release(*t.from);
                lane.transfers.erase(lane.transfers.begin() + static_cast<std::ptrdiff_t>(i));
            }
            c->done(*c, {});
        }
        return moved;
    }

    void shut(std::error_code reason) noexcept {
        if (down_) return;
        down_ = true;
        unlink();
        tagged_lane& reads = in();
        for (const auto& r : std::exchange(reads.receives, {})) r.done->done(*r.done, reason);
        for (const auto& t : std::exchange(reads.transfers, {})) t.done->done(*t.done, reason);
        for (const auto& e : std::exchange(reads.ends, {})) e.what->done(*e.what, reason);
        if (tagged_completion* c = std::exchange(reads.claim, nullptr)) c->done(*c, reason);
        // The peer keeps those messages that have left the sender's memory.
        tagged_lane& writes = out();
        const auto is_here = [](const tagged_message* m) { return m->waiting != nullptr; };
        std::erase_if(writes.sent, is_here);
        std::erase_if(writes.unexpected, is_here);
        writes.each_message([&](tagged_message& m) {
            if (m.waiting == nullptr) return;
            m.dead = true;
            m.borrowed = {};
            completion* c = std::exchange(m.waiting, nullptr);
            c->done(*c, reason);
        });
        for (completion* c : std::exchange(writes.transmitted, {})) c->done(*c, reason);
    }

    Sink& sink_;
    unsigned side_;
    bool down_ = false;
    bool refused_ = false;  // the last claim
    struct {
        bool send = false;
        bool receive = false;
        bool transfer = false;
        bool claim = false;
    } wants_;
    std::shared_ptr<tagged_wire> tagged_;
    loopback_link<matching_loopback_link> under_;
};

struct matching_loopback : loopback {
    static constexpr const char* name = "matching-loopback";
    static constexpr const char* description = "both ends in one process, matching by itself, for tests";
    template <class Sink>
    using link = matching_loopback_link<Sink>;
};

static_assert(transport<matching_loopback>);
static_assert(one_sided_link<matching_loopback::link<rdmacoro::detail::sink_archetype>>);
static_assert(matching_link<matching_loopback::link<rdmacoro::detail::sink_archetype>>);
static_assert(!matching_link<loopback::link<rdmacoro::detail::sink_archetype>>);

}  // namespace rdmacoro::test
