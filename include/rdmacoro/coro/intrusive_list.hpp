// Intrusive lists: nodes live in the frames that wait, so that queueing allocates nothing.
#pragma once

#include <cstddef>

namespace rdmacoro::detail {

/// The links of a `list_node`, without its type.
struct list_hook {
    list_hook* next = nullptr;  ///< nullptr: in no list
    list_hook* prev;            ///< set while in a list

    list_hook() noexcept {}  // NOLINT: `prev` has no meaning yet
    list_hook(const list_hook&) = delete;
    list_hook& operator=(const list_hook&) = delete;

    [[nodiscard]] bool linked() const noexcept { return next != nullptr; }

    void unlink() noexcept {
        if (next == nullptr) return;
        next->prev = prev;
        prev->next = next;
        next = prev = nullptr;
    }

protected:
    void replace(list_hook& other) noexcept {
        if (other.next == nullptr) return;
        next = other.next;
        prev = other.prev;
        next->prev = prev->next = this;
        other.next = other.prev = nullptr;
    }
};

/// A node of a doubly linked intrusive list. `Tag` lets one object be in several lists. A node unlinks itself in
/// constant time and knows whether it is linked.
template <class Tag>
struct list_node : list_hook {
    [[gnu::always_inline]] list_node() noexcept {
    }  // NOLINT: not `= default`, which would be a function in each unit
    /// Takes the position of `other`, which is in no list afterwards. Precondition: this is in none.
    [[gnu::always_inline]] void take_place_of(list_node& other) noexcept { this->replace(other); }
};

/// The links of an `intrusive_list`, compiled once for all element types.
class list_head {
public:
    list_head() noexcept { head_.next = head_.prev = &head_; }

    [[nodiscard]] bool empty() const noexcept { return head_.next == &head_; }

protected:
    [[nodiscard]] list_hook* first() noexcept { return empty() ? nullptr : head_.next; }
    [[nodiscard]] list_hook* last() noexcept { return empty() ? nullptr : head_.prev; }
    [[nodiscard]] list_hook* after(const list_hook& item) noexcept {
        return item.next == &head_ ? nullptr : item.next;
    }
    void add_last(list_hook& item) noexcept { insert_before(head_, item); }
    void add_first(list_hook& item) noexcept { insert_before(*head_.next, item); }
    list_hook* take_first() noexcept {
        list_hook* const item = first();
        if (item != nullptr) item->unlink();
        return item;
    }
    void splice_last(list_head& other) noexcept {
        if (other.empty()) return;
        list_hook* const from = other.head_.next;
        list_hook* const to = other.head_.prev;
        from->prev = head_.prev;
        head_.prev->next = from;
        to->next = &head_;
        head_.prev = to;
        other.head_.next = other.head_.prev = &other.head_;
    }

private:
    static void insert_before(list_hook& position, list_hook& added) noexcept {
        added.next = &position;
        added.prev = position.prev;
        position.prev->next = &added;
        position.prev = &added;
    }

    list_hook head_;
};

/// A circular doubly linked list of `T`, which derives from `list_node<Tag>`. Owns nothing; must be empty, or its nodes
/// unlinked, before it is destroyed.
template <class T, class Tag = T>
class intrusive_list : private list_head {
public:
    using node = list_node<Tag>;

    [[gnu::always_inline]] intrusive_list() noexcept {}  // NOLINT: as for list_node

    using list_head::empty;
    [[nodiscard, gnu::always_inline]] T* front() noexcept { return element(this->first()); }
    [[nodiscard, gnu::always_inline]] T* back() noexcept { return element(this->last()); }

    /// The element after `item`, or nullptr at the end.
    [[nodiscard, gnu::always_inline]] T* next(T& item) noexcept {
        return element(this->after(static_cast<node&>(item)));
    }

    [[gnu::always_inline]] void push_back(T& item) noexcept { this->add_last(static_cast<node&>(item)); }
    [[gnu::always_inline]] void push_front(T& item) noexcept { this->add_first(static_cast<node&>(item)); }
    [[gnu::always_inline]] T* pop_front() noexcept { return element(this->take_first()); }

    /// Moves all of `other` to the end of this list.
    [[gnu::always_inline]] void splice_back(intrusive_list& other) noexcept { this->splice_last(other); }

private:
    [[gnu::always_inline]] static T* element(list_hook* hook) noexcept {
        return static_cast<T*>(static_cast<node*>(hook));
    }
};

}  // namespace rdmacoro::detail
