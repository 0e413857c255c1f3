// Tag matching: posted receives, messages that arrived before their receives, and the order of both.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/protocol/detail/grown_array.hpp>
#include <rdmacoro/protocol/detail/kept_messages.hpp>
#include <rdmacoro/protocol/detail/posted_receives.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace rdmacoro::detail {

/// Matches messages with receives. There is a record for each source, and one for any source: the receives posted for it and
/// its messages that no receive has taken. A message is in the record of its source and in that of any source; a receive is
/// in the one that it names. So what is done for one source costs the same however many others there are; and exact tags
/// take constant time. Between messages of one source and receives that overlap, the order in which they were sent and
/// posted decides.
///
/// Receives that take tags with the highest bit alone, which is the toolkit's, stand for as long as a service runs: messages of
/// the program's tags do not see them. A receive with a mask looks at no stored messages that it excludes by their highest
/// bits; see `kept_messages`.
class matcher {
public:
    /// `many_sources`: receives from any source will be posted, and messages come from several, each made known by
    /// `add_source`. Otherwise all come from one, which is not told apart from any.
    explicit matcher(bool many_sources) noexcept : many_sources_(many_sources) {}
    matcher(const matcher&) = delete;
    matcher& operator=(const matcher&) = delete;
    ~matcher();

    /// Makes the record of a source, unless it has one. False when memory is short.
    [[nodiscard]] bool add_source(peer_id source) noexcept;

    /// A receive with no message yet.
    void post(receive_request& r) noexcept {
        r.sequence_ = ++posted_sequence_;
        if (sole_ == nullptr && (listed_ == 0 || (listed_ == high_ && takes_low_alone(r)))) [[likely]] {
            sole_ = &r;
            return;
        }
        post_another(r);
    }

    /// Takes a posted receive out again.
    void withdraw(receive_request& r) noexcept {
        if (sole_ == &r) [[likely]] {
            sole_ = nullptr;
            return;
        }
        unlist(r);
    }

    /// Posts `r` in the place of `was`, which is taken out; both take the same messages.
    void replace(receive_request& was, receive_request& r) noexcept {
        r.sequence_ = was.sequence_;
        if (sole_ == &was) {
            sole_ = &r;
        } else {
            static_cast<list_node<receive_request>&>(r).take_place_of(was);
        }
    }

    /// The receive that a message from `source` with `tag` matches, taken out; or nullptr.
    [[nodiscard]] receive_request* arrived(peer_id source, tag_type tag) noexcept {
        if (sole_ != nullptr && sole_->wants(source, tag)) [[likely]]
            return std::exchange(sole_, nullptr);
        return listed_ == 0 ? nullptr : arrived_among_many(source, tag);
    }

    /// Stores a message that no posted receive matches. Ends the probes that were waiting for it.
    void add(unexpected_message& m) noexcept;

    /// The first message, in order of arrival, that a receive from `source` with `wanted` matches; or nullptr. Stays.
    [[nodiscard]] unexpected_message* find(peer_id source, tag_match wanted) noexcept {
        if (record* of = record_of(source)) return of->kept.find(wanted);
        return is_nobody(source) ? nullptr : kept_.find(wanted);
    }

    void remove(unexpected_message& m) noexcept {
        kept_.remove(m);
        if (record* of = record_of(m.source)) of->kept.remove(m);
    }

    /// From now on the stored message is met by receives and probes that name its source alone, in its place; others pass it by. One that
    /// has a single source is met by all.
    void hide_from_any(unexpected_message& m) noexcept;
    /// Stores such a message. No receive that is posted takes it, and no probe waits for it.
    void add_hidden(unexpected_message& m) noexcept {
        m.number = ++stored_number_;
        store(m);
        hide_from_any(m);
    }

    /// Puts `m` in the place of `was`; both have the same source and tag.
    void replace(unexpected_message& was, unexpected_message& m) noexcept {
        m.number = was.number;
        kept_.replace(was, m);
        if (record* of = record_of(m.source)) of->kept.replace(was, m);
    }

    void add_probe(probe_request& p) noexcept {
        receives_of(p.source_).probes().push_back(p);
        ++probes_;
    }
    /// Takes a probe out again.
    void withdraw(probe_request& p) noexcept {
        p.list_node<probe_request>::unlink();
        --probes_;
    }

    /// How many receives posted before `r` will take messages with its tag from its source; nothing when that is not known,
    /// as one of them takes other messages, too, or when there are more than `most`, of which no more are looked at.
    /// Precondition: `r` is posted last, for one tag and one source.
    [[nodiscard]] std::optional<std::uint32_t> ahead_of(const receive_request& r,
                                                        std::uint32_t most) noexcept;

    /// Calls `visit` for each posted receive with this tag from this source alone, oldest first; it may withdraw it.
    template <class Visit>
    void each_posted(peer_id source, tag_type tag, Visit visit) noexcept {
        if (sole_ != nullptr && sole_->source_ == source && sole_->wanted_.exact() &&
            sole_->wanted_.tag == tag) {
            visit(*sole_);
        } else if (listed_ != 0) {
            receives_of(source).each_exact(tag, visit);
        }
    }

    /// Calls `visit` for each posted receive from this source or from any, in any order. Compiled once: not for the path of a message.
    template <class Visit>
    void each_waiting(peer_id source, Visit visit) noexcept {
        visit_waiting(
            source, [](void* to, receive_request& r) noexcept { (*static_cast<Visit*>(to))(r); }, &visit);
    }

