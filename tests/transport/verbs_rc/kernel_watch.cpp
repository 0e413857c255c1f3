#include <rdmacoro/transport/verbs_rc/kernel_watch.hpp>

#include "verbs/spare_device.hpp"

#include "support/catch.hpp"

namespace test_transport_verbs_rc_kernel_watch {

using namespace rdmacoro;
using namespace rdmacoro::test;
using rdmacoro::detail::polled_watcher;
using rdmacoro::detail::verbs::kernel_report;
using rdmacoro::detail::verbs::kernel_watch;

TEST_CASE("addresses that come and go are reported, once for all that there is to report") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    polled_watcher watching;
    int calls = 0;
    kernel_watch watch(watching, &calls, [](void* owner) noexcept { ++*static_cast<int*>(owner); });
    REQUIRE(watch.open(kernel_report::addresses));
    static_cast<void>(watching.look());
    CHECK(calls == 0);
    spare_device::run("ip addr add 10.97.8.1/24 dev " + device.interface);
    static_cast<void>(watching.look());
    CHECK(calls == 1);
    spare_device::run("ip addr add 10.97.9.1/24 dev " + device.interface +
                      " && ip addr del 10.97.8.1/24 dev " + device.interface +
                      " && ip addr add fd97::7/64 dev " + device.interface + " nodad");
    static_cast<void>(watching.look());
    CHECK(calls == 2);
    static_cast<void>(watching.look());
    CHECK(calls == 2);
}

TEST_CASE("devices that come and go are reported") {
    NEEDS_SPARE_DEVICE();
    polled_watcher watching;
    int calls = 0;
    kernel_watch watch(watching, &calls, [](void* owner) noexcept { ++*static_cast<int*>(owner); });
    REQUIRE(watch.open(kernel_report::devices));
    static_cast<void>(watching.look());
    CHECK(calls == 0);
    const spare_device device;
    static_cast<void>(watching.look());
    CHECK(calls == 1);
    spare_device::run("rdma link delete " + device.name);
    static_cast<void>(watching.look());
    CHECK(calls == 2);
    static_cast<void>(watching.look());
    CHECK(calls == 2);
}

}  // namespace test_transport_verbs_rc_kernel_watch
