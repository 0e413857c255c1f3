// The instances that compiled/tcp.hpp declares. Included by the unit that has the bodies of the transport.
#pragma once

#include <rdmacoro/service/compiled/tcp.hpp>
#include <rdmacoro/service/detail/node_transport_over.hpp>

RDMACORO_NODE_INSTANCES(template, rdmacoro::tcp)
