#if RDMACORO_WITH_TCP

#include "protocol_lists.hpp"

#include <rdmacoro/transport/tcp.hpp>

namespace pingpong {

const transport_entry tcp_transport{rdmacoro::tcp::name, "tcp://HOST:PORT", lists_over<rdmacoro::tcp>()};

}  // namespace pingpong

#endif
