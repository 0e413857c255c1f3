// connection_description: how a connection and its engines describe the operations that they hold.
#pragma once

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/transport/detail/link_actors.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace rdmacoro::detail {

/// A description in the making, of one connection's operations. Everything here runs only when a scheduler is asked to describe.
class connection_description {
public:
    connection_description(description& into, std::string peer, time_point now) noexcept
        : into_(into), peer_(std::move(peer)), now_(now) {}
    connection_description(const connection_description&) = delete;
    connection_description& operator=(const connection_description&) = delete;

    /// A send that has begun. `moved`: bytes of it that this side has handed over.
    void send(const send_request& r, const char* stage, next_actor next, std::size_t moved = 0) noexcept;
    /// A receive; `bytes` is its message's length, where there is one already.
    void receive(const receive_request& r, const char* stage, next_actor next, std::size_t bytes = 0,
                 std::size_t moved = 0) noexcept;
    void probe(const probe_request& r) noexcept;
    /// Another operation of the connection, named by an object of its own.
    void other(const void* id, const char* what, const char* stage, next_actor next) noexcept;

    /// Makes room when the link has none for a message.
    next_actor room = next_actor::network;
    /// Moves the bytes of gets and puts that are posted.
    next_actor transfers = next_actor::network;
    /// The link can see that the peer has not taken all that was sent to it. False where it cannot.
    bool unread = false;
    /// Changes with each message of the connection: tells receives of one place apart that were not posted in the mailbox.
    std::uint64_t messages = 0;
    /// Stored messages that no receive takes; shown where a receive waits.
    std::size_t stored = 0;

private:
    [[nodiscard]] std::optional<duration> waited_since(duration::rep when) const noexcept;
    [[nodiscard]] operation_sketch sketch(const void* id, const char* what, const char* stage,
                                          next_actor next) const noexcept;

    description& into_;
    std::string peer_;
    time_point now_;
};

}  // namespace rdmacoro::detail
