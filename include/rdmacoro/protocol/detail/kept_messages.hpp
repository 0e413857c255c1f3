// Messages of one source, or of all, that no receive has taken yet.
#pragma once

#include <rdmacoro/protocol/detail/chained_table.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>

namespace rdmacoro::detail {

/// Messages in order of arrival, and each among those of its tag. `Which` selects the two places of a message that are used.
template <class Which>
class kept_messages {
    using by_arrival = kept_by_arrival<Which>;
    using by_tag = kept_by_tag<Which>;

public:
    void add(unexpected_message& m) noexcept {
        all_.push_back(m);
        tagged_.grow_if_full(++count_,
                             [](const unexpected_message& other) noexcept { return tag_hash(other.tag); });
        tagged_.bucket(tag_hash(m.tag)).push_back(m);
    }
    void remove(unexpected_message& m) noexcept {
        static_cast<list_node<by_arrival>&>(m).unlink();
        static_cast<list_node<by_tag>&>(m).unlink();
        if (--count_ == 0) tagged_.emptied();
    }
    /// Puts `m`, of the same tag, in the place of `was`.
    void replace(unexpected_message& was, unexpected_message& m) noexcept {
        static_cast<list_node<by_arrival>&>(m).take_place_of(was);
        static_cast<list_node<by_tag>&>(m).take_place_of(was);
    }

    /// The first to arrive of those that `wanted` accepts, or nullptr. Stays.
    [[nodiscard]] unexpected_message* find(tag_match wanted) noexcept {
        return wanted.exact() ? first_in(tagged_.bucket(tag_hash(wanted.tag)), wanted)
                              : first_in(all_, wanted);
    }

    /// Calls `visit` for each message, in order of arrival; it may take that message out.
    template <class Visit>
    void each(Visit visit) noexcept {
        for (unexpected_message* m = all_.front(); m != nullptr;) {
            unexpected_message* after = all_.next(*m);
            visit(*m);
            m = after;
        }
    }

    [[nodiscard]] unexpected_message* front() noexcept { return all_.front(); }
    [[nodiscard]] unexpected_message* next(unexpected_message& m) noexcept { return all_.next(m); }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    /// Memory besides the messages', in bytes.
    [[nodiscard]] std::size_t footprint() const noexcept { return tagged_.footprint(); }

private:
    template <class List>
    [[nodiscard]] static unexpected_message* first_in(List& list, tag_match wanted) noexcept {
        unexpected_message* m = list.front();
        while (m != nullptr && !wanted.accepts(m->tag)) m = list.next(*m);
        return m;
    }

    std::size_t count_ = 0;
    intrusive_list<unexpected_message, by_arrival> all_;
    chained_table<unexpected_message, by_tag> tagged_;
};

}  // namespace rdmacoro::detail
