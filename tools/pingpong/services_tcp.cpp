#if RDMACORO_WITH_TCP

#include "services_over.hpp"

#include <rdmacoro/transport/tcp.hpp>

namespace pingpong {

template std::unique_ptr<service_side> make_service_side(rdmacoro::endpoint<rdmacoro::tcp>& over);

}  // namespace pingpong

#endif
