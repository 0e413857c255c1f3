// The bodies of protocol/ and messaging/, and what endpoints over these transports are made of, for one unit of a program: see
// <rdmacoro/src.hpp>.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error "define RDMACORO_SEPARATE_COMPILATION for the whole program before this is included"
#endif

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <rdmacoro/protocol/detail/impl/ahead_engine.ipp>
#include <rdmacoro/protocol/detail/impl/budget_share.ipp>
#include <rdmacoro/protocol/detail/impl/connection_description.ipp>
#include <rdmacoro/protocol/detail/impl/discarding_receives.ipp>
#include <rdmacoro/protocol/detail/impl/eager_engine.ipp>
#include <rdmacoro/protocol/detail/impl/masked_receives.ipp>
#include <rdmacoro/protocol/detail/impl/owed_messages.ipp>
#include <rdmacoro/protocol/detail/impl/piecewise_streams.ipp>
#include <rdmacoro/protocol/detail/impl/piecewise_transfer.ipp>
#include <rdmacoro/protocol/detail/impl/posted_receives.ipp>
#include <rdmacoro/protocol/detail/impl/refusal_timer.ipp>
#include <rdmacoro/protocol/detail/impl/region_list.ipp>
#include <rdmacoro/protocol/detail/impl/rendezvous_context.ipp>
#include <rdmacoro/protocol/detail/impl/rendezvous_engine.ipp>
#include <rdmacoro/protocol/detail/impl/rendezvous_receiver.ipp>
#include <rdmacoro/protocol/detail/impl/rendezvous_sender.ipp>
#include <rdmacoro/protocol/detail/impl/rendezvous_wire.ipp>
#include <rdmacoro/protocol/detail/impl/reuse_costs.ipp>
#include <rdmacoro/protocol/detail/impl/segmented_engine.ipp>
#include <rdmacoro/protocol/detail/impl/speculation_receiver.ipp>
#include <rdmacoro/protocol/detail/impl/speculation_sender.ipp>
#include <rdmacoro/protocol/detail/impl/speculation_wire.ipp>
#include <rdmacoro/protocol/detail/impl/staged_receiver.ipp>
#include <rdmacoro/protocol/detail/impl/staged_sender.ipp>
#include <rdmacoro/protocol/detail/impl/staged_wire.ipp>
#include <rdmacoro/protocol/detail/impl/stream_slots.ipp>
#include <rdmacoro/protocol/detail/impl/usage_table.ipp>
#include <rdmacoro/protocol/impl/connection_base.ipp>
#include <rdmacoro/protocol/impl/connection_messages.ipp>
#include <rdmacoro/protocol/impl/mailbox_base.ipp>
#include <rdmacoro/protocol/impl/matching.ipp>
#include <rdmacoro/protocol/impl/message_pool.ipp>
#include <rdmacoro/protocol/impl/message_store.ipp>
#include <rdmacoro/protocol/impl/requests.ipp>
#include <rdmacoro/protocol/impl/tuning.ipp>

#include <rdmacoro/messaging/detail/impl/connect_attempts.ipp>
#include <rdmacoro/messaging/impl/mailbox.ipp>

// Templates last: they need the bodies above.
#include <rdmacoro/messaging/compiled/shared.ipp>
#include <rdmacoro/messaging/compiled/shm.ipp>
#include <rdmacoro/messaging/compiled/sim.ipp>
