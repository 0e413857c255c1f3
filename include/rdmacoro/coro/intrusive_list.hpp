// Intrusive lists: nodes live in the frames that wait, so that queueing allocates nothing.
#pragma once

#include <cstddef>

namespace rdmacoro::detail {

/// A node of a doubly linked intrusive list. `Tag` lets one object sit in several lists. A node unlinks itself in
/// constant time and knows whether it is linked.
template <class Tag>
struct list_node {
    list_node* next = nullptr;  ///< nullptr: in no list
    list_node* prev;            ///< set while in a list

    list_node() noexcept {}  // NOLINT: `prev` has no meaning yet
    list_node(const list_node&) = delete;
    list_node& operator=(const list_node&) = delete;

    [[nodiscard]] bool linked() const noexcept { return next != nullptr; }

    void unlink() noexcept {
        if (next == nullptr) return;
        next->prev = prev;
        prev->next = next;
        next = prev = nullptr;
    }

    /// Sits where `other` sat, which is in no list then. Precondition: this is in none.
    void take_place_of(list_node& other) noexcept {
        if (other.next == nullptr) return;
        next = other.next;
        prev = other.prev;
        next->prev = prev->next = this;
        other.next = other.prev = nullptr;
    }
};

/// A circular doubly linked list of `T`, which derives from `list_node<Tag>`. Owns nothing; must be empty, or its nodes
/// unlinked, before it goes.
template <class T, class Tag = T>
class intrusive_list {
public:
    using node = list_node<Tag>;

    intrusive_list() noexcept { head_.next = head_.prev = &head_; }
    intrusive_list(const intrusive_list&) = delete;
    intrusive_list& operator=(const intrusive_list&) = delete;

    [[nodiscard]] bool empty() const noexcept { return head_.next == &head_; }
    [[nodiscard]] T* front() noexcept { return empty() ? nullptr : static_cast<T*>(head_.next); }
    [[nodiscard]] T* back() noexcept { return empty() ? nullptr : static_cast<T*>(head_.prev); }

    /// The element after `item`, or nullptr at the end.
    [[nodiscard]] T* next(T& item) noexcept {
        node* after = static_cast<node&>(item).next;
        return after == &head_ ? nullptr : static_cast<T*>(after);
    }

    void push_back(T& item) noexcept { insert_before(head_, item); }
    void push_front(T& item) noexcept { insert_before(*head_.next, item); }

    T* pop_front() noexcept {
        if (empty()) return nullptr;
        T* item = static_cast<T*>(head_.next);
        static_cast<node*>(item)->unlink();
        return item;
    }

    /// Moves all of `other` to the end of this list.
    void splice_back(intrusive_list& other) noexcept {
        if (other.empty()) return;
        node* first = other.head_.next;
        node* last = other.head_.prev;
        first->prev = head_.prev;
        head_.prev->next = first;
        last->next = &head_;
        head_.prev = last;
        other.head_.next = other.head_.prev = &other.head_;
    }

private:
    static void insert_before(node& position, T& item) noexcept {
        node& added = item;
        added.next = &position;
        added.prev = position.prev;
        position.prev->next = &added;
        position.prev = &added;
    }

    node head_;
};

}  // namespace rdmacoro::detail
