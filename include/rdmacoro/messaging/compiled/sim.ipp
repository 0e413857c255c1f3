// The instances that compiled/sim.hpp declares. Included by the unit that has the bodies of the transport.
#pragma once

#include <rdmacoro/messaging/compiled/sim.hpp>

namespace rdmacoro {
template class detail::sim::link<detail::default_connection<sim>>;
template class sim::link<detail::default_connection<sim>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(template, rdmacoro::sim)
