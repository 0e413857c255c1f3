// Endpoints, mailboxes and listeners over tcp with its default list: compiled once where RDMACORO_SEPARATE_COMPILATION is
// defined. Included by transport/tcp.hpp in such programs.
#pragma once

#include <rdmacoro/messaging/detail/instances.hpp>
#include <rdmacoro/transport/tcp.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
namespace rdmacoro {
extern template class tcp_link<detail::default_connection<tcp>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(extern template, rdmacoro::tcp)
#endif
