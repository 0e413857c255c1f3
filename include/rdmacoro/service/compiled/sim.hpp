// What nodes do over sim: compiled once where RDMACORO_SEPARATE_COMPILATION is defined. Included by transport/sim.hpp in such programs.
#pragma once

#include <rdmacoro/service/compiled/instances.hpp>
#include <rdmacoro/transport/sim.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
RDMACORO_NODE_INSTANCES(extern template, rdmacoro::sim)
#endif
