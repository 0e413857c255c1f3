#pragma once

// A device of its own for a test that takes it away or changes its addresses. Only in the virtual machine (tools/soft-rdma-vm).

#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <cstdlib>
#include <string>

#include <unistd.h>

namespace rdmacoro::test {

/// A RoCE device in software over a network interface that carries nothing else, with the address 10.97.0.1. It stays when the test
/// is over, without an address: the kernel takes a device away only when no process has it open, and librdmacm keeps it open.
class spare_device {
public:
    static constexpr const char* address = "10.97.0.1";

    static bool possible() { return std::getenv("SOFT_RDMA_VM") != nullptr; }

    static void run(const std::string& command) {
        INFO(command);
        REQUIRE(std::system(command.c_str()) == 0);
    }

    spare_device() {
        static int made = 0;
        const std::string number = std::to_string(::getpid()) + std::to_string(made++);
        interface = "dum" + number;
        name = "rxe" + number;
        run("ip link add " + interface + " type dummy && ip link set " + interface +
            " mtu 4300 up && ip addr add 10.97.0.1/24 dev " + interface + " && rdma link add " + name +
            " type rxe netdev " + interface);
    }
    ~spare_device() { static_cast<void>(std::system(("ip addr flush dev " + interface).c_str())); }
    spare_device(const spare_device&) = delete;
    spare_device& operator=(const spare_device&) = delete;

    [[nodiscard]] verbs_options options() const {
        verbs_options o;
        o.device = name;
        return o;
    }

    std::string interface;
    std::string name;
};
#define NEEDS_SPARE_DEVICE()                                                                                 \
    if (!::rdmacoro::test::spare_device::possible())                                                         \
    SKIP_TEST("devices are added and taken away in the virtual machine only: tools/soft-rdma-vm")

}  // namespace rdmacoro::test
