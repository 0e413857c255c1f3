// The instances that compiled/shm.hpp declares. Included by the unit that has the bodies of service/.
#pragma once

#include <rdmacoro/service/compiled/shm.hpp>
#include <rdmacoro/service/detail/node_transport_over.hpp>

RDMACORO_NODE_INSTANCES(template, rdmacoro::shm)
