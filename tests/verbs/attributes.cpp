#include "verbs/pair.hpp"
#include "verbs/spare_device.hpp"

#include "support/catch.hpp"

#include <array>

#include <arpa/inet.h>

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

verbs_options connecting_by(verbs_options o, verbs_connect how) {
    o.connect_by = how;
    return o;
}

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

TEST_CASE("a domain goes on when its device's address changes") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        CAPTURE(static_cast<int>(how));
        verbs_world w(connecting_by(device.options(), how));
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        spare_device::run("ip addr add 10.97.8.1/24 dev " + device.interface +
                          " && ip addr del 10.97.0.1/24 dev " + device.interface);
        verbs_listener listening = w.on.run(w.server.listen("10.97.8.1:0"));
        verbs_end c;
        c.link =
            std::make_unique<verbs_recorded_link>(w.on.run(w.client.connect(listening.address())), c.sink);
        CHECK(source_of(c) == "10.97.8.1");
        c.link.reset();
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
            const unsigned least = asked != 0 ? asked : way.name == "RXE_IP" ? 14 : 18;
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
