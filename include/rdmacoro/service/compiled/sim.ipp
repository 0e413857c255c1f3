// The instances that compiled/sim.hpp declares. Included by the unit that has the bodies of service/.
#pragma once

#include <rdmacoro/service/compiled/sim.hpp>
#include <rdmacoro/service/detail/node_transport_over.hpp>

RDMACORO_NODE_INSTANCES(template, rdmacoro::sim)
