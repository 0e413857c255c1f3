// What the engine of a program's own policy is made of, beside the concept in policy.hpp.
#pragma once

#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/protocol/detail/eager_engine.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/message_store.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/protocol/wire.hpp>

/// The parts of the library's own engines that others may build on; whatever else is in `detail` may change with any version.
namespace rdmacoro::engines {

/// A send, from its start to its end: tag, memory, and how it ended. Lives in the operation that is awaited.
using detail::send_request;
/// A posted receive, the same.
using detail::receive_request;
/// A message that came before its receive, as an engine keeps it.
using detail::unexpected_message;
/// The twelve bytes before every message: its kind and tag, and what is piggybacked.
using detail::wire_header;
/// How something ended.
using detail::status;

/// Credit that a message of so many bytes takes, in bytes of the receiver's budget.
using detail::message_cost;
/// Copies a part of a message, in pieces or not, to one place.
using detail::copy_out;

/// All of `eager`, to derive from: a message with its data; matched, kept, lent, truncated and canceled as the others are.
using detail::eager_engine;

}  // namespace rdmacoro::engines
