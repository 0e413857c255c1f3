#pragma once

// Two libfabric domains on one scheduler, with links between them.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/ofi.hpp>

#include "support/catch.hpp"
#include "support/fabric_pair.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro::test {

using ofi_any = ofi<provider::any>;
using ofi_any_domain = ofi_any::domain;
using ofi_recorded_link = ofi_any::link<recording_sink>;

/// Options for a provider that runs on this machine alone.
inline ofi_options ofi_here(const std::string& provider) {
    ofi_options o;
    o.provider = provider;
    if (provider::find(provider) != nullptr && provider::find(provider)->tells_address_by_ip)
        o.node = "127.0.0.1";
    return o;
}

struct ofi_fabric {
    using transport = ofi_any;
    using options = ofi_options;
    static constexpr const char* address = "127.0.0.1:0";
    /// The provider makes its own connection with a first message each way.
    template <class World, class End>
    static void greet(World& w, End& a, End& b) {
        w.exchange(a, b);
        w.exchange(b, a);
    }
};

using ofi_end = fabric_end<ofi_fabric>;
using ofi_world = fabric_world<ofi_fabric>;

}  // namespace rdmacoro::test
