// The whole messaging room.
//
// Belongs here: endpoints, mailboxes, and the operations that a user awaits.
// Does not belong here: how a message is matched or travels (protocol/), how bytes move (transport/).
#pragma once

#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/messaging/mailbox.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/messaging/operations.hpp>
