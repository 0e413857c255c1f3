// range_index: finds address ranges that lie around, within or across another.
#pragma once

#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/memory/detail/unmap_watch.hpp>

#include <cstddef>
#include <cstdint>
#include <new>

namespace rdmacoro::detail {

/// Entries sorted by the address of their `pages`. They may overlap, but none lies within another, so that their ends are
/// sorted, too: an entry that contains a range stands right before the position at which that range would be inserted.
///
/// A sorted array: looked up far more often than changed, and a change moves 24 bytes an entry. Allocates only when made.
template <class Entry>
class range_index {
public:
    /// Throws `std::bad_alloc`.
    explicit range_index(std::size_t most) {
        if (!sorted_.try_reserve(most)) throw std::bad_alloc();
    }

    [[nodiscard]] std::size_t size() const noexcept { return sorted_.size(); }
    [[nodiscard]] bool empty() const noexcept { return sorted_.empty(); }
    /// Precondition: not empty.
    [[nodiscard]] Entry* back() const noexcept { return sorted_.back().entry; }

    /// One that contains `range` and suits; null if there is none.
    template <class Suits>
    [[nodiscard]] Entry* find(const address_range& range, Suits suits) const noexcept {
        for (std::size_t at = lower(range.start + 1); at > 0 && range.end <= sorted_[at - 1].end; --at) {
            if (suits(*sorted_[at - 1].entry)) return sorted_[at - 1].entry;
        }
        return nullptr;
    }
    /// The first that has a byte of `range`.
    [[nodiscard]] Entry* overlapping(const address_range& range) const noexcept {
        const std::size_t at = lower(range.start + 1, &item::end);
        return at < size() && sorted_[at].start < range.end ? sorted_[at].entry : nullptr;
    }
    template <class Visit>
    void for_each_within(const address_range& range, Visit visit) const noexcept {
        for (std::size_t at = lower(range.start); at < size() && sorted_[at].end <= range.end; ++at)
            visit(*sorted_[at].entry);
    }
    /// The first that `range` contains.
    [[nodiscard]] Entry* within(const address_range& range) const noexcept {
        const std::size_t at = lower(range.start);
        return at < size() && sorted_[at].end <= range.end ? sorted_[at].entry : nullptr;
    }

    /// Preconditions: fewer than `most`; none contains it or lies within it.
    void insert(Entry& entry) noexcept {
        static_cast<void>(
            sorted_.try_insert(lower(entry.pages.start), item{entry.pages.start, entry.pages.end, &entry}));
    }
    void erase(const Entry& entry) noexcept { sorted_.erase(lower(entry.pages.start)); }

private:
    struct item {
        std::uintptr_t start;
        std::uintptr_t end;
        Entry* entry;
    };
    /// The index of the first item with its start, or end, at `address` or later.
    [[nodiscard]] std::size_t lower(std::uintptr_t address,
                                    std::uintptr_t item::* key = &item::start) const noexcept {
        std::size_t low = 0;
        for (std::size_t high = sorted_.size(); low < high;) {
            const std::size_t middle = (low + high) / 2;
            if (sorted_[middle].*key < address) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    plain_vector<item> sorted_;
};

}  // namespace rdmacoro::detail
