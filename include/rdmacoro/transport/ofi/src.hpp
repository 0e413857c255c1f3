// The libfabric transport compiled separately: with RDMACORO_SEPARATE_COMPILATION defined for the whole program, include this in one
// unit, next to <rdmacoro/src.hpp>.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error                                                                                                       \
    "define RDMACORO_SEPARATE_COMPILATION for the whole program, or do not include rdmacoro/transport/ofi/src.hpp"
#endif

#include <rdmacoro/transport/ofi.hpp>

#include <rdmacoro/transport/ofi/impl/agreement.ipp>
#include <rdmacoro/transport/ofi/impl/connection.ipp>
#include <rdmacoro/transport/ofi/impl/counters.ipp>
#include <rdmacoro/transport/ofi/impl/device.ipp>
#include <rdmacoro/transport/ofi/impl/domain.ipp>
#include <rdmacoro/transport/ofi/impl/engine.ipp>
#include <rdmacoro/transport/ofi/impl/error.ipp>
#include <rdmacoro/transport/ofi/impl/exchange.ipp>
#include <rdmacoro/transport/ofi/impl/frame.ipp>
#include <rdmacoro/transport/ofi/impl/judge.ipp>
#include <rdmacoro/transport/ofi/impl/listener.ipp>
#include <rdmacoro/transport/ofi/impl/matched.ipp>
#include <rdmacoro/transport/ofi/impl/matched_open.ipp>
#include <rdmacoro/transport/ofi/impl/memory.ipp>
#include <rdmacoro/transport/ofi/impl/one_sided.ipp>
#include <rdmacoro/transport/ofi/impl/session.ipp>
#include <rdmacoro/transport/ofi/impl/slots.ipp>

// Templates last: they need the bodies above.
#include <rdmacoro/messaging/compiled/ofi.ipp>
#include <rdmacoro/service/compiled/ofi.ipp>
