// Endpoints, mailboxes and listeners over sim with its default list: compiled once where RDMACORO_SEPARATE_COMPILATION is
// defined. Included by transport/sim.hpp in such programs.
#pragma once

#include <rdmacoro/messaging/detail/instances.hpp>
#include <rdmacoro/transport/sim.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
namespace rdmacoro {
extern template class detail::sim::link<detail::default_connection<sim>>;
extern template class sim::link<detail::default_connection<sim>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(extern template, rdmacoro::sim)
#endif
