// Tag matching: posted receives, messages that came before theirs, and the order between them.
#pragma once

#include <rdmacoro/protocol/requests.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>

namespace rdmacoro::detail {

/// A hash table of intrusive lists that keeps each list's order when it grows.
template <class T, class Tag>
class chained_table {
public:
    using list = intrusive_list<T, Tag>;

    [[nodiscard]] list& bucket(std::uint64_t hash) noexcept { return lists_[hash >> shift_]; }

    /// One more element is about to be put in; `hash_of(element)` finds its bucket anew. Staying small is no error.
    template <class HashOf>
    void grow_if_full(std::size_t elements, HashOf hash_of) noexcept {
        if (elements < size_ * 2) return;
        std::unique_ptr<list[]> larger(new (std::nothrow) list[size_ * 4]);
        if (!larger) return;
        const std::size_t old_size = size_;
        std::unique_ptr<list[]> old = std::exchange(lists_, std::move(larger));
        size_ *= 4;
        shift_ -= 2;
        for (std::size_t i = 0; i < old_size; ++i) {
            while (T* item = old[i].pop_front()) bucket(hash_of(*item)).push_back(*item);
        }
    }

    template <class Visit>
    void for_each_list(Visit visit) noexcept {
        for (std::size_t i = 0; i < size_; ++i) visit(lists_[i]);
    }

private:
    std::size_t size_ = 64;
    int shift_ = 64 - 6;
    std::unique_ptr<list[]> lists_{new list[64]};
};

/// Matches messages with receives. Exact tags take constant time, from one source or from any; receives with a mask are
/// kept in a list of their own and take their turn by sequence number. Between messages of one source and receives that
/// overlap, the order in which they were sent and posted decides.
class matcher {
public:
    /// `many_sources`: receives from any source will be posted, and messages come from several.
    explicit matcher(bool many_sources) noexcept : many_sources_(many_sources) {}
    matcher(const matcher&) = delete;
    matcher& operator=(const matcher&) = delete;

    /// A receive with no message yet.
    void post(receive_request& r) noexcept {
        r.sequence_ = ++posted_sequence_;
        if (++posted_ == 1) [[likely]] {
            sole_ = &r;
            return;
        }
        if (sole_ != nullptr) insert(*std::exchange(sole_, nullptr));
        insert(r);
    }

    /// Takes a posted receive out again.
    void withdraw(receive_request& r) noexcept {
        --posted_;
        if (sole_ == &r) [[likely]] {
            sole_ = nullptr;
            return;
        }
        r.list_node<receive_request>::unlink();
        if (r.wanted_.exact() && r.source_ == any_source) --any_source_posted_;
    }

    /// The receive that a message from `source` with `tag` meets, taken out; or nullptr.
    [[nodiscard]] receive_request* arrived(peer_id source, tag_type tag) noexcept {
        if (sole_ != nullptr) [[likely]] {
            if (!sole_->wants(source, tag)) return nullptr;
            posted_ = 0;
            return std::exchange(sole_, nullptr);
        }
        return posted_ == 0 ? nullptr : arrived_among_many(source, tag);
    }

private:
    void insert(receive_request& r) noexcept {
        if (!r.wanted_.exact()) {
            wildcards_.push_back(r);
            return;
        }
        if (r.source_ == any_source) ++any_source_posted_;
        receives_.grow_if_full(posted_, [](const receive_request& other) noexcept { return hash(other); });
        receives_.bucket(hash(r)).push_back(r);
    }

    [[nodiscard, gnu::noinline]] receive_request* arrived_among_many(peer_id source, tag_type tag) noexcept {
        receive_request* first = first_exact(source, tag);
        if (any_source_posted_ != 0) first = earlier(first, first_exact(any_source, tag));
        for (receive_request* r = wildcards_.front(); r != nullptr; r = wildcards_.next(*r)) {
            if (first != nullptr && first->sequence_ < r->sequence_) break;
            if (r->wants(source, tag)) {
                first = r;
                break;
            }
        }
        if (first != nullptr) withdraw(*first);
        return first;
    }

public:
    /// A message that no posted receive wants. Ends the probes that were waiting for it.
    void add(unexpected_message& m) noexcept {
        ++unexpected_;
        arrivals_.push_back(m);
        keyed_.grow_if_full(unexpected_,
                            [](const unexpected_message& u) noexcept { return mix(u.tag, u.source); });
        keyed_.bucket(mix(m.tag, m.source)).push_back(m);
        if (many_sources_) {
            tagged_.grow_if_full(unexpected_,
                                 [](const unexpected_message& u) noexcept { return mix(u.tag, any_source); });
            tagged_.bucket(mix(m.tag, any_source)).push_back(m);
        }
        for (probe_request* p = probes_.front(); p != nullptr;) {
            probe_request* after = probes_.next(*p);
            if (p->wanted_.accepts(m.tag) && (p->source_ == any_source || p->source_ == m.source)) {
                p->list_node<probe_request>::unlink();
                p->got_ = {m.bytes, m.tag, m.source};
                p->finish({});
            }
            p = after;
        }
    }

    /// The first message, in order of arrival, that a receive from `source` with `wanted` meets; or nullptr. Stays.
    [[nodiscard]] unexpected_message* find(peer_id source, tag_match wanted) noexcept {
        if (unexpected_ == 0) return nullptr;
        const auto fits = [&](const unexpected_message& m) noexcept {
            return wanted.accepts(m.tag) && (source == any_source || source == m.source);
        };
        if (!wanted.exact()) return first_of(arrivals_, fits);
        if (source != any_source) return first_of(keyed_.bucket(mix(wanted.tag, source)), fits);
        if (many_sources_) return first_of(tagged_.bucket(mix(wanted.tag, any_source)), fits);
        return first_of(arrivals_, fits);
    }

