// A hash table of intrusive lists.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace rdmacoro::detail {

/// A hash table of intrusive lists that keeps each list's order when it grows. It has no memory of its own up to `most_in_one`
/// elements, and 13 bytes for each element above that, at most.
template <class T, class Tag>
class chained_table {
public:
    using list = intrusive_list<T, Tag>;

    static constexpr std::size_t most_in_one =
        8;  ///< elements that one list may have before there are others

    chained_table() noexcept = default;
    chained_table(const chained_table&) = delete;
    chained_table& operator=(const chained_table&) = delete;
    ~chained_table() { drop(lists_); }

    /// The list of a hash, of which the highest bits count.
    [[nodiscard]] list& bucket(std::uint64_t hash) noexcept { return lists_[(hash >> 1) >> shift_]; }

    /// There will be so many elements; `hash_of(element)` finds the list of each anew. Staying small is no error.
    template <class HashOf>
    void grow_if_full(std::size_t elements, HashOf hash_of) noexcept {
        if (elements > (size_ == 1 ? most_in_one : 2 * size_ + size_ / 2)) [[unlikely]]
            grow(hash_of);
    }

    /// Gives a large table's memory back. Precondition: it is empty.
    void emptied() noexcept {
        if (size_ <= most_idle) [[likely]]
            return;
        drop(std::exchange(lists_, &first_));
        size_ = 1;
        shift_ = 63;
    }

    /// Forgets all elements, and touches none of them.
    void forget() noexcept {
        drop(std::exchange(lists_, &first_));
        ::new (static_cast<void*>(&first_)) list;
        size_ = 1;
        shift_ = 63;
    }

    /// Memory of its own, in bytes.
    [[nodiscard]] std::size_t footprint() const noexcept { return size_ == 1 ? 0 : size_ * sizeof(list); }

    template <class Visit>
    void for_each_list(Visit visit) noexcept {
        for (std::size_t i = 0; i < size_; ++i) visit(lists_[i]);
    }

private:
    static constexpr std::size_t most_idle = 256;  // lists that stay when the table is empty

    template <class HashOf>
    [[gnu::noinline]] void grow(HashOf hash_of) noexcept {
        const std::size_t larger_size = size_ == 1 ? 8 : 2 * size_;
        list* const larger = new (std::nothrow) list[larger_size];
        if (larger == nullptr) return;
        const std::size_t old_size = std::exchange(size_, larger_size);
        list* const old = std::exchange(lists_, larger);
        shift_ -= old_size == 1 ? 3 : 1;
        for (std::size_t i = 0; i < old_size; ++i) {
            while (T* item = old[i].pop_front()) bucket(hash_of(*item)).push_back(*item);
        }
        drop(old);
    }
    void drop(list* lists) noexcept {
        if (lists != &first_) delete[] lists;
    }

    std::size_t size_ = 1;
    int shift_ = 63;
    list first_;
    list* lists_ = &first_;
};

/// Of this process alone: a peer cannot choose tags that share a list.
inline const std::uint64_t tag_secret =
    static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) *
        0xd1342543de82ef95u ^
    reinterpret_cast<std::uintptr_t>(&tag_secret);

/// The hash of a tag for `chained_table`.
[[nodiscard]] inline std::uint64_t tag_hash(std::uint64_t tag) noexcept {
    return (tag ^ tag_secret) * 0x9e3779b97f4a7c15u;
}

}  // namespace rdmacoro::detail
