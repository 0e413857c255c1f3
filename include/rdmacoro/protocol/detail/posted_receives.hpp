// Receives and probes that wait for messages of one source, or of any.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/protocol/detail/chained_table.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// What waits for messages: receives of one tag in a table, those with a mask in order. Only tags are compared here.
class posted_receives {
public:
    /// `r` has been given its sequence number, the highest so far.
    void add(receive_request& r) noexcept;
    void remove(receive_request& r) noexcept {
        r.list_node<receive_request>::unlink();
        --count_;
    }

    /// The oldest that takes a message with this tag, or nullptr. Stays.
    [[nodiscard]] receive_request* first(tag_type tag) noexcept;
    /// The oldest with a mask that takes such a message, or nullptr.
    [[nodiscard]] receive_request* first_masked(tag_type tag) noexcept;

    /// Calls `visit` for each receive of this tag alone, oldest first; it may take that receive out.
    template <class Visit>
    void each_exact(tag_type tag, Visit visit) noexcept {
        each_in(exact_.bucket(tag_hash(tag)), [&](receive_request& r) noexcept {
            if (r.wanted_.tag == tag) visit(r);
        });
    }
    /// Calls `visit` for each receive; it may take that receive out. Compiled once: not for the path of a message.
    template <class Visit>
    void each(Visit visit) noexcept {
        visit_each([](void* to, receive_request& r) noexcept { (*static_cast<Visit*>(to))(r); }, &visit);
    }

    [[nodiscard]] intrusive_list<probe_request>& probes() noexcept { return probes_; }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }

private:
    void visit_each(void (*visit)(void* to, receive_request& r) noexcept, void* to) noexcept;
    template <class Visit>
    static void each_in(intrusive_list<receive_request>& list, Visit visit) noexcept {
        for (receive_request* r = list.front(); r != nullptr;) {
            receive_request* after = list.next(*r);
            visit(*r);
            r = after;
        }
    }

    std::size_t count_ = 0;
    chained_table<receive_request, receive_request> exact_;
    intrusive_list<receive_request> masked_;
    intrusive_list<probe_request> probes_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/posted_receives.ipp>
#endif
