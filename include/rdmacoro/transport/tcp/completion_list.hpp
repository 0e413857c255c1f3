// Completions in a list, linked by the fields that belong to the transport: `next`, and `transport_state` backwards.
#pragma once

#include <rdmacoro/transport/concepts.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// Meaning of `completion::transport_state`: the two low bits are one of these, the others an address or index.
enum class tcp_posted : std::uintptr_t {
    item = 0,       ///< a `tcp_send_item`: sent from the caller's memory
    listed = 1,     ///< in a `tcp_completion_list`: the transport needs the caller's memory no more
    operation = 2,  ///< the index of a get or put
};

[[nodiscard]] inline tcp_posted posted_as(const completion& c) noexcept {
    return static_cast<tcp_posted>(reinterpret_cast<std::uintptr_t>(c.transport_state) & 3);
}

/// A list of completions to be called; removal from the middle needs no search.
class tcp_completion_list {
public:
    tcp_completion_list() noexcept {
        ends_.next = &ends_;
        set_previous(ends_, ends_);
    }
    tcp_completion_list(const tcp_completion_list&) = delete;
    tcp_completion_list& operator=(const tcp_completion_list&) = delete;

    [[nodiscard]] bool empty() const noexcept { return ends_.next == &ends_; }

    void push_back(completion& c) noexcept {
        completion& last = previous(ends_);
        last.next = &c;
        set_previous(c, last);
        c.next = &ends_;
        set_previous(ends_, c);
    }

    completion* pop_front() noexcept {
        if (empty()) return nullptr;
        completion& first = *ends_.next;
        remove(first);
        return &first;
    }

    completion* pop_back() noexcept {
        if (empty()) return nullptr;
        completion& last = previous(ends_);
        remove(last);
        return &last;
    }

    static void remove(completion& c) noexcept {
        completion& before = previous(c);
        before.next = c.next;
        set_previous(*c.next, before);
        c.transport_state = nullptr;
    }

    /// Moves all of `other` to the end.
    void splice_back(tcp_completion_list& other) noexcept {
        if (other.empty()) return;
        completion& first = *other.ends_.next;
        completion& last = previous(other.ends_);
        completion& before = previous(ends_);
        before.next = &first;
        set_previous(first, before);
        last.next = &ends_;
        set_previous(ends_, last);
        other.ends_.next = &other.ends_;
        set_previous(other.ends_, other.ends_);
    }

private:
    static completion& previous(const completion& c) noexcept {
        return *reinterpret_cast<completion*>(reinterpret_cast<std::uintptr_t>(c.transport_state) - 1);
    }
    static void set_previous(completion& c, completion& before) noexcept {
        c.transport_state = reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&before) + 1);
    }

    completion ends_;
};
static_assert(alignof(completion) >= 4);

}  // namespace rdmacoro::detail
