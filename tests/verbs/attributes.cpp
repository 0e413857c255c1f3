#include "verbs/between.hpp"
#include "verbs/pair.hpp"
#include "verbs/spare_device.hpp"

#include "support/catch.hpp"

#include <array>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>

namespace test_verbs_attributes {

using namespace rdmacoro;
using namespace rdmacoro::test;

// How a link's queue pairs are set up, by the device's own answer.

namespace {

ibv_qp_attr attributes_of(const verbs_end& end, int mask) {
    ibv_qp_attr now{};
    ibv_qp_init_attr made{};
    REQUIRE(::ibv_query_qp(end.link->queue_pair(), &now, mask, &made) == 0);
    return now;
}

/// The address that the link's packets come from: of its GID.
std::string source_of(const verbs_end& end) {
    const ibv_qp_attr now = attributes_of(end, IBV_QP_AV);
    ibv_gid gid{};
    REQUIRE(::ibv_query_gid(end.link->queue_pair()->context, 1, now.ah_attr.grh.sgid_index, &gid) == 0);
    char text[INET6_ADDRSTRLEN] = {};
    static constexpr std::uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (std::memcmp(gid.raw, mapped, sizeof mapped) == 0) {
        ::inet_ntop(AF_INET, gid.raw + 12, text, sizeof text);
    } else {
        ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
    }
    return text;
}

/// The network interface of the link's GID.
std::string interface_of(const verbs_end& end) {
    const ibv_qp_attr now = attributes_of(end, IBV_QP_AV);
    const std::string name = ::ibv_get_device_name(end.link->queue_pair()->context->device);
    std::ifstream entry("/sys/class/infiniband/" + name + "/ports/1/gid_attrs/ndevs/" +
                        std::to_string(now.ah_attr.grh.sgid_index));
    std::string interface;
    entry >> interface;
    return interface;
}

/// The service level of a queue pair as it was asked of the device, which does not tell it afterwards.
int asked_level = -1;

}  // namespace

TEST_CASE(
    "a receiver that is not ready is asked again after about a millisecond, however the link was connected") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        verbs_world w(connecting_by(way.options, how));
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        // 0 would be 655 ms; 14 is 1 ms.
        for (const verbs_end* end : {&a, &b}) {
            const unsigned code = attributes_of(*end, IBV_QP_MIN_RNR_TIMER).min_rnr_timer;
            CHECK(code >= 1);
            CHECK(code <= 14);
        }
    }
}

TEST_CASE("a link uses the GID of the address that its domain was opened with") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    spare_device::run("ip addr add 10.97.7.1/24 dev " + device.interface + " && ip addr add fd97::1/64 dev " +
                      device.interface + " nodad");
    for (const char* address : {"10.97.7.1", "fd97::1", "10.97.0.1"}) {
        for (const verbs_connect how : {verbs_connect::tcp, verbs_connect::rdma_cm}) {
            CAPTURE(address, static_cast<int>(how));
            verbs_options o;
            o.address = address;
            o.connect_by = how;
            verbs_world w(o);
            verbs_end a;
            verbs_end b;
            w.link(a, b);
            CHECK(source_of(a) == address);
            CHECK(source_of(b) == address);
        }
    }
}

TEST_CASE("a link's packets come from the address that the route to the peer names") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    spare_device::run("ip addr add 10.97.7.1/24 dev " + device.interface);
    for (const verbs_connect how : {verbs_connect::tcp, verbs_connect::rdma_cm}) {
        CAPTURE(static_cast<int>(how));
        verbs_world w(connecting_by(device.options(), how));
        for (const std::string address : {"10.97.7.1", "10.97.0.1"}) {
            CAPTURE(address);
            verbs_listener listening = w.on.run(w.server.listen(address + ":0"));
            verbs_end a;
            a.link = std::make_unique<verbs_recorded_link>(w.on.run(w.client.connect(listening.address())),
                                                           a.sink);
            CHECK(source_of(a) == address);
        }
    }
}

