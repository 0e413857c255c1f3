#if RDMACORO_WITH_OFI

#include "protocol_lists.hpp"

#include <rdmacoro/transport/ofi.hpp>

namespace pingpong {

using any_provider = rdmacoro::ofi<rdmacoro::provider::any>;

const transport_entry ofi_transport{any_provider::name, "ofi+PROVIDER://HOST:PORT",
                                    lists_over<any_provider>()};

}  // namespace pingpong

#endif
