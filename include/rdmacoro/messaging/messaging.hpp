// The whole messaging room.
//
// Belongs here: endpoints, mailboxes, and their operations.
// Does not belong here: how a message is matched or travels (protocol/), how bytes move (transport/).
#pragma once

#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/messaging/mailbox.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/messaging/one_sided_operations.hpp>
#include <rdmacoro/messaging/operations.hpp>