TEST_CASE(
    "a link to an address of a VLAN goes by the VLAN's interface, and one to another address does not") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    const std::string vlan = device.interface + ".5";
    spare_device::run("ip link add link " + device.interface + " name " + vlan +
                      " type vlan id 5 && ip link set " + vlan + " up && ip addr add 10.97.5.1/24 dev " +
                      vlan);
    for (const bool chosen : {false, true}) {
        for (const verbs_connect how : {verbs_connect::tcp, verbs_connect::rdma_cm}) {
            for (const auto& [address, interface] :
                 {std::pair{"10.97.5.1", vlan}, std::pair{"10.97.0.1", device.interface}}) {
                CAPTURE(chosen, static_cast<int>(how), address);
                verbs_options o = connecting_by(device.options(), how);
                if (chosen) o.address = address;
                verbs_world w(o);
                verbs_listener listening = w.on.run(w.server.listen(std::string(address) + ":0"));
                verbs_end a;
                a.link = std::make_unique<verbs_recorded_link>(
                    w.on.run(w.client.connect(listening.address())), a.sink);
                CHECK(source_of(a) == address);
                CHECK(interface_of(a) == interface);
                CHECK(static_cast<bool>(w.on.run(accepted_from(listening))));
            }
        }
    }
    spare_device::run("ip link del " + vlan);
}

TEST_CASE("connections over TCP go to the LID that the peer's port has now") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    if (!way.rxe) SKIP_TEST("a fabric reaches a port by its own LID only: on rxe, which uses none");
    static std::uint16_t lid = 0;
    static std::vector<std::uint16_t> reached;
    reached.clear();
    const between hooks;
    between::port = [](ibv_port_attr& of) { of.lid = lid; };
    between::modifying = [](const ibv_qp&, ibv_qp_attr& wanted, int mask) {
        if ((mask & IBV_QP_AV) != 0) reached.push_back(wanted.ah_attr.dlid);
        return 0;
    };
    verbs_world w(connecting_by(way.options, verbs_connect::tcp));
    verbs_end a[2];
    verbs_end b[2];
    lid = 7;
    w.link(a[0], b[0]);
    lid = 9;  // the subnet manager has given the port another one
    w.link(a[1], b[1]);
    CHECK(reached == std::vector<std::uint16_t>{7, 7, 9, 9});
}

TEST_CASE("over InfiniBand a queue pair has a global header where the port asks for one, and else none") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    if (!way.rxe) SKIP_TEST("a fabric has the header that it needs: on rxe, which says that it is another");
    static bool asks = false;
    static std::vector<int> global;
    asks = GENERATE(false, true);
    global.clear();
    const between hooks;
    between::port = [](ibv_port_attr& of) {
        of.link_layer = IBV_LINK_LAYER_INFINIBAND;
        of.lid = 7;
        of.flags &= static_cast<std::uint8_t>(~IBV_QPF_GRH_REQUIRED);
        if (asks) of.flags |= IBV_QPF_GRH_REQUIRED;
    };
    between::modifying = [](const ibv_qp&, ibv_qp_attr& wanted, int mask) {
        if ((mask & IBV_QP_AV) != 0) global.push_back(wanted.ah_attr.is_global);
        return 0;
    };
    verbs_options o = connecting_by(way.options, verbs_connect::tcp);
    verbs_world w(o);
    // Without the header rxe refuses to connect.
    const refusal seen = refused([&] { static_cast<void>(w.connect()); });
    CHECK(static_cast<bool>(seen.code) == !asks);
    REQUIRE(!global.empty());
    CHECK(global == std::vector<int>(global.size(), asks ? 1 : 0));
}

TEST_CASE("a domain goes on when its device's address changes") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        CAPTURE(static_cast<int>(how));
        verbs_world w(connecting_by(device.options(), how));
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        verbs_listener old = w.on.run(w.server.listen("*:0"));
        spare_device::run("ip addr add 10.97.8.1/24 dev " + device.interface +
                          " && ip addr del 10.97.0.1/24 dev " + device.interface);
        if (how == verbs_connect::rdma_cm) {
            // The listener that there was follows, with its port.
            CHECK_THAT(old.address(), contains("verbs://10.97.0.1:"));
            const std::string port = old.address().substr(old.address().rfind(':'));
            w.until([&] { return old.address() == "verbs://10.97.8.1" + port; });
            verbs_end e;
            e.link = std::make_unique<verbs_recorded_link>(w.on.run(w.client.connect(old.address())), e.sink);
            CHECK(source_of(e) == "10.97.8.1");
            CHECK(static_cast<bool>(w.on.run(accepted_from(old))));
        } else {
            // By TCP it listens on every address of the host.
            const std::string port = old.address().substr(old.address().rfind(':'));
            verbs_end e;
            e.link =
                std::make_unique<verbs_recorded_link>(w.on.run(w.client.connect("10.97.8.1" + port)), e.sink);
            CHECK(source_of(e) == "10.97.8.1");
            CHECK(static_cast<bool>(w.on.run(accepted_from(old))));
        }
        verbs_listener listening = w.on.run(w.server.listen("10.97.8.1:0"));
        verbs_end c;
        c.link =
            std::make_unique<verbs_recorded_link>(w.on.run(w.client.connect(listening.address())), c.sink);
        CHECK(source_of(c) == "10.97.8.1");
        c.link.reset();
        {
            // And so do domains that are opened now.
            verbs_world later(connecting_by(device.options(), how));
            verbs_end d;
            verbs_end e;
            later.link(d, e);
            CHECK(source_of(d) == "10.97.8.1");
        }
        spare_device::run("ip addr add 10.97.0.1/24 dev " + device.interface +
                          " && ip addr del 10.97.8.1/24 dev " + device.interface);
    }
}

