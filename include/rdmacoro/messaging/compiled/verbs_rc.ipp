// The instances that compiled/verbs_rc.hpp declares. Included by the unit that has the bodies of the transport.
#pragma once

#include <rdmacoro/messaging/compiled/verbs_rc.hpp>

namespace rdmacoro {
template class detail::session_link<detail::verbs::session, detail::default_connection<verbs_rc>>;
template class verbs_link<detail::default_connection<verbs_rc>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(template, rdmacoro::verbs_rc)
