// Messages of one source, or of all, that no receive has taken yet.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/protocol/detail/chained_table.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace rdmacoro::detail {

/// Messages in order of arrival, and each among those of its tag. `Which` selects the two places of a message that are used.
///
/// Where there are many, those with tags of the same highest bits are in a list of their own, a class: the requests to one service, say.
/// A receive with a mask looks at the classes that its mask does not exclude, and not at the messages of others.
template <class Which>
class kept_messages {
    using by_arrival = kept_by_arrival<Which>;
    using by_tag = kept_by_tag<Which>;
    using list = intrusive_list<unexpected_message, by_arrival>;

public:
    /// Of the tags of a class: they are the same.
    static constexpr tag_type key_bits = ~tag_type{0} << 44;

    kept_messages() noexcept = default;
    kept_messages(const kept_messages&) = delete;
    kept_messages& operator=(const kept_messages&) = delete;
    ~kept_messages() { delete[] classes_; }

    /// `m` has been given its number, the highest so far.
    void add(unexpected_message& m) noexcept {
        ++count_;
        list_of(m).push_back(m);
        tagged_.grow_if_full(count_,
                             [](const unexpected_message& other) noexcept { return tag_hash(other.tag); });
        tagged_.bucket(tag_hash(m.tag)).push_back(m);
    }
    void remove(unexpected_message& m) noexcept {
        static_cast<list_node<by_arrival>&>(m).unlink();
        static_cast<list_node<by_tag>&>(m).unlink();
        if (--count_ == 0) emptied();
    }
    /// Moves one to `hidden`, where it is not found. It counts on, and is taken out as others are.
    void hide(unexpected_message& m, intrusive_list<unexpected_message, by_tag>& hidden) noexcept {
        static_cast<list_node<by_arrival>&>(m).unlink();
        static_cast<list_node<by_tag>&>(m).unlink();
        hidden.push_back(m);
    }
    /// Puts `m`, of the same tag and number, in the place of `was`.
    void replace(unexpected_message& was, unexpected_message& m) noexcept {
        static_cast<list_node<by_arrival>&>(m).take_place_of(was);
        static_cast<list_node<by_tag>&>(m).take_place_of(was);
    }

    /// The first to arrive of those that `wanted` accepts, or nullptr. Stays.
    [[nodiscard]] unexpected_message* find(tag_match wanted) noexcept {
        if (!wanted.exact()) return find_masked(wanted);
        auto& of_tag = tagged_.bucket(tag_hash(wanted.tag));
        unexpected_message* m = of_tag.front();
        while (m != nullptr && m->tag != wanted.tag) m = of_tag.next(*m);
        return m;
    }

    /// Calls `visit` for each message, in order of arrival; it may take that message out.
    template <class Visit>
    void each(Visit visit) noexcept {
        unexpected_message* at[most_classes + 1];
        const std::size_t lists = class_count_ + 1;
        for (std::size_t n = 0; n < lists; ++n) at[n] = nth(n).front();
        for (;;) {
            std::size_t first = 0;
            for (std::size_t n = 1; n < lists; ++n) {
                if (at[n] != nullptr && (at[first] == nullptr || at[n]->number < at[first]->number))
                    first = n;
            }
            unexpected_message* const m = at[first];
            if (m == nullptr) return;
            at[first] = nth(first).next(*m);
            visit(*m);
        }
    }

    /// Calls `visit` for each message that `wanted`, which has a mask, accepts, until it answers false. It may take that message out. In order of
    /// arrival among those of a class.
    template <class Visit>
    void each_masked(tag_match wanted, Visit visit) noexcept {
        each_masked(wanted, [](tag_type) noexcept { return false; }, visit);
    }
    /// The same, without looking at the messages of classes of which `skips` answers true; it gets a tag that has their `key_bits`.
    template <class Skips, class Visit>
    void each_masked(tag_match wanted, Skips skips, Visit visit) noexcept {
        for (std::size_t n = 0; n < class_count_ + 1; ++n) {
            if (n != 0 && (!may_accept(wanted, classes_[n - 1]) || skips(classes_[n - 1].key))) continue;
            list& those = nth(n);
            for (unexpected_message* m = those.front(); m != nullptr;) {
                unexpected_message* const after = those.next(*m);
                if (wanted.accepts(m->tag) && !visit(*m)) return;
                m = after;
            }
        }
    }

