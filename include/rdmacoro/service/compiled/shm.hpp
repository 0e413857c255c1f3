// What nodes do over shm: compiled once where RDMACORO_SEPARATE_COMPILATION is defined. Included by transport/shm.hpp in such programs.
#pragma once

#include <rdmacoro/service/compiled/instances.hpp>
#include <rdmacoro/transport/shm.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
RDMACORO_NODE_INSTANCES(extern template, rdmacoro::shm)
#endif
