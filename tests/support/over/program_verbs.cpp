// The conformance suite over verbs devices, perhaps in a virtual machine.

#include "support/any_transport.hpp"

namespace rdmacoro::test {

static constinit const variants* const parts[] = {&over_verbs};
constinit const std::span<const variants* const> program_variants{parts};
#if RDMACORO_SERVICES_SUITE
constinit const bool program_of_kinds = true;
#else
constinit const bool program_of_kinds = false;
#endif

}  // namespace rdmacoro::test