TEST_CASE("the acknowledge timeout is the one asked for, and never less than the path's") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        for (const unsigned asked : {0u, 20u, 21u}) {
            CAPTURE(static_cast<int>(how), asked);
            verbs_options o = connecting_by(way.options, how);
            o.acknowledge_timeout = asked;
            verbs_world w(o);
            verbs_end a;
            verbs_end b;
            w.link(a, b);
            // rxe sends again for ever: there the time may be shorter.
            const unsigned least = asked != 0 ? asked : way.rxe ? 14 : 18;
            for (const verbs_end* end : {&a, &b}) {
                const ibv_qp_attr now = attributes_of(*end, IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT);
                CHECK(now.timeout >= least);
                if (how == verbs_connect::tcp || asked == 21) CHECK(now.timeout == least);
                CHECK(now.retry_cnt == 7);
            }
        }
    }
}

TEST_CASE("the traffic class that was asked for is in the packets' header, however the link was connected") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        CAPTURE(static_cast<int>(how));
        verbs_options o = connecting_by(way.options, how);
        o.traffic_class = 0x68;
        verbs_world w(o);
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        for (const verbs_end* end : {&a, &b})
            CHECK(attributes_of(*end, IBV_QP_AV).ah_attr.grh.traffic_class == 0x68);
        CHECK_THAT(w.client.describe(), contains("traffic class 104"));
    }
}

TEST_CASE("a listener whose named address is taken away ends with an error that says so, unless it comes "
          "back in time") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    spare_device::run("ip addr add 10.97.8.1/24 dev " + device.interface);
    verbs_options o = connecting_by(device.options(), verbs_connect::rdma_cm);
    verbs_options hasty = o;
    hasty.handshake_timeout = std::chrono::milliseconds(200);
    verbs_world w(o, hasty);
    verbs_listener there = w.on.run(w.client.listen("10.97.8.1:0"));
    verbs_listener ends = w.on.run(w.server.listen("10.97.8.1:0"));
    verbs_listener stays = w.on.run(w.server.listen("10.97.0.1:0"));
    spare_device::run("ip addr del 10.97.8.1/24 dev " + device.interface);
    const refusal seen = refused([&] { static_cast<void>(w.on.run(accepted_from(ends))); });
    CHECK(seen.code == errc::address_invalid);
    CHECK_THAT(seen.text, contains("10.97.8.1"));
    CHECK_THAT(seen.text, contains(device.name));
    // And so does the next accept.
    CHECK(refused([&] { static_cast<void>(w.on.run(accepted_from(ends))); }).code == errc::address_invalid);
    CHECK(static_cast<bool>(w.on.run(w.client.connect(stays.address()))));
    CHECK(static_cast<bool>(w.on.run(accepted_from(stays))));
    // The first one's time is not over.
    spare_device::run("ip addr add 10.97.8.1/24 dev " + device.interface);
    CHECK(static_cast<bool>(w.on.run(w.server.connect(there.address()))));
    CHECK(static_cast<bool>(w.on.run(accepted_from(there))));
}

