// Saying and hearing control messages.
#pragma once

#include "control.hpp"

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include <chrono>
#include <cstddef>

namespace pingpong {

/// How long a stranger may take to say what it wants, and a peer to say goodbye.
inline constexpr std::chrono::seconds greeting_limit{10};
inline constexpr std::chrono::seconds close_limit{5};

template <class Message, class Endpoint>
rdmacoro::task<> say(Endpoint& peer, Message message) {
    const control_bytes raw = encode(message);
    co_await peer.send(raw, control_tag);
}

/// A control message of any kind.
struct heard {
    control_bytes raw{};
    std::size_t bytes = 0;
};

template <class Endpoint>
rdmacoro::task<heard> hear_any(Endpoint& peer) {
    heard message;
    const rdmacoro::received got = co_await peer.recv(message.raw, control_tag);
    message.bytes = got.bytes;
    co_return message;
}

template <class Message, class Endpoint>
rdmacoro::task<Message> hear(Endpoint& peer) {
    const heard message = co_await hear_any(peer);
    co_return decode<Message>(message.raw, message.bytes);
}

}  // namespace pingpong
