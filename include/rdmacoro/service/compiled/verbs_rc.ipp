// The instances that compiled/verbs_rc.hpp declares. Included by the unit that has the bodies of the transport.
#pragma once

#include <rdmacoro/service/compiled/verbs_rc.hpp>
#include <rdmacoro/service/detail/node_transport_over.hpp>

RDMACORO_NODE_INSTANCES(template, rdmacoro::verbs_rc)
