// The receiving half of staged_get: gets messages from the sender's blocks when their receives are there.
#pragma once

#include <rdmacoro/memory/slab_pool.hpp>
#include <rdmacoro/protocol/detail/piecewise_streams.hpp>
#include <rdmacoro/protocol/detail/staged_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace rdmacoro::detail {

/// States of a message:
///
///   stored -> (matched) getting -> over    straight to its place, or to a block and copied from there
///   stored -> (leaving) getting -> over    without a receive: it is stored whole from then on
///   getting -> refused                     the peer named memory that it has not opened, or the link is about to end
///
/// When it is over `received` is sent.
class staged_receiver final : public piecewise_streams {
public:
    /// `limit`: the longest message, in bytes.
    staged_receiver(rendezvous_context& context, std::size_t limit) noexcept;

    void matched(unexpected_message& m, receive_request& r) noexcept;
    /// The receive is canceled. False: it ends later.
    [[nodiscard]] bool forget(receive_request& r) noexcept;

    // ---- the sender's messages

    delivery requested(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery leaving(const wire_header& h, std::span<const std::byte> payload) noexcept;

    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;

private:
    enum class state : std::uint8_t { none, stored, getting, refused };
    enum owed_bits : std::uint8_t { owes_received = 1 };

    struct slot final : piecewise_slot {
        receive_request* request = nullptr;     // nullptr while getting: no receive any more, or yet
        unexpected_message* message = nullptr;  // until a receive has matched it
        std::byte* block = nullptr;  // of this side, that it is being got to; nullptr: straight to its place
        std::size_t total = 0;
        tag_type tag = 0;
        state now = state::none;
        bool withdrawn = false;  ///< canceled, while a get to its place is under way that can't be stopped
    };

    [[nodiscard]] slot& at(std::uint32_t id) noexcept { return static_cast<slot&>(moving(id)); }
    [[nodiscard]] RDMACORO_DECL bool refused(std::uint32_t id) noexcept override;
    RDMACORO_DECL void transferred(std::uint32_t id, std::error_code outcome) noexcept override;
    RDMACORO_DECL post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept override;
    void owed_sent(std::uint32_t, std::uint8_t) noexcept override {}

    void match(std::uint32_t id, receive_request& r) noexcept;
    void fetch(std::uint32_t id) noexcept;
    [[nodiscard]] bool get_to_block(std::uint32_t id) noexcept;
    [[nodiscard]] bool store_whole(slot& s) noexcept;
    void over(std::uint32_t id) noexcept;

    std::size_t limit_;
    slab_pool blocks_;
    bool peer_leaves_ = false;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/staged_receiver.ipp>
#endif
