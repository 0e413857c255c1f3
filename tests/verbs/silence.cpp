#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <chrono>
#include <cstdlib>
#include <string>

namespace test_verbs_silence {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

// A host that vanishes while a link is idle, where TCP carries the link. tests/verbs/faults.cpp has the same over RoCE.

namespace {

/// Two iWARP devices in software that a cable joins: a pair of network interfaces of the virtual machine. Policy routing sends what
/// goes between their addresses through the pair, though both are this host's (as tools/soft-rdma-vm --veth does for rxe).
class iwarp_cable {
public:
    static constexpr auto keepalive = 1s;

    static bool possible() {
        return std::getenv("SOFT_RDMA_VM") != nullptr && std::getenv("SIW_IP") != nullptr &&
               run("test -e /sys/class/infiniband/rxe2");  // by which the routes of this host are such
    }
    static bool run(const std::string& command) { return std::system(command.c_str()) == 0; }

    iwarp_cable() {
        REQUIRE(run("set -e; ip link add siwa type veth peer name siwb; "
                    "for i in a:1:2 b:2:1; do IFS=: read -r end own far <<EOF\n$i\nEOF\n"
                    "echo 1 >/proc/sys/net/ipv4/conf/siw$end/accept_local; "
                    "echo 0 >/proc/sys/net/ipv4/conf/siw$end/rp_filter; "
                    "ip addr add 10.96.0.$own/32 dev siw$end; ip link set siw$end mtu 4300 up; "
                    "ip rule add pref 3$own iif siw$end lookup local; "
                    "ip route add 10.96.0.$far dev siw$end src 10.96.0.$own table 11$own; "
                    "ip rule add pref 4$own from 10.96.0.$own to 10.96.0.$far lookup 11$own; done; "
                    "ip neigh add 10.96.0.2 lladdr $(cat /sys/class/net/siwb/address) dev siwa; "
                    "ip neigh add 10.96.0.1 lladdr $(cat /sys/class/net/siwa/address) dev siwb; "
                    "rdma link add siwa type siw netdev siwa; rdma link add siwb type siw netdev siwb"));
    }
    ~iwarp_cable() {
        static_cast<void>(run("for i in 1 2; do ip rule del pref 3$i; ip rule del pref 4$i; done; "
                              "for i in a b; do tc qdisc del dev siw$i root; ip addr flush dev siw$i; done"));
    }
    iwarp_cable(const iwarp_cable&) = delete;
    iwarp_cable& operator=(const iwarp_cable&) = delete;

    /// Nothing passes any more, and no interface notices.
    static void cut() {
        REQUIRE(
            run("tc qdisc add dev siwa root netem loss 100% && tc qdisc add dev siwb root netem loss 100%"));
    }

    static verbs_options at(const std::string& address) {
        verbs_options o;
        o.address = address;
        o.keepalive = keepalive;
        return o;
    }
};

}  // namespace

TEST_CASE("an idle link over iWARP ends when the peer's host vanishes, and stays while it is there") {
    if (!iwarp_cable::possible()) SKIP_TEST("no iWARP devices are made here: tools/soft-rdma-vm");
    const iwarp_cable cable;
    verbs_world w(iwarp_cable::at("10.96.0.1"), iwarp_cable::at("10.96.0.2"));
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    // The devices answer: nothing but their answers moves.
    const std::uint64_t before = a.link->counts().work_requests;
    w.until([&] { return a.link->counts().work_requests >= before + 5 || a.sink.downs + b.sink.downs != 0; });
    CHECK(a.sink.downs + b.sink.downs == 0);
    CHECK(a.link->counts().messages + b.link->counts().messages <= 2);
    cable.cut();
    const time_point cut = w.on.now();
    w.until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
    CHECK(a.sink.reason == errc::peer_lost);
    CHECK(b.sink.reason == errc::peer_lost);
    // Four times the keepalive; the rest is what a busy machine takes.
    CHECK(w.on.now() - cut < 10 * iwarp_cable::keepalive);
}

}  // namespace test_verbs_silence
