// The conformance suite over everything that runs on any machine without libfabric.

#include "support/any_transport.hpp"

namespace rdmacoro::test {

static constinit const variants* const parts[] = {
    &over_shm,
#if RDMACORO_WITH_TCP
    &over_tcp,
#endif
    &over_sim,
    &over_loopback,
};
constinit const std::span<const variants* const> program_variants{parts};
constinit const bool program_of_kinds = false;

}  // namespace rdmacoro::test