    /// Forgets all. Calls `visit` for each before, in any order; what that does with the message's memory is its own matter.
    template <class Visit>
    void forget(Visit visit) noexcept {
        for (std::size_t n = 0; n < class_count_ + 1; ++n) {
            list& those = nth(n);
            for (unexpected_message* m = those.front(); m != nullptr;) {
                unexpected_message* const after = those.next(*m);
                visit(*m);
                m = after;
            }
        }
        forget();
    }
    void forget() noexcept {
        ::new (static_cast<void*>(&others_)) list;
        tagged_.forget();
        count_ = 0;
        emptied();
    }

    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    /// Memory besides the messages', in bytes.
    [[nodiscard]] std::size_t footprint() const noexcept {
        return tagged_.footprint() + class_room_ * sizeof(tag_class);
    }

private:
    /// Messages of tags with the highest bits of `key`; the first of them may be in `others_`, from before there was this class.
    struct tag_class {
        tag_type key;
        list messages;
    };
    static constexpr std::size_t few = 64;  // messages that one list is enough for
    static constexpr std::size_t most_classes = 64;
    static constexpr std::size_t each_class_for = 8;  // messages at least, which pay for its memory

    [[nodiscard]] static bool may_accept(tag_match wanted, const tag_class& one) noexcept {
        return ((one.key ^ wanted.tag) & wanted.mask & key_bits) == 0;
    }
    [[nodiscard]] list& nth(std::size_t n) noexcept { return n == 0 ? others_ : classes_[n - 1].messages; }

    [[nodiscard]] list& list_of(const unexpected_message& m) noexcept {
        return count_ <= few ? others_ : class_of(m.tag & key_bits);
    }
    [[gnu::noinline]] list& class_of(tag_type key) noexcept {
        if (class_count_ == class_room_) more_room();
        if (tag_class* const found = find_class(key)) return found->messages;
        std::size_t n = 0;
        while (n < class_count_ && !classes_[n].messages.empty()) ++n;
        if (n == class_room_) return others_;
        if (n == class_count_) ++class_count_;
        classes_[n].key = key;
        return classes_[n].messages;
    }
    [[gnu::cold]] void more_room() noexcept {
        const std::size_t wanted = class_room_ == 0 ? 8 : 2 * class_room_;
        if (wanted > most_classes || wanted * each_class_for > count_) return;
        tag_class* const larger = new (std::nothrow) tag_class[wanted];
        if (larger == nullptr) return;
        for (std::size_t n = 0; n < class_count_; ++n) {
            larger[n].key = classes_[n].key;
            larger[n].messages.splice_back(classes_[n].messages);
        }
        delete[] classes_;
        classes_ = larger;
        class_room_ = static_cast<std::uint32_t>(wanted);
        // Messages that had no class so far; not into a class that has younger ones already.
        const std::uint32_t old_count = class_count_;
        list waiting;
        waiting.splice_back(others_);
        while (unexpected_message* m = waiting.pop_front()) {
            tag_class* const of = find_class(m->tag & key_bits);
            if (of != nullptr && of - classes_ >= std::ptrdiff_t{old_count}) {
                of->messages.push_back(*m);
            } else if (of == nullptr && class_count_ < class_room_) {
                classes_[class_count_].key = m->tag & key_bits;
                classes_[class_count_++].messages.push_back(*m);
            } else {
                others_.push_back(*m);
            }
        }
    }
    [[nodiscard]] tag_class* find_class(tag_type key) noexcept {
        for (std::size_t n = 0; n < class_count_; ++n) {
            if (classes_[n].key == key) return &classes_[n];
        }
        return nullptr;
    }
    [[gnu::noinline]] unexpected_message* find_masked(tag_match wanted) noexcept {
        unexpected_message* first = first_in(others_, wanted, nullptr);
        for (std::size_t n = 0; n < class_count_; ++n) {
            if (may_accept(wanted, classes_[n])) first = first_in(classes_[n].messages, wanted, first);
        }
        return first;
    }
    /// The first in the list that is accepted and came before `other`, or `other`.
    [[nodiscard]] static unexpected_message* first_in(list& those, tag_match wanted,
                                                      unexpected_message* other) noexcept {
        for (unexpected_message* m = those.front(); m != nullptr; m = those.next(*m)) {
            if (other != nullptr && m->number > other->number) break;
            if (wanted.accepts(m->tag)) return m;
        }
        return other;
    }
    void emptied() noexcept {
        tagged_.emptied();
        if (class_room_ == 0) return;
        delete[] std::exchange(classes_, nullptr);
        class_count_ = class_room_ = 0;
    }

    std::size_t count_ = 0;
    list others_;  // of no class
    chained_table<unexpected_message, by_tag> tagged_;
    tag_class* classes_ = nullptr;
    std::uint32_t class_count_ = 0;
    std::uint32_t class_room_ = 0;
};

}  // namespace rdmacoro::detail
