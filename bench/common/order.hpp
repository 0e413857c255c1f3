// The order in which a send and its receive begin, made certain by small messages around them.
#pragma once

#include "pair.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace bench {

/// Which side of a transfer measures.
enum class measured_side : std::uint64_t { send, receive };
inline const std::vector<std::string_view> side_names{"send", "receive"};

/// Small messages on one link arrive in the order in which they were sent, behind messages that the library itself sent before:
///  - the sender is first: the receiver posts its receive only when the message, or its announcement, has arrived. Where
///    the receiver blocks it finds that out by `probe`; where it is measured the sender's go-ahead follows the message.
///  - the receiver is first: the sender begins only when a message that the receiver sent behind its receive has arrived,
///    and so has everything that the receive sent to the sender's side.
/// None of this is in the measured time, with one exception of the receiver-first order: the measured receiver waits until the
/// sender has been notified and has begun.
enum class arrival_order : std::uint64_t { sender_first, receiver_first };
inline const std::vector<std::string_view> order_names{"sender-first", "receiver-first"};

/// The receiver of one message with a measuring sender: notifies it when `order` allows it to begin, then blocks.
rc::task<> blocking_receive(peer& from, std::span<std::byte> into, arrival_order order);
/// The sender of one message with a measuring receiver: begins when notified, then blocks.
rc::task<> blocking_send(peer& to, std::span<const std::byte> from, arrival_order order);

}  // namespace bench
