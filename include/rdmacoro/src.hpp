// The bodies of everything that needs no network library, for programs compiled with RDMACORO_SEPARATE_COMPILATION: include it in
// one unit, or each of those below in one, or link the library that has them. Transports with a library have theirs:
// transport/tcp/src.hpp.
#pragma once

#include <rdmacoro/coro/src.hpp>
#include <rdmacoro/memory/src.hpp>
#include <rdmacoro/messaging/src.hpp>
#include <rdmacoro/service/src.hpp>
#include <rdmacoro/transport/src.hpp>
