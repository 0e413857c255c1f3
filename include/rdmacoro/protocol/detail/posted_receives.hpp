// Receives and probes that wait for messages of one source, or of any.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/protocol/detail/chained_table.hpp>
#include <rdmacoro/protocol/detail/masked_receives.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace rdmacoro::detail {

/// Whether a receive takes tags with the highest bit alone, or tags without it alone: the toolkit's own, and the program's.
[[nodiscard]] inline bool takes_high_alone(const receive_request& r) noexcept {
    return r.wanted_.tag >> 63 != 0;  // a bit that is not compared is 0 there
}
[[nodiscard]] inline bool takes_low_alone(const receive_request& r) noexcept {
    return (r.wanted_.mask & ~r.wanted_.tag) >> 63 != 0;
}

/// Posted receives: those of one tag in a table, those with a mask, and apart from them those with a mask that accepts only tags with the
/// highest bit. Only tags are compared here.
class posted_receives {
public:
    /// `r` has been given its sequence number, the highest so far.
    void add(receive_request& r) noexcept;
    void remove(receive_request& r) noexcept {
        if (r.wanted_.exact()) {
            r.list_node<receive_request>::unlink();
            if (--exact_count_ == 0) exact_.emptied();
        } else {
            masked_of(r).remove(r);
        }
    }

    /// The oldest that takes a message with this tag, or nullptr. Stays.
    [[nodiscard]] receive_request* first(tag_type tag) noexcept;
    /// The oldest with a mask that takes such a message, or nullptr.
    [[nodiscard]] receive_request* first_masked(tag_type tag) noexcept { return masked_before(tag, nullptr); }

    /// Calls `visit` for each receive of this tag alone, oldest first; it may take that receive out.
    template <class Visit>
    void each_exact(tag_type tag, Visit visit) noexcept {
        each_in(exact_.bucket(tag_hash(tag)), [&](receive_request& r) noexcept {
            if (r.wanted_.tag == tag) visit(r);
        });
    }
    /// How many receives of the tag that `r` alone takes were added before it; nothing when more than `most` others are near them in the
    /// table. Precondition: `r` was added last.
    [[nodiscard]] std::optional<std::uint32_t> before(const receive_request& r, std::uint32_t most) noexcept;
    /// Calls `visit` for each receive; it may take that receive out. Compiled once: not for the path of a message.
    template <class Visit>
    void each(Visit visit) noexcept {
        visit_each([](void* to, receive_request& r) noexcept { (*static_cast<Visit*>(to))(r); }, &visit);
    }

    /// Memory of tables, in bytes.
    [[nodiscard]] std::size_t footprint() const noexcept {
        return exact_.footprint() + masked_.footprint() + high_.footprint();
    }
    [[nodiscard]] intrusive_list<probe_request>& probes() noexcept { return probes_; }
    [[nodiscard]] bool empty() const noexcept {
        return exact_count_ == 0 && masked_.empty() && high_.empty();
    }

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

    [[nodiscard]] masked_receives& masked_of(const receive_request& r) noexcept {
        return takes_high_alone(r) ? high_ : masked_;
    }
    /// The oldest with a mask that takes the tag and is older than `other`, or `other`.
    [[nodiscard]] receive_request* masked_before(tag_type tag, receive_request* other) noexcept {
        if (!masked_.empty()) other = masked_.older(tag, other);
        return tag >> 63 != 0 ? high_.older(tag, other) : other;
    }

    // In the order in which a message needs them.
    std::uint32_t exact_count_ = 0;
    masked_receives masked_;
    masked_receives high_;  // of tags with the highest bit
    chained_table<receive_request, receive_request> exact_;
    intrusive_list<probe_request> probes_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/posted_receives.ipp>
#endif
