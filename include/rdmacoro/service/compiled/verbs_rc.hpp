// What nodes do over verbs_rc: compiled once where RDMACORO_SEPARATE_COMPILATION is defined. Included by transport/verbs_rc.hpp in such programs.
#pragma once

#include <rdmacoro/service/compiled/instances.hpp>
#include <rdmacoro/transport/verbs_rc.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
RDMACORO_NODE_INSTANCES(extern template, rdmacoro::verbs_rc)
#endif
