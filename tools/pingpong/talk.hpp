// Sending and receiving control messages.
#pragma once

#include "control.hpp"
#include "peer.hpp"

#include <rdmacoro/coro/task.hpp>

#include <chrono>

namespace pingpong {

/// The time limit of a new client's first message.
inline constexpr std::chrono::seconds greeting_limit{10};

template <class Message>
[[nodiscard]] rdmacoro::task<> send_control(peer& to, const Message& message) {
    return to.send(encode(message));
}

template <class Message>
rdmacoro::task<Message> receive_control(peer& from) {
    const control_message message = co_await from.receive();
    co_return decode<Message>(message.raw, message.bytes);
}

}  // namespace pingpong
