#if RDMACORO_WITH_VERBS

#include "link_over.hpp"

#include <rdmacoro/transport/verbs_rc.hpp>

namespace bench {

transport_entry verbs_entry() { return entry_of<rdmacoro::verbs_rc>(); }

}  // namespace bench

#endif
