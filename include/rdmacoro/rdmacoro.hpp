// Everything of rdmacoro that needs no network library. Add the headers of the transports that do: transport/tcp.hpp.
#pragma once

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/memory/memory.hpp>
#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/protocol/protocol.hpp>
#include <rdmacoro/transport/shm.hpp>
