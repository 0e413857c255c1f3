// Streams of one side that get or put messages in pieces: how transfers begin, go on, stop, and wait after a refusal.
#pragma once

#include <rdmacoro/protocol/detail/owed_messages.hpp>
#include <rdmacoro/protocol/detail/piecewise_transfer.hpp>
#include <rdmacoro/protocol/detail/refusal_timer.hpp>
#include <rdmacoro/protocol/detail/rendezvous_context.hpp>

#include <cstddef>
#include <cstdint>
#include <system_error>

namespace rdmacoro::detail {

/// One stream's transfer.
struct piecewise_slot : owing_slot {
    piecewise_transfer transfer;
    time_point refused_until{};  ///< how long the peer may take to send why it refused
    bool moving = false;         ///< `transferred` will be called
    bool stalled = false;        ///< the link had no room for the next piece
};

/// Base of one side of a policy. One transfer at a time on each stream.
class piecewise_streams : public owed_messages {
public:
    /// The link has room again.
    void writable() noexcept;

protected:
    piecewise_streams(rendezvous_context& context, const slot_type& type) noexcept;
    ~piecewise_streams() = default;

    /// Gets from the memory `transfer.there`; ends with `transferred`, now or later.
    void get(std::uint32_t id, const mutable_buffers& into, std::size_t bytes) noexcept;
    /// Puts to the memory `transfer.there`, likewise.
    void put(std::uint32_t id, const const_buffers& from, std::size_t offset, std::size_t bytes) noexcept;
    /// True: it is over, and `transferred` is not called. False: gets and puts under way must end first; then it is
    /// called.
    [[nodiscard]] bool stop(std::uint32_t id) noexcept;
    /// Whether the end of a region cuts off accesses that are under way.
    [[nodiscard]] bool revokes_at_once() noexcept { return context_.link_capabilities().revokes_at_once; }

    /// The peer's memory was refused: when the peer has not sent why within its time, the link ends. Until then `refused(id)`.
    void await_reason(std::uint32_t id) noexcept;
    /// A transfer ended with an error that is no refusal: the link ends.
    void end_link(std::error_code outcome) noexcept;
    /// The link is down.
    void forget_transfers() noexcept;

    [[nodiscard]] piecewise_slot& moving(std::uint32_t id) noexcept {
        return static_cast<piecewise_slot&>(owing(id));
    }

    rendezvous_context& context_;

private:
    /// Nothing is under way any more.
    virtual void transferred(std::uint32_t id, std::error_code outcome) noexcept = 0;
    /// Whether the stream waits for the reason of a refusal.
    [[nodiscard]] virtual bool refused(std::uint32_t id) noexcept = 0;

    static void stepped(piecewise_transfer& transfer) noexcept;
    piecewise_slot& begin(std::uint32_t id) noexcept;
    void go_on(std::uint32_t id) noexcept;
    void grace_over() noexcept;

    refusal_timer refusal_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/piecewise_streams.ipp>
#endif
