// The bodies of the tcp transport, for programs compiled with RDMACORO_SEPARATE_COMPILATION: include it in one unit, next to
// <rdmacoro/src.hpp>, or link the library that has it. Only that unit needs liburing's header.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error                                                                                                       \
    "define RDMACORO_SEPARATE_COMPILATION for the whole program before <rdmacoro/transport/tcp/src.hpp> is included"
#endif

#include <rdmacoro/transport/tcp/impl/address.ipp>
#include <rdmacoro/transport/tcp/impl/connect.ipp>
#include <rdmacoro/transport/tcp/impl/domain.ipp>
#include <rdmacoro/transport/tcp/impl/engine.ipp>
#include <rdmacoro/transport/tcp/impl/frame.ipp>
#include <rdmacoro/transport/tcp/impl/handshake.ipp>
#include <rdmacoro/transport/tcp/impl/listen_state.ipp>
#include <rdmacoro/transport/tcp/impl/listener.ipp>
#include <rdmacoro/transport/tcp/impl/liveness.ipp>
#include <rdmacoro/transport/tcp/impl/one_sided.ipp>
#include <rdmacoro/transport/tcp/impl/receiver.ipp>
#include <rdmacoro/transport/tcp/impl/ring.ipp>
#include <rdmacoro/transport/tcp/impl/send_queue.ipp>
#include <rdmacoro/transport/tcp/impl/session_receive.ipp>
#include <rdmacoro/transport/tcp/impl/session_send.ipp>

// Templates last: they need the bodies above.
#include <rdmacoro/messaging/compiled/tcp.ipp>
#include <rdmacoro/service/compiled/tcp.ipp>
