#if RDMACORO_WITH_TCP

#include "link_over.hpp"

#include <rdmacoro/transport/tcp.hpp>

namespace bench {

transport_entry tcp_entry() { return entry_of<rdmacoro::tcp>(); }

}  // namespace bench

#endif
