// message: a received message that the user reads where it lies.
//
// Belongs here: endpoints, mailboxes, and their operations.
// Does not belong here: how a message is matched or travels (protocol/), how bytes move (transport/).
#pragma once

#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <span>
#include <utility>

namespace rdmacoro {

/// The value of a lent receive: the message's bytes, in memory of the toolkit, or, of a message of up to 64 bytes, in this object. May
/// outlive the endpoint it came from, not the scheduler. Only for the scheduler's thread.
class message {
public:
    message() noexcept = default;
    /// Made by `recv_lent`.
    message(const received& facts, lent_buffer memory) noexcept : facts_(facts), loan_(std::move(memory)) {}
    /// The same, of a message that may be short.
    [[gnu::always_inline]] message(const received& facts, detail::loan&& memory) noexcept
        : facts_(facts), loan_(std::move(memory)) {}

    /// The payload, valid until this object is destroyed or moved. Begins at a multiple of 16 where it is short.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return loan_.bytes(); }
    /// Its length in bytes.
    [[nodiscard]] std::size_t size() const noexcept { return loan_.bytes().size(); }
    /// Its tag.
    [[nodiscard]] tag_type tag() const noexcept { return facts_.tag; }
    /// The peer that sent it; 0 at an endpoint.
    [[nodiscard]] peer_id source() const noexcept { return facts_.source; }

    /// Gives the memory back now.
    void release() noexcept { loan_.release(); }

private:
    received facts_{};
    detail::loan loan_;
};

}  // namespace rdmacoro
