#if RDMACORO_WITH_OFI

#include <rdmacoro/transport/ofi.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <cstdlib>

namespace test_verbs_libfabric {

using namespace rdmacoro;
using namespace rdmacoro::test;

// What libfabric's verbs is like on this machine's devices. The conformance suite over it is a program of its own.

TEST_CASE("where a device's completion queues are too short for libfabric's verbs the error names the "
          "variable to set") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    if (!way.rxe) SKIP_TEST("the queues of adapters are long enough: on rxe alone");
    // libfabric reads it when it is first called, in this process here.
    if (std::getenv("FI_UNIVERSE_SIZE") != nullptr) SKIP_TEST("FI_UNIVERSE_SIZE is set");
    ofi_options o;
    o.node = way.options.address;
    scheduler on;
    const refusal seen = refused([&] { const ofi<provider::verbs>::domain tried(on, o); });
    CHECK(static_cast<bool>(seen.code));
    CHECK_THAT(seen.text, contains("FI_UNIVERSE_SIZE"));
}

}  // namespace test_verbs_libfabric

#endif
