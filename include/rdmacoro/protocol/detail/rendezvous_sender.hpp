// The sending half of a rendezvous: asks, lets the receiver get or puts where it asks for, and takes its memory back.
#pragma once

#include <rdmacoro/protocol/detail/piecewise_streams.hpp>
#include <rdmacoro/protocol/detail/region_list.hpp>
#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace rdmacoro::detail {

/// How a rendezvous begins: with the source's memory for the receiver to get, without, or for both to copy together.
enum class rendezvous_way : std::uint8_t { get, put, together };

/// States of a send:
///
///   requested -> (received) over           the receiver got it, or does not want it
///   requested -> (ready) putting -> over    or requested again, when the receiver asks for it in parts
///   putting -> refused -> (withdraw) over   the destination is closed
///   any -> leaving -> (gone) over           canceled; the send ends when `abandon` is sent and the receiver gets no more
class rendezvous_sender final : public piecewise_streams {
public:
    /// `sent` is the policy's counter.
    rendezvous_sender(rendezvous_context& context, rendezvous_way way,
                      std::uint64_t metrics::* sent) noexcept;

    start_result start(send_request& r) noexcept;
    void cancel(send_request& r) noexcept;

    // ---- the receiver's messages

    delivery ready(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery received(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery withdrawn(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery gone(const wire_header& h, std::span<const std::byte> payload) noexcept;

    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;

private:
    enum class state : std::uint8_t {
        free,
        requested,
        putting,
        refused,  ///< the destination was refused; the receiver will send that it closed it
        ending,   ///< over, but `sent` is still owed
        leaving,  ///< canceled; `abandon` is owed
        left,     ///< `abandon` was sent
    };
    /// `owes_end`: no message; the canceled send ends when the receiver no longer touches its memory.
    enum owed_bits : std::uint8_t { owes_sent = 1, owes_abandon = 2, owes_end = 4 };

    struct helper_hook : completion {
        bool busy = false;
    };
    struct slot final : piecewise_slot {
        send_request* request = nullptr;
        state now = state::free;
        bool withdrawn = false;
        bool helping = false;  ///< the receiver's `ready` to copy together has come
        std::uint8_t sent_flags = 0;
        std::uint8_t turn = 0;  ///< changes with each message
        shared_copy_id copy = no_shared_copy;
        std::size_t round = 0;  ///< bytes that are being put
        region_list regions;
        helper_hook helper;
    };

    [[nodiscard]] slot& at(std::uint32_t id) noexcept { return static_cast<slot&>(moving(id)); }
    [[nodiscard]] slot* slot_of(const wire_header& h) noexcept;
    [[nodiscard]] RDMACORO_DECL bool refused(std::uint32_t id) noexcept override;
    RDMACORO_DECL void transferred(std::uint32_t id, std::error_code outcome) noexcept override;
    RDMACORO_DECL post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept override;
    RDMACORO_DECL void owed_sent(std::uint32_t id, std::uint8_t message) noexcept override;

    void expose(send_request& r, slot& s, rendezvous_request_body& body) noexcept;
    void stop_helping(slot& s) noexcept;
    void release(slot& s) noexcept;
    void end(std::uint32_t id, std::error_code outcome) noexcept;
    delivery help(slot& s, const wire_header& h, const rendezvous_ready_body& body) noexcept;
    void over(std::uint32_t id, std::uint8_t flags) noexcept;

    rendezvous_way way_;
    std::uint64_t metrics::* sent_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/rendezvous_sender.ipp>
#endif
