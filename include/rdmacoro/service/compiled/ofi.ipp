// The instances that compiled/ofi.hpp declares. Included by the unit that has the bodies of the transport.
#pragma once

#include <rdmacoro/service/compiled/ofi.hpp>
#include <rdmacoro/service/detail/node_transport_over.hpp>

RDMACORO_NODE_INSTANCES(template, rdmacoro::ofi<rdmacoro::provider::any>)
