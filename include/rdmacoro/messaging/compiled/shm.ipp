// The instances that compiled/shm.hpp declares. Included by the unit that has the bodies of the transport.
#pragma once

#include <rdmacoro/messaging/compiled/shm.hpp>

namespace rdmacoro {
template class detail::shm::link<detail::default_connection<shm>>;
template class shm::link<detail::default_connection<shm>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(template, rdmacoro::shm)
