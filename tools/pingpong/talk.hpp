// Sending and receiving control messages.
#pragma once

#include "control.hpp"

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/endpoint.hpp>

#include <chrono>
#include <cstddef>

namespace pingpong {

/// Time limits of a new client's first message, and of closing.
inline constexpr std::chrono::seconds greeting_limit{10};
inline constexpr std::chrono::seconds close_limit{5};

template <class Message, class Endpoint>
rdmacoro::task<> send_control(Endpoint& peer, Message message) {
    const control_bytes raw = encode(message);
    co_await peer.send(raw, control_tag);
}

/// A control message of any kind.
struct control_message {
    control_bytes raw{};
    std::size_t bytes = 0;
};

template <class Endpoint>
rdmacoro::task<control_message> receive_any_control(Endpoint& peer) {
    control_message message;
    const rdmacoro::received got = co_await peer.recv(message.raw, control_tag);
    message.bytes = got.bytes;
    co_return message;
}

template <class Message, class Endpoint>
rdmacoro::task<Message> receive_control(Endpoint& peer) {
    const control_message message = co_await receive_any_control(peer);
    co_return decode<Message>(message.raw, message.bytes);
}

}  // namespace pingpong
