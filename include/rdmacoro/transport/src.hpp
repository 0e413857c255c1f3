// The bodies of the transports without a network library, for one unit of a program: see <rdmacoro/src.hpp>.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error "define RDMACORO_SEPARATE_COMPILATION for the whole program before this is included"
#endif

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/plain_stream.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <rdmacoro/transport/detail/impl/close_elsewhere.ipp>
#include <rdmacoro/transport/detail/impl/connect_info_exchange.ipp>
#include <rdmacoro/transport/detail/impl/exchange_listener.ipp>
#include <rdmacoro/transport/detail/impl/host_arrivals.ipp>
#include <rdmacoro/transport/detail/impl/host_places.ipp>
#include <rdmacoro/transport/detail/impl/inet_address.ipp>
#include <rdmacoro/transport/detail/impl/keepalive.ipp>
#include <rdmacoro/transport/detail/impl/link_timer.ipp>
#include <rdmacoro/transport/detail/impl/own_address.ipp>
#include <rdmacoro/transport/detail/impl/recycled_pool.ipp>
#include <rdmacoro/transport/detail/impl/scheme.ipp>
#include <rdmacoro/transport/detail/impl/taken_port.ipp>
#include <rdmacoro/transport/detail/impl/watcher.ipp>
#include <rdmacoro/transport/impl/plain_stream.ipp>
#include <rdmacoro/transport/impl/shm.ipp>
#include <rdmacoro/transport/impl/sim.ipp>
#include <rdmacoro/transport/shm/impl/arena.ipp>
#include <rdmacoro/transport/shm/impl/block_writes.ipp>
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
