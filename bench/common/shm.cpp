#include "link_over.hpp"

#include <rdmacoro/transport/shm.hpp>

namespace bench {

transport_entry shm_entry() { return entry_of<rdmacoro::shm>(); }

}  // namespace bench
