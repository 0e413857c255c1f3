// The verbs transport compiled separately: with RDMACORO_SEPARATE_COMPILATION defined for the whole program, include this in one
// unit, next to <rdmacoro/src.hpp>.
#pragma once

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#error                                                                                                       \
    "define RDMACORO_SEPARATE_COMPILATION for the whole program, or do not include rdmacoro/transport/verbs_rc/src.hpp"
#endif

#include <rdmacoro/transport/verbs_rc.hpp>

#include <rdmacoro/transport/verbs_rc/impl/cm.ipp>
#include <rdmacoro/transport/verbs_rc/impl/connection.ipp>
#include <rdmacoro/transport/verbs_rc/impl/device.ipp>
#include <rdmacoro/transport/verbs_rc/impl/domain.ipp>
#include <rdmacoro/transport/verbs_rc/impl/domains.ipp>
#include <rdmacoro/transport/verbs_rc/impl/engine.ipp>
#include <rdmacoro/transport/verbs_rc/impl/error.ipp>
#include <rdmacoro/transport/verbs_rc/impl/events.ipp>
#include <rdmacoro/transport/verbs_rc/impl/exchange.ipp>
#include <rdmacoro/transport/verbs_rc/impl/frame.ipp>
#include <rdmacoro/transport/verbs_rc/impl/kernel_watch.ipp>
#include <rdmacoro/transport/verbs_rc/impl/listener.ipp>
#include <rdmacoro/transport/verbs_rc/impl/memory.ipp>
#include <rdmacoro/transport/verbs_rc/impl/one_sided.ipp>
#include <rdmacoro/transport/verbs_rc/impl/options.ipp>
#include <rdmacoro/transport/verbs_rc/impl/queue_pair_info.ipp>
#include <rdmacoro/transport/verbs_rc/impl/receive_queue.ipp>
#include <rdmacoro/transport/verbs_rc/impl/session.ipp>
#include <rdmacoro/transport/verbs_rc/impl/slots.ipp>

// Templates last: they need the bodies above.
#include <rdmacoro/messaging/compiled/verbs_rc.ipp>
#include <rdmacoro/service/compiled/verbs_rc.ipp>
