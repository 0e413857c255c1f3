#pragma once

// Addresses for transports within one machine.

#include <string>

#include <unistd.h>

namespace rdmacoro::test {

/// A name that no other listener on this machine has.
inline std::string fresh_name() {
    static int count = 0;
    return "conformance-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

}  // namespace rdmacoro::test
