#if RDMACORO_WITH_VERBS

#include "protocol_lists.hpp"

#include <rdmacoro/transport/verbs_rc.hpp>

namespace pingpong {

const transport_entry verbs_transport{rdmacoro::verbs_rc::name, "verbs://HOST:PORT",
                                      lists_over<rdmacoro::verbs_rc>()};

}  // namespace pingpong

#endif
