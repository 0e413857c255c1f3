// Endpoints, mailboxes and listeners over ofi<provider::any> with its default list: compiled once where RDMACORO_SEPARATE_COMPILATION is
// defined. Included by transport/ofi.hpp in such programs.
#pragma once

#include <rdmacoro/messaging/detail/instances.hpp>
#include <rdmacoro/transport/ofi.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
namespace rdmacoro {
extern template class ofi_link<detail::default_connection<ofi<provider::any>>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(extern template, rdmacoro::ofi<rdmacoro::provider::any>)
#endif
