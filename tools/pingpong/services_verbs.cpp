#if RDMACORO_WITH_VERBS

#include "services_over.hpp"

#include <rdmacoro/transport/verbs_rc.hpp>

namespace pingpong {

template std::unique_ptr<service_side> make_service_side(rdmacoro::endpoint<rdmacoro::verbs_rc>& over);

}  // namespace pingpong

#endif
