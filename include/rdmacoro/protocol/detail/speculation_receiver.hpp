// The receiving half of speculation: announces the buffers of posted receives, and takes announcements back.
#pragma once

#include <rdmacoro/protocol/detail/owed_messages.hpp>
#include <rdmacoro/protocol/detail/region_list.hpp>
#include <rdmacoro/protocol/detail/rendezvous_context.hpp>
#include <rdmacoro/protocol/detail/speculation_window.hpp>
#include <rdmacoro/protocol/detail/speculation_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace rdmacoro::detail {

/// States of an announcement at the receiver:
///
///   announced -> (its message comes otherwise) free
///   announced -> (claim) claimed -> (finish) free
///   announced -> withdrawing -> (withdrawn) free, or (claim) claimed
///   claimed -> revoking -> (finish) free
///
/// A number is free again when, besides, no answer to `withdraw` is awaited.
class speculation_receiver final : public owed_messages {
public:
    /// `first_kind`: that of the policy's kinds which is `announce`.
    speculation_receiver(rendezvous_context& context, unsigned first_kind) noexcept;

    /// A receive with an exact tag and one source was posted, and its message has not come: announces it, if the sender
    /// cannot misunderstand that. `seen`: messages of the peer so far.
    void posted(receive_request& r, std::uint64_t seen) noexcept;
    /// A message that was not put into it matches this receive. `rendezvous`: it could have been.
    void superseded(receive_request& r, bool rendezvous) noexcept;
    /// A posted receive is canceled. False: it ends when its buffer, and buffers announced behind it, are taken back.
    [[nodiscard]] bool cancel(receive_request& r) noexcept;
    /// A receive that is being filled is canceled. False: its memory is not free yet.
    [[nodiscard]] bool forget(receive_request& r) noexcept;

    // ---- the sender's messages

    /// False: it broke the protocol. A claim counts as a message of the peer.
    [[nodiscard]] bool claimed(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery finished(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery withdrawn(const wire_header& h, std::span<const std::byte> payload) noexcept;

    /// The link has room again.
    void writable() noexcept { send_remembered(); }
    /// The peer will send nothing more: receives that wait for it end.
    void forget_announced() noexcept;
    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;

private:
    static constexpr std::uint16_t watched = receive_request::watched;

    enum class state : std::uint8_t { free, announced, withdrawing, claimed, revoking };
    /// `owes_end`: no message; the canceled receive ends when the sender no longer touches its memory.
    enum owed_bits : std::uint8_t { owes_withdraw = 1, owes_revoke = 2, owes_end = 4 };

    struct slot final : owing_slot {
        receive_request* request = nullptr;
        tag_type tag = 0;
        std::size_t bytes = 0;  ///< of the message that claimed it
        state now = state::free;
        bool awaits_answer = false;
        region_list regions;
    };

    [[nodiscard]] slot& at(std::uint32_t id) noexcept { return static_cast<slot&>(owing(id)); }
    [[nodiscard]] slot* slot_of(const wire_header& h) noexcept;
    RDMACORO_DECL post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept override;
    RDMACORO_DECL void owed_sent(std::uint32_t id, std::uint8_t message) noexcept override;

    [[nodiscard]] bool expose(receive_request& r, slot& s) noexcept;
    [[nodiscard]] bool withdrawing(tag_type tag) noexcept;
    void judge(bool used) noexcept;
    void free(std::uint32_t id) noexcept;
    void end_canceled(tag_type tag) noexcept;

    rendezvous_context& context_;
    unsigned first_kind_;
    speculation_window window_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/speculation_receiver.ipp>
#endif
