// The instances that compiled/tcp.hpp declares. Included by the unit that has the bodies of the transport.
#pragma once

#include <rdmacoro/messaging/compiled/tcp.hpp>

namespace rdmacoro {
template class tcp_link<detail::default_connection<tcp>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(template, rdmacoro::tcp)
