// number_table: the connections of a domain by the numbers of their queue pairs, as each receive's completion names one.
#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rdmacoro::detail::verbs {

/// A connection in a `number_table`:
///  1. `number()` stays the same from `add` to `remove`, and is that of no other one in the table;
///  2. `next_of_bucket` is the table's.
template <class Session>
concept numbered_session = requires(Session& s, const Session& c) {
    { c.number() } noexcept -> std::same_as<std::uint32_t>;
    { s.next_of_bucket } -> std::same_as<Session*&>;
};

/// Has a bucket for each of as many connections as there may be: devices give out numbers in a row, most often.
template <class Session>
class number_table {
public:
    explicit number_table(std::size_t most) : buckets_(std::bit_ceil(std::max<std::size_t>(most, least))) {
        static_assert(numbered_session<Session>);
    }

    void add(Session& which) noexcept {
        Session*& first = bucket_of(which.number());
        which.next_of_bucket = first;
        first = &which;
    }
    /// Does nothing where it is not in the table.
    void remove(Session& which) noexcept {
        Session** at = &bucket_of(which.number());
        while (*at != nullptr && *at != &which) at = &(*at)->next_of_bucket;
        if (*at != nullptr) *at = which.next_of_bucket;
    }
    /// Nullptr: there is none.
    [[nodiscard]] Session* find(std::uint32_t number) noexcept {
        Session* found = bucket_of(number);
        while (found != nullptr && found->number() != number) found = found->next_of_bucket;
        return found;
    }

private:
    static constexpr std::size_t least = 256;

    [[nodiscard]] Session*& bucket_of(std::uint32_t number) noexcept {
        return buckets_[number & (buckets_.size() - 1)];
    }

    std::vector<Session*> buckets_;  // a power of two
};

}  // namespace rdmacoro::detail::verbs
