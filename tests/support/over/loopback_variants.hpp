#pragma once

// The transport within one process.

#include "support/loopback.hpp"
#include "support/over/fresh_name.hpp"

#include <memory>
#include <string>

namespace rdmacoro::test {

struct in_memory {
    using transport_type = loopback;
    static std::unique_ptr<loopback::domain> open(scheduler& on) {
        return std::make_unique<loopback::domain>(on);
    }
    static std::string address() { return fresh_name(); }
    static constexpr bool crosses_threads = false;
};

}  // namespace rdmacoro::test
