// The sending half of speculation: remembers the receiver's announcements, and puts at once when a message matches it.
#pragma once

#include <rdmacoro/protocol/detail/piecewise_streams.hpp>
#include <rdmacoro/protocol/detail/speculation_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace rdmacoro::detail {

/// States of an announcement at the sender of messages:
///
///   offered -> (its message begins otherwise) free
///   offered -> claimed -> ending -> free
///   claimed -> refused -> (revoke) ending -> free      the buffer is closed
class speculation_sender final : public piecewise_streams {
public:
    /// `first_kind`: that of the policy's kinds which is `announce`; `sent`: the policy's counter.
    speculation_sender(rendezvous_context& context, unsigned first_kind,
                       std::uint64_t metrics::* sent) noexcept;

    /// Every message of this side, in order, when it is posted.
    void begun(tag_type tag) noexcept {
        tags_[static_cast<std::size_t>(begun_++ % remembered_sends)] = tag;
        if (offered_ != 0) [[unlikely]]
            count_down(tag);
    }

    /// Claims the buffer that was announced for this message, if there is one that it fits. `wait_room`: there is, but the
    /// claim found no room. False: there is none.
    [[nodiscard]] bool start(send_request& r, start_result& answer) noexcept;
    /// Whether this send claimed a buffer.
    [[nodiscard]] static bool claimed(const send_request& r) noexcept {
        return (r.stream_ & claimed_stream) != 0;
    }
    /// Whether looking for announcements now may spare a message its request.
    [[nodiscard]] bool may_use(tag_type tag) noexcept { return announced_for(tag) != none; }
    void cancel(send_request& r) noexcept;

    // ---- the receiver's messages

    delivery announced(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery withdrawn(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery revoked(const wire_header& h, std::span<const std::byte> payload) noexcept;

    /// The peer will receive nothing more: its announcements are void.
    void forget_offers() noexcept;
    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;

private:
    static constexpr std::uint32_t none = slot_table::none;
    static constexpr std::uint32_t claimed_stream = 0x80000000;

    enum class state : std::uint8_t { free, offered, claimed, refused, ending };
    enum owed_bits : std::uint8_t { owes_withdrawn = 1, owes_finish = 2 };

    struct slot final : piecewise_slot {
        send_request* request = nullptr;
        tag_type tag = 0;
        std::uint64_t capacity = 0;
        std::uint32_t ahead = 0;  ///< messages with the tag that come before its own
        state now = state::free;
        std::uint8_t finish_flags = 0;
        bool revoked = false;
        bool withdrawable = false;  ///< announced, and not withdrawn yet, even if used
        bool revocable = false;     ///< claimed, and neither revoked nor announced anew
    };

    [[nodiscard]] static std::uint64_t bit(std::uint32_t id) noexcept { return std::uint64_t{1} << id; }
    static_assert(most_announcements <= 64);

    [[nodiscard]] slot& at(std::uint32_t id) noexcept { return static_cast<slot&>(moving(id)); }
    [[nodiscard]] RDMACORO_DECL bool refused(std::uint32_t id) noexcept override;
    RDMACORO_DECL void transferred(std::uint32_t id, std::error_code outcome) noexcept override;
    RDMACORO_DECL post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept override;
    RDMACORO_DECL void owed_sent(std::uint32_t id, std::uint8_t message) noexcept override;

    [[nodiscard]] std::uint32_t announced_for(tag_type tag) noexcept;
    void count_down(tag_type tag) noexcept;
    void drop(std::uint32_t id) noexcept;
    void over(std::uint32_t id, std::uint8_t flags) noexcept;

    unsigned first_kind_;
    std::uint64_t metrics::* sent_;
    std::uint64_t offered_ = 0;  // announcements that wait for their message
    std::uint64_t begun_ = 0;    // messages of this side
    std::uint64_t seen_ = 0;     // of those, how many the receiver had seen when it last announced
    tag_type tags_[remembered_sends]{};
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/speculation_sender.ipp>
#endif