    /// Calls `visit` for each posted receive from this source alone, or, for `any_source`, from any, in any order. Those from any are not
    /// looked at for a source. Compiled once: not for the path of a message.
    template <class Visit>
    void each_posted(peer_id source, Visit visit) noexcept {
        visit_posted(
            source, [](void* to, receive_request& r) noexcept { (*static_cast<Visit*>(to))(r); }, &visit);
    }

    /// Calls `visit` for each probe of this source, and perhaps of any, in any order.
    template <class Visit>
    void each_probe(peer_id source, Visit visit) noexcept {
        intrusive_list<probe_request>& all = receives_of(source).probes();
        for (probe_request* p = all.front(); p != nullptr; p = all.next(*p)) visit(*p);
    }

    /// Takes out each posted receive and each probe that only `source` could serve, and ends it with `why`.
    void end_all_of(peer_id source, std::error_code why, connection_base* from = nullptr) noexcept;

    /// Calls `visit` for each stored message of `source`, oldest first; it may take that message out.
    template <class Visit>
    void each_stored(peer_id source, Visit visit) noexcept {
        if (record* of = record_of(source)) {
            of->kept.each(visit);
        } else if (!is_nobody(source)) {
            kept_.each(visit);
        }
    }

    /// Calls `visit` for each stored message that a receive from `source` with `wanted`, which has a mask, matches, until it answers false;
    /// it may take that message out, and no other. Without those that `skips` excludes. See `kept_messages` for that, and for the order.
    template <class Skips, class Visit>
    void each_masked(peer_id source, tag_match wanted, Skips skips, Visit visit) noexcept {
        if (record* of = record_of(source)) {
            of->kept.each_masked(wanted, skips, visit);
        } else if (!is_nobody(source)) {
            kept_.each_masked(wanted, skips, visit);
        }
    }
    template <class Visit>
    void each_masked(peer_id source, tag_match wanted, Visit visit) noexcept {
        each_masked(source, wanted, [](tag_type) noexcept { return false; }, visit);
    }

    /// Takes all stored messages out, or all that are `complete`, for much less than one after the other. Calls `drop` for each, in any
    /// order, which may free it.
    template <class Drop>
    void drop_stored(bool complete_alone, Drop drop) noexcept {
        intrusive_list<unexpected_message, kept_by_tag<of_all>> rest;
        const auto take_out = [&](unexpected_message& m) noexcept {
            if (complete_alone && !m.complete) {
                rest.push_back(m);
            } else {
                drop(m);
            }
        };
        kept_.forget(take_out);
        while (unexpected_message* m = hidden_.pop_front()) take_out(*m);
        for (record* of : records_) {
            if (of != nullptr) of->kept.forget();
        }
        while (unexpected_message* m = rest.pop_front()) store(*m);
    }

    [[nodiscard]] std::size_t posted() const noexcept { return listed_ + (sole_ != nullptr ? 1 : 0); }
    [[nodiscard]] bool has_probes() const noexcept { return probes_ != 0; }
    [[nodiscard]] std::size_t unexpected() const noexcept { return kept_.count(); }
    /// Memory of tables of receives and of stored messages, in bytes.
    [[nodiscard]] std::size_t footprint() noexcept;

private:
    struct alignas(64) record {  // what a message needs of it is on one line
        posted_receives receives;
        kept_messages<of_source> kept;
    };

    /// nullptr: what is of this source is in the common record.
    [[nodiscard]] record* record_of(peer_id source) noexcept {
        return source < records_.size() ? records_[source] : nullptr;
    }
    /// A peer that there never was, in a mailbox.
    [[nodiscard]] bool is_nobody(peer_id source) const noexcept {
        return many_sources_ && source != any_source && source >= records_.size();
    }
    [[nodiscard]] posted_receives& receives_of(peer_id source) noexcept {
        record* of = record_of(source);
        return of != nullptr ? of->receives : receives_;
    }
    void post_another(receive_request& r) noexcept;
    void list(receive_request& r) noexcept;
    void unlist(receive_request& r) noexcept {
        --listed_;
        if (takes_high_alone(r)) --high_;
        receives_of(r.source_).remove(r);
    }
    void store(unexpected_message& m) noexcept {
        kept_.add(m);
        if (record* of = record_of(m.source)) of->kept.add(m);
    }
    void visit_posted(peer_id source, void (*visit)(void* to, receive_request& r) noexcept,
                      void* to) noexcept;
    void visit_waiting(peer_id source, void (*visit)(void* to, receive_request& r) noexcept,
                       void* to) noexcept;
    [[nodiscard]] receive_request* arrived_among_many(peer_id source, tag_type tag) noexcept;

    // In no list: the only posted receive, or the only one but those in lists that take high tags alone and are younger, unless
    // it takes low tags alone.
    receive_request* sole_ = nullptr;
    std::size_t listed_ = 0;  // posted receives in lists
    std::size_t high_ = 0;    // of them, those that take tags with the highest bit alone
    std::uint64_t posted_sequence_ = 0;
    std::uint64_t stored_number_ = 0;
    std::size_t probes_ = 0;
    bool many_sources_;
    posted_receives receives_;                                        // from any source
    kept_messages<of_all> kept_;                                      // of all sources
    intrusive_list<unexpected_message, kept_by_tag<of_all>> hidden_;  // `kept_` counts them, and lists none
    grown_array<record*> records_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/impl/matching.ipp>
#endif