TEST_CASE("the connection manager's report that an address has changed makes its listener look for it") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    spare_device::run("ip addr add 10.97.8.1/24 dev " + device.interface);
    verbs_world w(connecting_by(device.options(), verbs_connect::rdma_cm));
    const verbs_listener listening = w.on.run(w.server.listen("*:0"));
    REQUIRE_THAT(listening.address(), contains("verbs://10.97.0.1:"));
    const between hooks;
    between::cm_event = [](rdma_cm_event& event) {
        // In place of a request.
        if (event.event != RDMA_CM_EVENT_CONNECT_REQUEST) return;
        between::hidden_address = "10.97.0.1";
        ::rdma_destroy_id(event.id);
        event.id = event.listen_id;
        event.event = RDMA_CM_EVENT_ADDR_CHANGE;
    };
    CHECK(refused([&] { static_cast<void>(w.on.run(w.client.connect(listening.address()))); }).code ==
          errc::connection_refused);
    between::cm_event = nullptr;
    CHECK_THAT(listening.address(), contains("verbs://10.97.8.1:"));
    CHECK(static_cast<bool>(w.on.run(w.client.connect(listening.address()))));
}

TEST_CASE("a device with addresses of IPv6 alone is reached by a global one, not by the link-local one") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    spare_device::run("ip addr flush dev " + device.interface + " && ip addr add fe80::97/64 dev " +
                      device.interface + " nodad && ip addr add fd97::1/64 dev " + device.interface +
                      " nodad && ip addr add fe80::98/64 dev " + device.interface + " nodad");
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        CAPTURE(static_cast<int>(how));
        verbs_world w(connecting_by(device.options(), how));
        if (how == verbs_connect::rdma_cm) {
            CHECK_THAT(w.server.describe(), contains("fd97::1"));
            const verbs_listener listening = w.on.run(w.server.listen("*:0"));
            CHECK_THAT(listening.address(), contains("verbs://[fd97::1]:"));
        }
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        CHECK(source_of(a) == "fd97::1");
        CHECK(source_of(b) == "fd97::1");
    }
}

TEST_CASE("the service level that was asked for is set on both queue pairs, however the link was connected") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    if (!way.rxe) SKIP_TEST("a fabric may carry nothing at the level that the test asks for: on rxe alone");
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        CAPTURE(static_cast<int>(how));
        const between hooks;
        static int levels = 0;
        levels = 0;
        asked_level = -1;
        between::modifying = [](const ibv_qp&, ibv_qp_attr& wanted, int mask) {
            if ((mask & IBV_QP_AV) == 0) return 0;
            ++levels;
            asked_level = levels == 1 || asked_level == wanted.ah_attr.sl ? wanted.ah_attr.sl : -2;
            return 0;
        };
        verbs_options o = connecting_by(way.options, how);
        o.service_level = 5;
        verbs_world w(o);
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        CHECK(levels == 2);
        CHECK(asked_level == 5);
    }
}

TEST_CASE("a link over TCP is in the partition that was asked for, wherever the port's table has it; a port "
          "that is not in it is refused") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    if (!way.rxe)
        SKIP_TEST("a port uses the partitions of its own table only: on rxe, which takes any index");
    const between hooks;
    between::port = [](ibv_port_attr& of) { of.pkey_tbl_len = 7; };
    between::partition = [](int index, __be16& key) {
        // Without the highest bit: as a limited member. Of 0x55 and 0x66 it is both.
        static constexpr std::uint16_t table[7] = {0xffff, 0x8011, 0x0022, 0x0055, 0x8055, 0x8066, 0x0066};
        key = htons(table[index]);
    };
    const auto index_of = [](const verbs_end& end) {
        return attributes_of(end, IBV_QP_PKEY_INDEX).pkey_index;
    };
    for (const auto& [key, index] :
         {std::pair{0u, 0}, std::pair{0x7fffu, 0}, std::pair{0x8011u, 1}, std::pair{0x22u, 2},
          std::pair{0x8022u, 2}, std::pair{0x55u, 4}, std::pair{0x8055u, 4}, std::pair{0x66u, 5}}) {
        CAPTURE(key);
        verbs_options o = connecting_by(way.options, verbs_connect::tcp);
        o.partition_key = key;
        verbs_world w(o);
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        CHECK(index_of(a) == index);
        CHECK(index_of(b) == index);
    }
    verbs_options o = connecting_by(way.options, verbs_connect::tcp);
    o.partition_key = 0x44;
    scheduler on;
    const refusal seen = refused([&] { const verbs_domain tried(on, o); });
    CHECK(seen.code == errc::address_invalid);
    CHECK_THAT(seen.text, contains("not in the partition"));
}

}  // namespace test_verbs_attributes
