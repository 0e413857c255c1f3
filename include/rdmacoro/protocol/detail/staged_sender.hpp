// The sending half of staged_get: copies messages to blocks that the receiver gets them from.
#pragma once

#include <rdmacoro/memory/slab_pool.hpp>
#include <rdmacoro/protocol/detail/rendezvous_context.hpp>
#include <rdmacoro/protocol/detail/staged_wire.hpp>
#include <rdmacoro/protocol/detail/stream_slots.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacoro::detail {

/// A send has ended when its request is sent; its block stays busy until the receiver sends that it has the message.
class staged_sender {
public:
    /// `limit`: the longest message, in bytes; `sent`: the policy's counter.
    staged_sender(rendezvous_context& context, std::size_t limit, std::uint64_t metrics::* sent) noexcept;
    staged_sender(const staged_sender&) = delete;
    staged_sender& operator=(const staged_sender&) = delete;

    start_result start(send_request& r) noexcept;
    delivery received(const wire_header& h, std::span<const std::byte> payload) noexcept;

    /// This side closes: messages must not stay in its blocks.
    void leaving() noexcept;
    void writable() noexcept { send_leaving(); }
    void fail() noexcept;

private:
    struct slot {
        std::byte* memory = nullptr;
        region open;
        bool busy = false;
    };

    [[nodiscard]] bool prepare(slot& s) noexcept;
    void send_leaving() noexcept;

    rendezvous_context& context_;
    slab_pool blocks_;  // declared before the members that expose its memory
    stream_slots<slot> slots_;
    std::uint64_t metrics::* sent_;
    std::uint32_t busy_ = 0;
    bool leaving_ = false;
    bool sent_leaving_ = false;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/staged_sender.ipp>
#endif
