// Receives that wait in the place of canceled ones, to drop their messages.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/protocol/matching.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>

namespace rdmacoro::detail {

/// A receive without memory: its message is longer than that, and is dropped like any that is too long for its receive. No operation;
/// it ends in silence.
class discarding_receive final : public receive_request, public list_node<discarding_receive> {
public:
    discarding_receive(scheduler& owner, tag_match wanted, peer_id source) noexcept
        : receive_request(&owner, wanted, source, mutable_buffers(), nullptr) {}

    /// Whether it is in a matcher's table.
    [[nodiscard]] bool is_posted() const noexcept { return !done() && filling_ == nullptr; }
};

/// Owns the discarding receives of a mailbox. One lives until its message has come, or its source can't send any more; the memory of
/// those that have ended is used for others, or goes back a little later.
class discarding_receives {
public:
    discarding_receives() noexcept = default;
    discarding_receives(const discarding_receives&) = delete;
    discarding_receives& operator=(const discarding_receives&) = delete;
    /// Precondition: `end_all`.
    ~discarding_receives() = default;

    /// One that is not posted yet. nullptr: there are `most` already, or memory is short.
    [[nodiscard]] discarding_receive* make(scheduler& owner, tag_match wanted, peer_id source,
                                           std::size_t most) noexcept;
    /// Takes those that are posted out of `matching`, and frees all.
    void end_all(matcher& matching) noexcept;
    /// How many are posted.
    [[nodiscard]] std::size_t posted() noexcept;
    /// Moves all to the mailbox `to`, where `to_matching` posts what `matching` had, in the same order, and the source has the name `source`.
    void move_to(discarding_receives& to, matcher& matching, matcher& to_matching, peer_id source) noexcept;

    /// Memory held, in bytes.
    [[nodiscard]] std::size_t footprint() const noexcept { return count_ * sizeof(discarding_receive); }

private:
    static constexpr int looked_at =
        4;  // for each that is made: what ends is found faster than others are made

    void free(discarding_receive& ended) noexcept;
    /// Puts a list of so many that are posted in the order of their posting.
    static void sort(intrusive_list<discarding_receive>& all, std::size_t count) noexcept;

    intrusive_list<discarding_receive> all_;
    std::size_t count_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/discarding_receives.ipp>
#endif
