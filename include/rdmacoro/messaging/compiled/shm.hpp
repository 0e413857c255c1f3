// Endpoints, mailboxes and listeners over shm with its default list: compiled once where RDMACORO_SEPARATE_COMPILATION is
// defined. Included by rdmacoro.hpp in such programs.
#pragma once

#include <rdmacoro/messaging/detail/instances.hpp>
#include <rdmacoro/transport/shm.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
namespace rdmacoro {
extern template class detail::shm::link<detail::default_connection<shm>>;
extern template class shm::link<detail::default_connection<shm>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(extern template, rdmacoro::shm)
#endif
