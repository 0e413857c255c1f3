// The conformance suite over a link that matches by itself.

#include "support/any_transport.hpp"

namespace rdmacoro::test {

static constinit const variants* const parts[] = {&over_matching_loopback};
constinit const std::span<const variants* const> program_variants{parts};
constinit const bool program_of_kinds = false;

}  // namespace rdmacoro::test
