// node_options: the limits of a node, and what it tells of others.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/service/node_card.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace rdmacoro {

/// The limits of a node.
struct node_options {
    /// Connections at a time, those being made included; at least 1. For one more, the idle one that was not used for the longest time is
    /// closed: one without messages that wait for a receive, pending operations of `peer()` and holds.
    std::size_t connections = 1024;
    /// Accepted connections at a time that have not said which node they are of; at least 1. More wait to be accepted.
    std::size_t unnamed_connections = 64;
    /// How long such a connection may say nothing, and how long an answer may take; more than 0. Where more wait, the one that has been silent, or was
    /// refused and does not close, for the longest time is closed after a tenth of this.
    duration hello_limit = std::chrono::seconds(2);
    /// How long connecting by one URL may take; more than 0. The addresses of a name are tried within it, each when the one before has failed
    /// or after 250 ms.
    duration attempt_limit = std::chrono::seconds(2);
    /// How long a message waits for a connection, all attempts and the pauses between them included; more than 0.
    duration connect_limit = std::chrono::seconds(5);
    /// The pause after a failed attempt, at least 1 ms: doubled after each further one, and a random part of up to a half less.
    duration first_pause = std::chrono::milliseconds(5);
    /// The longest such pause, at least 1 ms.
    duration longest_pause = std::chrono::seconds(1);
    /// How long closing in good order may take, and how long functions of connections and handlers have to end after they were asked to stop.
    duration close_limit = std::chrono::seconds(2);
    /// Whether nodes that are not in the address book may connect.
    bool admits_strangers = true;
    /// Whether a node of another generation than its card in the address book says may connect: one that was restarted.
    bool admits_other_lives = true;
    /// The generation of the node. Zero: a new one, as it has to be, unless a simulated run is to be the same each time.
    generation born{};
    /// Of each connection.
    mailbox_options mailbox{};
};

/// A kind of change that `node::watch` tells of.
enum class node_change : std::uint8_t {
    came,    ///< a connection with this node, in this generation, is open
    left,    ///< the node has closed it, and stops
    failed,  ///< the connection was lost, or could not be made
    deaf,  ///< this node itself accepts no more connections at one of its URLs: `id` is its own, and `explain` of that tells more
};

/// A change of another node.
struct node_event {
    node_change what = node_change::came;  ///< which change
    node_id id = 0;                        ///< of which node
    generation born{};                     ///< zero where it is not known
    std::error_code why{};                 ///< of `failed` and `deaf`
    std::uint64_t missed = 0;              ///< changes before this one that the watcher had no room for
};

}  // namespace rdmacoro
