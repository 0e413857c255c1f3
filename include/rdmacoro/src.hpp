// The bodies of everything that needs no network library, for programs compiled with RDMACORO_SEPARATE_COMPILATION: include it in
// one unit, or link the library that has it. Transports with a library have theirs: transport/tcp/src.hpp.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error "define RDMACORO_SEPARATE_COMPILATION for the whole program before <rdmacoro/src.hpp> is included"
#endif

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/service.hpp>
#include <rdmacoro/transport/plain_stream.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <rdmacoro/coro/detail/impl/adaptor.ipp>
#include <rdmacoro/coro/detail/impl/child.ipp>
#include <rdmacoro/coro/detail/impl/describe_signal.ipp>
#include <rdmacoro/coro/detail/impl/fan_out.ipp>
#include <rdmacoro/coro/detail/impl/outcome.ipp>
#include <rdmacoro/coro/detail/impl/owner_check.ipp>
#include <rdmacoro/coro/detail/impl/plain_vector.ipp>
#include <rdmacoro/coro/detail/impl/stall_watch.ipp>
#include <rdmacoro/coro/detail/impl/stop_bridge.ipp>
#include <rdmacoro/coro/detail/impl/ticks.ipp>
#include <rdmacoro/coro/impl/clock.ipp>
#include <rdmacoro/coro/impl/describe.ipp>
#include <rdmacoro/coro/impl/error.ipp>
#include <rdmacoro/coro/impl/event.ipp>
#include <rdmacoro/coro/impl/frame_pool.ipp>
#include <rdmacoro/coro/impl/idle.ipp>
#include <rdmacoro/coro/impl/local_stop.ipp>
#include <rdmacoro/coro/impl/operation.ipp>
#include <rdmacoro/coro/impl/progress_source.ipp>
#include <rdmacoro/coro/impl/scheduler.ipp>
#include <rdmacoro/coro/impl/semaphore.ipp>
#include <rdmacoro/coro/impl/signals.ipp>
#include <rdmacoro/coro/impl/sleep_for.ipp>
#include <rdmacoro/coro/impl/start.ipp>
#include <rdmacoro/coro/impl/task.ipp>
#include <rdmacoro/coro/impl/task_group.ipp>
#include <rdmacoro/coro/impl/timeout.ipp>
#include <rdmacoro/coro/impl/timer.ipp>
#include <rdmacoro/coro/impl/without_stop.ipp>
#include <rdmacoro/coro/impl/yield.ipp>

#include <rdmacoro/memory/detail/impl/mapping_kind.ipp>
#include <rdmacoro/memory/detail/impl/unmap_watch.ipp>
#include <rdmacoro/memory/impl/buffers.ipp>
#include <rdmacoro/memory/impl/region_table.ipp>
#include <rdmacoro/memory/impl/registration_cache.ipp>
#include <rdmacoro/memory/impl/slab_pool.ipp>

#include <rdmacoro/transport/detail/impl/connect_info_exchange.ipp>
#include <rdmacoro/transport/detail/impl/exchange_listener.ipp>
#include <rdmacoro/transport/detail/impl/inet_address.ipp>
#include <rdmacoro/transport/detail/impl/link_timer.ipp>
#include <rdmacoro/transport/detail/impl/opening.ipp>
#include <rdmacoro/transport/detail/impl/recycled_pool.ipp>
#include <rdmacoro/transport/detail/impl/scheme.ipp>
#include <rdmacoro/transport/detail/impl/watcher.ipp>
#include <rdmacoro/transport/impl/plain_stream.ipp>
#include <rdmacoro/transport/impl/shm.ipp>
#include <rdmacoro/transport/impl/sim.ipp>
#include <rdmacoro/transport/shm/impl/arena.ipp>
#include <rdmacoro/transport/shm/impl/channel.ipp>
#include <rdmacoro/transport/shm/impl/domain.ipp>
#include <rdmacoro/transport/shm/impl/handshake.ipp>
#include <rdmacoro/transport/shm/impl/link.ipp>
#include <rdmacoro/transport/shm/impl/listener.ipp>
#include <rdmacoro/transport/shm/impl/one_sided.ipp>
#include <rdmacoro/transport/shm/impl/peer_memory.ipp>
#include <rdmacoro/transport/shm/impl/peer_process.ipp>
#include <rdmacoro/transport/shm/impl/ptrace_grant.ipp>
#include <rdmacoro/transport/shm/impl/ring.ipp>
#include <rdmacoro/transport/shm/impl/segment.ipp>
#include <rdmacoro/transport/shm/impl/shared_copy.ipp>
#include <rdmacoro/transport/sim/impl/actor.ipp>
#include <rdmacoro/transport/sim/impl/event.ipp>
#include <rdmacoro/transport/sim/impl/explore.ipp>
#include <rdmacoro/transport/sim/impl/explorer.ipp>
#include <rdmacoro/transport/sim/impl/link.ipp>
#include <rdmacoro/transport/sim/impl/memory_watch.ipp>
#include <rdmacoro/transport/sim/impl/node.ipp>
#include <rdmacoro/transport/sim/impl/wire.ipp>
#include <rdmacoro/transport/sim/impl/world.ipp>

#include <rdmacoro/protocol/detail/impl/ahead_engine.ipp>
#include <rdmacoro/protocol/detail/impl/budget_share.ipp>
#include <rdmacoro/protocol/detail/impl/connection_description.ipp>
#include <rdmacoro/protocol/detail/impl/discarding_receives.ipp>
#include <rdmacoro/protocol/detail/impl/eager_engine.ipp>
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
#include <rdmacoro/protocol/impl/matching.ipp>
#include <rdmacoro/protocol/impl/message_pool.ipp>
#include <rdmacoro/protocol/impl/message_store.ipp>
#include <rdmacoro/protocol/impl/requests.ipp>
#include <rdmacoro/protocol/impl/tuning.ipp>

#include <rdmacoro/messaging/detail/impl/connect_attempts.ipp>
#include <rdmacoro/messaging/impl/mailbox.ipp>

#include <rdmacoro/service/detail/impl/answer_in_place.ipp>
#include <rdmacoro/service/detail/impl/calls_base.ipp>
#include <rdmacoro/service/detail/impl/gate_core.ipp>
#include <rdmacoro/service/detail/impl/gate_lane.ipp>
#include <rdmacoro/service/detail/impl/node_core.ipp>
#include <rdmacoro/service/detail/impl/node_wire.ipp>
#include <rdmacoro/service/detail/impl/task_port.ipp>
#include <rdmacoro/service/detail/impl/thread_wait.ipp>
#include <rdmacoro/service/detail/impl/udp_socket.ipp>
#include <rdmacoro/service/detail/impl/upstream.ipp>
#include <rdmacoro/service/impl/call_error.ipp>
#include <rdmacoro/service/impl/node_card.ipp>
#include <rdmacoro/service/impl/node_discovery.ipp>
#include <rdmacoro/service/impl/node_watch.ipp>
#include <rdmacoro/service/impl/scheduler_pool.ipp>
#include <rdmacoro/service/impl/service.ipp>
#include <rdmacoro/service/impl/stream.ipp>

// Templates last: they need the bodies above.
#include <rdmacoro/messaging/compiled/shared.ipp>
#include <rdmacoro/messaging/compiled/shm.ipp>
#include <rdmacoro/messaging/compiled/sim.ipp>
