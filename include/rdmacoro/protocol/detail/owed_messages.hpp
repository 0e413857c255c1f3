// Control messages that one side of a policy owes the peer: sent at once, or in their turn when the link has room.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/detail/stream_slots.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// The messages owed on one stream: a set of bits, one for each message. Base of the slots of a side.
struct owing_slot {
    std::uint8_t owed = 0;
};

/// Base of one side of a policy, which has numbered streams. While a message is owed, the connection sends no goodbye.
class owed_messages {
public:
    owed_messages(const owed_messages&) = delete;
    owed_messages& operator=(const owed_messages&) = delete;

    /// Sends the messages that found no room before, the longest owed first, until one finds none again.
    void send_remembered() noexcept;

protected:
    owed_messages(connection_base& connection, const slot_type& type) noexcept
        : slots_(type), connection_(connection) {}
    ~owed_messages() = default;

    /// Sends these messages, lower bits first, or remembers them.
    void owe(std::uint32_t id, std::uint8_t messages) noexcept;
    /// Nothing is owed on any stream. For a link that is down.
    void forget_owed() noexcept;

    [[nodiscard]] owing_slot& owing(std::uint32_t id) noexcept {
        return *static_cast<owing_slot*>(slots_.at(id));
    }

    slot_table slots_;

private:
    /// Posts the message with this bit. Any answer but `done`: it waits for the next `send_remembered`, and those that are
    /// owed behind it do, too.
    virtual post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept = 0;
    /// It was sent, and is owed no more.
    virtual void owed_sent(std::uint32_t id, std::uint8_t message) noexcept = 0;

    /// False: one of them was refused.
    bool send_owed_on(std::uint32_t id) noexcept;

    connection_base& connection_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/owed_messages.ipp>
#endif
