#include "protocol_lists.hpp"

#include <rdmacoro/transport/shm.hpp>

namespace pingpong {

const transport_entry shm_transport{rdmacoro::shm::name, "shm://NAME", lists_over<rdmacoro::shm>()};

}  // namespace pingpong
