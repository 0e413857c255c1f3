// The parts from which a program builds the engine of its own policy, in addition to the concepts in policy.hpp.
#pragma once

#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/protocol/detail/eager_engine.hpp>
#include <rdmacoro/protocol/flow_control.hpp>
#include <rdmacoro/protocol/message_store.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/protocol/wire.hpp>

/// The parts of the library's own engines that programs may build on; everything else in `detail` may change with any version.
namespace rdmacoro::engines {

/// A send, from its start to its end: tag, memory, and how it ended. Lives in the operation that is awaited.
using detail::send_request;
/// A posted receive, the same.
using detail::receive_request;
/// A message that came before its receive, as an engine stores it.
using detail::unexpected_message;
/// The twelve bytes before every message: its kind, its tag, and credits.
using detail::wire_header;
/// An outcome: zero, or an error.
using detail::status;

/// Credit that a message of so many bytes takes, in bytes of the receiver's budget.
using detail::message_cost;
/// Numbers in the payload of a policy's own messages, little-endian.
using detail::load_number;
using detail::store_number;
/// Copies a part of a message, in pieces or not, to one place.
using detail::copy_out;

/// All of `eager`, to derive from: a message with its data; matched, stored, lent, truncated and canceled like the
/// messages of other policies.
using detail::eager_engine;

}  // namespace rdmacoro::engines
