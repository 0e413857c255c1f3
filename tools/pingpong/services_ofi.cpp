#if RDMACORO_WITH_OFI

#include "services_over.hpp"

#include <rdmacoro/transport/ofi.hpp>

namespace pingpong {

template std::unique_ptr<service_side>
make_service_side(rdmacoro::endpoint<rdmacoro::ofi<rdmacoro::provider::any>>& over);

}  // namespace pingpong

#endif
