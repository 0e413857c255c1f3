// Endpoints, mailboxes and listeners over verbs_rc with its default list: compiled once where RDMACORO_SEPARATE_COMPILATION is
// defined. Included by transport/verbs_rc.hpp in such programs.
#pragma once

#include <rdmacoro/messaging/detail/instances.hpp>
#include <rdmacoro/transport/verbs_rc.hpp>

#if defined(RDMACORO_SEPARATE_COMPILATION)
namespace rdmacoro {
extern template class detail::session_link<detail::verbs::session, detail::default_connection<verbs_rc>>;
extern template class verbs_link<detail::default_connection<verbs_rc>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(extern template, rdmacoro::verbs_rc)
#endif
