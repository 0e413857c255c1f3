#include "services_over.hpp"

#include <rdmacoro/transport/shm.hpp>

namespace pingpong {

template std::unique_ptr<service_side> make_service_side(rdmacoro::endpoint<rdmacoro::shm>& over);

}  // namespace pingpong
