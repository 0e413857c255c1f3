// libfabric's verbs, where a device is: for tests/verbs.

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/ofi.hpp>

#include "support/over/lists_over.hpp"

#include <cstdlib>
#include <memory>
#include <string>

namespace rdmacoro::test {

namespace {

/// A RoCE or InfiniBand device: that of the address in RXE_IP, or whichever there is.
struct ofi_verbs {
    using transport_type = ofi<provider::any>;
    static constexpr bool crosses_threads = true;
    static constexpr bool can_park = true;

    static std::unique_ptr<transport_type::domain> open(scheduler& on) {
        // ofi_rxm's completion queue would be longer than a software device's may be. Read once, when libfabric is first called.
        ::setenv("FI_UNIVERSE_SIZE", "16", 0);
        ::setenv("FI_MR_CACHE_MAX_COUNT", "0", 0);  // a region ends when it is closed
        ofi_options o;
        o.provider = "verbs";
        o.get_bytes = static_cast<std::size_t>(-1);  // lists of the suite have a get and no put
        if (const char* ip = std::getenv("RXE_IP")) o.node = ip;
        return std::make_unique<transport_type::domain>(on, o);
    }
    static std::string address() {
        const char* ip = std::getenv("RXE_IP");
        return (ip != nullptr ? std::string(ip) : std::string("*")) + ":0";
    }
};

constexpr traits of_verbs() {
    traits found = erased::traits_of<ofi_verbs>("ofi_verbs");
    found.real = found.counted = true;
    found.timing_decides = true;
    found.puts_before_sends = true;
    found.serves_bare_links = true;
    found.slowness = 10;  // the devices of the virtual machine are emulated
    found.most_links = 30;
    return found;
}

constinit const erased::variant_of<ofi_verbs> over_ofi_verbs{of_verbs()};
constinit const variant* const all[] = {&over_ofi_verbs};

}  // namespace

constinit const variants over_ofi{all};

}  // namespace rdmacoro::test
