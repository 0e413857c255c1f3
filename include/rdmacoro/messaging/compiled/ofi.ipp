// The instances that compiled/ofi.hpp declares. Included by the unit that has the bodies of the transport.
#pragma once

#include <rdmacoro/messaging/compiled/ofi.hpp>

namespace rdmacoro {
template class ofi_link<detail::default_connection<ofi<provider::any>>>;
}  // namespace rdmacoro
RDMACORO_MESSAGING_INSTANCES(template, rdmacoro::ofi<rdmacoro::provider::any>)
