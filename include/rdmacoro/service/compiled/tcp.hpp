// What nodes do over tcp: compiled once where RDMACORO_SEPARATE_COMPILATION is defined. Included by transport/tcp.hpp in such programs.
#pragma once

#include <rdmacoro/service/compiled/instances.hpp>
#include <rdmacoro/transport/tcp.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
RDMACORO_NODE_INSTANCES(extern template, rdmacoro::tcp)
#endif
