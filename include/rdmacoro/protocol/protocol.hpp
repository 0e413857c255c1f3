// The whole protocol room.
//
// Belongs here: wire formats, matching, flow control, and one file for each protocol policy.
// Does not belong here: how bytes move (transport/), the operations of users (messaging/).
#pragma once

#include <rdmacoro/protocol/connection.hpp>
#include <rdmacoro/protocol/cooperative_rendezvous.hpp>
#include <rdmacoro/protocol/eager.hpp>
#include <rdmacoro/protocol/engines.hpp>
#include <rdmacoro/protocol/explain.hpp>
#include <rdmacoro/protocol/get_rendezvous.hpp>
#include <rdmacoro/protocol/message_pool.hpp>
#include <rdmacoro/protocol/metrics.hpp>
#include <rdmacoro/protocol/protocols.hpp>
#include <rdmacoro/protocol/provider_matched.hpp>
#include <rdmacoro/protocol/put_rendezvous.hpp>
#include <rdmacoro/protocol/reuse_aware_eager.hpp>
#include <rdmacoro/protocol/segmented.hpp>
#include <rdmacoro/protocol/speculative.hpp>
#include <rdmacoro/protocol/staged_get.hpp>
#include <rdmacoro/protocol/tuning.hpp>
