// The receiving half of a rendezvous: gets from the sender's memory where possible, or asks for puts.
#pragma once

#include <rdmacoro/protocol/detail/piecewise_streams.hpp>
#include <rdmacoro/protocol/detail/region_list.hpp>
#include <rdmacoro/protocol/detail/rendezvous_sender.hpp>
#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace rdmacoro::detail {

/// States of a message:
///
///   stored -> (matched) getting -> over                  `received` is sent
///   stored -> (matched) awaiting -> (sent) over           `ready` was sent, once or several times
///   getting -> refused -> (abandon) over                  the source is closed
///   awaiting -> withdrawn -> (sent) over                  the receive was canceled
///   getting -> closing -> over                            likewise, and the sender was putting
class rendezvous_receiver final : public piecewise_streams {
public:
    rendezvous_receiver(rendezvous_context& context, rendezvous_way way) noexcept;

    void matched(unexpected_message& m, receive_request& r) noexcept;
    /// The receive is canceled. False: it ends later.
    [[nodiscard]] bool forget(receive_request& r) noexcept;

    // ---- the sender's messages

    delivery requested(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery sent(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery abandoned(const wire_header& h, std::span<const std::byte> payload) noexcept;

    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;

private:
    enum class state : std::uint8_t {
        none,
        stored,
        getting,
        refused,  ///< the source was refused; the sender will send that it closed it
        awaiting,
        withdrawn,  ///< canceled; `sent` will come. `request` is set while the memory is not free yet
        closing,    ///< canceled; the sender touches the memory still. Then `received` is sent
    };
    /// `owes_end`: no message; the canceled receive ends when the sender no longer touches its memory.
    enum owed_bits : std::uint8_t {
        owes_ready = 1,
        owes_withdraw = 2,
        owes_received = 4,
        owes_gone = 8,
        owes_end = 16
    };

    struct together_hook : completion {
        rendezvous_receiver* self;
        std::uint32_t id;
        bool busy = false;
    };
    struct slot final : piecewise_slot {
        receive_request* request = nullptr;
        unexpected_message* message = nullptr;  // stored
        std::size_t total = 0;
        std::size_t position = 0;  ///< bytes that have been put
        std::size_t round = 0;     ///< bytes that `ready` asks for
        tag_type tag = 0;
        state now = state::none;
        std::uint8_t ready_flags = 0;
        std::uint8_t turn = 0;   ///< the request's flag
        bool abandoned = false;  ///< by the sender, while gets are under way that can't be stopped
        bool withdrawn = false;  ///< by this side, in the same situation
        bool leavable = false;   ///< the sender may still abandon it: its last message has not come
        shared_copy_id copy = no_shared_copy;
        region_list regions;
        together_hook together;
    };

    [[nodiscard]] slot& at(std::uint32_t id) noexcept { return static_cast<slot&>(moving(id)); }
    [[nodiscard]] slot* slot_of(const wire_header& h) noexcept;
    [[nodiscard]] RDMACORO_DECL bool refused(std::uint32_t id) noexcept override;
    RDMACORO_DECL void transferred(std::uint32_t id, std::error_code outcome) noexcept override;
    RDMACORO_DECL post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept override;
    RDMACORO_DECL void owed_sent(std::uint32_t id, std::uint8_t message) noexcept override;

    void match(std::uint32_t id, receive_request& r) noexcept;
    [[nodiscard]] bool get_together(std::uint32_t id, const mutable_buffers& into) noexcept;
    [[nodiscard]] bool stop_getting(std::uint32_t id) noexcept;
    void ask_for_put(std::uint32_t id) noexcept;
    [[nodiscard]] bool withdraw(std::uint32_t id, receive_request& r) noexcept;
    receive_request* clear(slot& s) noexcept;
    void let_go(std::uint32_t id, errc why) noexcept;

    rendezvous_way way_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/rendezvous_receiver.ipp>
#endif
