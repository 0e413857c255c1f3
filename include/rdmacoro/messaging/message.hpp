// message: a received message that the user reads where it lies.
//
// Belongs here: endpoints, mailboxes, and the operations that a user awaits.
// Does not belong here: how a message is matched or travels (protocol/), how bytes move (transport/).
#pragma once

#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <span>
#include <utility>

namespace rdmacoro {

/// What a lent receive ends with: the message's bytes, in memory of the toolkit, until this goes. May outlive the endpoint
/// it came from, not the scheduler. Only for the scheduler's thread.
class message {
public:
    message() noexcept = default;
    message(const received& facts, lent_buffer memory) noexcept : facts_(facts), memory_(std::move(memory)) {}

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return memory_.bytes(); }
    [[nodiscard]] std::size_t size() const noexcept { return memory_.bytes().size(); }
    [[nodiscard]] tag_type tag() const noexcept { return facts_.tag; }
    [[nodiscard]] peer_id source() const noexcept { return facts_.source; }

    /// Gives the memory back now.
    void release() noexcept { memory_.reset(); }

private:
    received facts_{};
    lent_buffer memory_;
};

}  // namespace rdmacoro
