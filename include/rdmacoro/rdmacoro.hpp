// Coroutines, memory, endpoints, protocols and shared memory. Beside it: the services (service/calls.hpp, service/node.hpp ...), the adapters,
// and the other transports (transport/tcp.hpp, transport/sim.hpp ...), some of which need a library of their network.
#pragma once

#if __cplusplus < 202002L
#error "rdmacoro needs C++20: compile with -std=c++20 or later"
#else

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/memory/memory.hpp>
#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/protocol/protocol.hpp>
#include <rdmacoro/transport/shm.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/messaging/compiled/shm.hpp>
#endif

#endif  // C++20