    void remove(unexpected_message& m) noexcept {
        static_cast<list_node<by_key>&>(m).unlink();
        static_cast<list_node<by_tag>&>(m).unlink();
        static_cast<list_node<by_arrival>&>(m).unlink();
        --unexpected_;
    }

    /// Puts `m` in the place of `was`, whose source and tag it has.
    void replace(unexpected_message& was, unexpected_message& m) noexcept {
        static_cast<list_node<by_key>&>(m).take_place_of(was);
        static_cast<list_node<by_tag>&>(m).take_place_of(was);
        static_cast<list_node<by_arrival>&>(m).take_place_of(was);
    }

    void add_probe(probe_request& p) noexcept { probes_.push_back(p); }

    /// How many receives posted before `r` will take messages with its tag from its source; nothing when that can't be told,
    /// as one of them takes other messages, too. Precondition: `r` is posted last, for one tag and one source.
    [[nodiscard]] std::optional<std::uint32_t> ahead_of(const receive_request& r) noexcept {
        if (sole_ != nullptr) return 0;
        if (any_source_posted_ != 0 && first_exact(any_source, r.wanted_.tag) != nullptr) return {};
        for (receive_request* w = wildcards_.front(); w != nullptr; w = wildcards_.next(*w)) {
            if (w->wants(r.source_, r.wanted_.tag)) return {};
        }
        std::uint32_t count = 0;
        each_posted(r.source_, r.wanted_.tag, [&](receive_request& other) noexcept {
            if (&other != &r) ++count;
        });
        return count;
    }

    /// Calls `visit` for each posted receive with this tag from this source alone, oldest first; it may withdraw it.
    template <class Visit>
    void each_posted(peer_id source, tag_type tag, Visit visit) noexcept {
        const auto fits = [&](const receive_request& r) noexcept {
            return r.wanted_.exact() && r.wanted_.tag == tag && r.source_ == source;
        };
        if (sole_ != nullptr) {
            if (fits(*sole_)) visit(*sole_);
            return;
        }
        auto& list = receives_.bucket(mix(tag, source));
        for (receive_request* r = list.front(); r != nullptr;) {
            receive_request* after = list.next(*r);
            if (fits(*r)) visit(*r);
            r = after;
        }
    }

    /// Calls `visit` for each posted receive and each probe that only `source` could serve, taken out.
    template <class VisitReceive, class VisitProbe>
    void take_all_of(peer_id source, VisitReceive receive, VisitProbe probe) noexcept {
        const auto sweep = [&](auto& list) noexcept {
            for (receive_request* r = list.front(); r != nullptr;) {
                receive_request* after = list.next(*r);
                if (r->source_ == source) {
                    withdraw(*r);
                    receive(*r);
                }
                r = after;
            }
        };
        if (sole_ != nullptr) {
            if (sole_->source_ == source) {
                receive_request& r = *sole_;
                withdraw(r);
                receive(r);
            }
        } else {
            receives_.for_each_list(sweep);
            sweep(wildcards_);
        }
        for (probe_request* p = probes_.front(); p != nullptr;) {
            probe_request* after = probes_.next(*p);
            if (p->source_ == source) {
                p->list_node<probe_request>::unlink();
                probe(*p);
            }
            p = after;
        }
    }

    /// The oldest message that waits, or nullptr.
    [[nodiscard]] unexpected_message* oldest() noexcept { return arrivals_.front(); }
    [[nodiscard]] unexpected_message* after(unexpected_message& m) noexcept { return arrivals_.next(m); }

    [[nodiscard]] std::size_t posted() const noexcept { return posted_; }
    [[nodiscard]] bool has_probes() const noexcept { return !probes_.empty(); }
    [[nodiscard]] std::size_t unexpected() const noexcept { return unexpected_; }

private:
    [[nodiscard]] static std::uint64_t mix(tag_type tag, peer_id source) noexcept {
        return (tag ^ (std::uint64_t{source} << 40) ^ source) * 0x9e3779b97f4a7c15u;
    }
    [[nodiscard]] static std::uint64_t hash(const receive_request& r) noexcept {
        return mix(r.wanted_.tag, r.source_);
    }

    [[nodiscard]] receive_request* first_exact(peer_id source, tag_type tag) noexcept {
        auto& list = receives_.bucket(mix(tag, source));
        for (receive_request* r = list.front(); r != nullptr; r = list.next(*r)) {
            if (r->wanted_.tag == tag && r->source_ == source) return r;
        }
        return nullptr;
    }
    [[nodiscard]] static receive_request* earlier(receive_request* a, receive_request* b) noexcept {
        if (a == nullptr || b == nullptr) return a == nullptr ? b : a;
        return a->sequence_ < b->sequence_ ? a : b;
    }
    template <class List, class Fits>
    [[nodiscard]] static unexpected_message* first_of(List& list, Fits fits) noexcept {
        for (unexpected_message* m = list.front(); m != nullptr; m = list.next(*m)) {
            if (fits(*m)) return m;
        }
        return nullptr;
    }

    bool many_sources_;
    receive_request* sole_ = nullptr;  // the only posted receive, which is then in no list
    std::size_t posted_ = 0;
    std::size_t any_source_posted_ = 0;
    std::size_t unexpected_ = 0;
    std::uint64_t posted_sequence_ = 0;
    chained_table<receive_request, receive_request> receives_;
    intrusive_list<receive_request> wildcards_;
    chained_table<unexpected_message, by_key> keyed_;
    chained_table<unexpected_message, by_tag> tagged_;
    intrusive_list<unexpected_message, by_arrival> arrivals_;
    intrusive_list<probe_request> probes_;
};

}  // namespace rdmacoro::detail
