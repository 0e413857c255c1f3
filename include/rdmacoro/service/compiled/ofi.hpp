// What nodes do over ofi: compiled once where RDMACORO_SEPARATE_COMPILATION is defined. Included by transport/ofi.hpp in such programs.
#pragma once

#include <rdmacoro/service/compiled/instances.hpp>
#include <rdmacoro/transport/ofi.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
RDMACORO_NODE_INSTANCES(extern template, rdmacoro::ofi<rdmacoro::provider::any>)
#endif
