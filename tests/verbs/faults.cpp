#include "verbs/between.hpp"
#include "verbs/pair.hpp"

#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/pattern.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace test_verbs_faults {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

// Links under a bad network and hostile peers. tests/faults has processes that die, over this transport as over the others.

namespace {

/// Two devices that a cable joins, a pair of network interfaces of the virtual machine (tools/soft-rdma-vm --veth): a fault of
/// the pair affects no other interface. The queue pairs' data is exchanged over the loopback interface, which stays whole, so that
/// a fault is found out by the devices alone.
struct cable {
    static bool there() {
        return std::getenv("SOFT_RDMA_VM") != nullptr &&
               std::system("test -e /sys/class/infiniband/rxe2") == 0;
    }
    static verbs_options at(const char* device) {
        verbs_options o;
        o.device = device;
        o.connect_by = verbs_connect::tcp;
        return o;
    }
    static void run(const std::string& command) {
        INFO(command);
        REQUIRE(std::system(command.c_str()) == 0);
    }
    static void cut() { run("ip link set veth2 down"); }
    /// With the routes that went with the interface.
    static void mend() {
        run("ip link set veth2 up && mac() { cat /sys/class/net/veth$1/address; } && for i in 1 2; do o=$((3 "
            "- i)); "
            "ip neigh replace 10.98.0.$o lladdr $(mac $o) dev veth$i; "
            "ip route replace 10.98.0.$o dev veth$i src 10.98.0.$i table 10$i; done");
    }
    /// Loses so many packets of a hundred each way.
    struct lossy {
        explicit lossy(int percent) {
            for (const char* end : {"veth1", "veth2"})
                run("tc qdisc replace dev " + std::string(end) + " root netem loss " +
                    std::to_string(percent) + "%");
        }
        lossy(const lossy&) = delete;
        lossy& operator=(const lossy&) = delete;
        /// Packets lost so far, both ways.
        static unsigned long lost() {
            unsigned long all = 0;
            for (const std::string end : {"veth1", "veth2"}) {
                FILE* const shown = ::popen(("tc -s qdisc show dev " + end).c_str(), "r");
                REQUIRE(shown != nullptr);
                for (char line[256]; std::fgets(line, sizeof line, shown) != nullptr;) {
                    const char* const dropped = std::strstr(line, "(dropped ");
                    if (dropped != nullptr) all += std::strtoul(dropped + 9, nullptr, 10);
                }
                ::pclose(shown);
            }
            return all;
        }
        ~lossy() {
            for (const char* end : {"veth1", "veth2"})
                static_cast<void>(std::system(("tc qdisc del dev " + std::string(end) + " root").c_str()));
        }
    };
};
#define NEEDS_CABLE()                                                                                        \
    if (!cable::there()) SKIP_TEST("no two devices with a cable of their own: tools/soft-rdma-vm --veth")

constexpr std::size_t most_bytes = 200000;
std::size_t bytes_of_message(unsigned n) {
    return std::array<std::size_t, 6>{8, 3000, 0, 9000, 100, most_bytes}[n % 6];
}

task<> sends_all(endpoint<verbs_rc>& peer, unsigned count, std::uint64_t seed) {
    for (unsigned n = 0; n < count; ++n) co_await peer.send(pattern(bytes_of_message(n), seed + n), n);
}
task<> receives_all(endpoint<verbs_rc>& peer, unsigned count, std::uint64_t seed) {
    std::vector<std::byte> into(most_bytes);
    for (unsigned n = 0; n < count; ++n) {
        const received got = co_await peer.recv(into);  // any tag: in the order sent
        CHECK(got.tag == n);
        CHECK(got.bytes == bytes_of_message(n));
        CHECK(is_pattern(std::span(into).first(got.bytes), seed + n));
    }
}

/// Messages both ways at a time, of sizes that travel in each way, and gets and puts between them.
task<> talk(verbs_domain& here, verbs_domain& there, std::string listening_at) {
    auto listening = co_await listen<verbs_rc>(there, listening_at);
    auto accepting = start(listening.accept());
    endpoint<verbs_rc> a = co_await connect<verbs_rc>(here, listening.address());
    endpoint<verbs_rc> b = co_await accepting;
    constexpr unsigned count = 120;
    task_group group;
    group.spawn(sends_all, std::ref(a), count, std::uint64_t{1});
    group.spawn(sends_all, std::ref(b), count, std::uint64_t{1000});
    group.spawn(receives_all, std::ref(a), count, std::uint64_t{1000});
    group.spawn(receives_all, std::ref(b), count, std::uint64_t{1});
    std::vector<std::byte> far = pattern(std::size_t{1} << 20, std::uint64_t{7});
    std::vector<std::byte> near(far.size());
    const region open = there.register_memory(far, access_rights::all);
    for (std::uint64_t n = 0; n < 4; ++n) {
        co_await a.rdma_get(open.remote(), near);
        CHECK(is_pattern(near, 7 + n));
        near = pattern(near.size(), 8 + n);
        co_await a.rdma_put(near, open.remote());
    }
    co_await group.join();
    CHECK(is_pattern(far, 11));
}

/// A message that the layer above did not ask for, and that no credit was paid for.
int post_by_hand(ibv_qp* queue_pair, std::uint64_t number) {
    std::array<std::byte, rdmacoro::detail::verbs::frame_bytes> bytes{};
    rdmacoro::detail::verbs::frame{rdmacoro::detail::verbs::frame_kind::message, 0}.store(bytes.data());
    const message_header header = header_of(number);
    std::copy(header.begin(), header.end(), bytes.begin() + 4);
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size(), 0};
    ibv_send_wr request{};
    request.wr_id = ~std::uint64_t{0};  // of no connection
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_INLINE;
    ibv_send_wr* refused = nullptr;
    return ::ibv_post_send(queue_pair, &request, &refused);
}

/// Posts a write of those bytes that takes a slot of the peer's, without the link. Returns 0, or the device's error.
int write_with_immediate(ibv_qp* queue_pair, ibv_mr& from, const remote_region& to) {
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(from.addr), static_cast<std::uint32_t>(to.length),
                  from.lkey};
    ibv_send_wr request{};
    request.wr_id = ~std::uint64_t{0};  // of no connection
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.wr.rdma.remote_addr = to.address;
    request.wr.rdma.rkey = static_cast<std::uint32_t>(to.key);
    ibv_send_wr* refused = nullptr;
    return ::ibv_post_send(queue_pair, &request, &refused);
}

}  // namespace

TEST_CASE("a network that loses packets loses no message, and keeps their order") {
    NEEDS_CABLE();
    for (const int percent : {1, 10}) {
        // The driver in software (Linux 6.1) calls a request invalid at times that it has sent again, which ends the link; that is seen by the
        // device's status, and nothing else may end one.
        unsigned called_invalid = 0;
        for (bool whole = false; !whole;) {
            CAPTURE(percent, called_invalid);
            const cable::lossy loses(percent);
            verbs_options here = cable::at("rxe1");
            verbs_options there = cable::at("rxe2");
            here.acknowledge_timeout = there.acknowledge_timeout = 12;  // 17 ms: much is sent again
            verbs_world w(here, there);
            std::error_code ended;
            w.on.run([](verbs_world* both, std::error_code* how) -> task<> {
                auto talked =
                    co_await as_result(timeout(talk(both->client, both->server, "127.0.0.1:0"), 60s));
                if (!talked) *how = talked.error();
            }(&w, &ended));
            CHECK(cable::lossy::lost() > 0);
            CAPTURE(ended.message());
            const std::uint64_t by_device =
                w.client.counts().called_invalid + w.server.counts().called_invalid;
            whole = !ended;
            REQUIRE(whole == (by_device == 0));
            if (ended) {
                // The second is what the end sees whose request it was not.
                REQUIRE((ended == errc::protocol_violation || ended == errc::peer_lost));
                REQUIRE(++called_invalid <= 3);
            }
        }
    }
}

TEST_CASE(
    "an interface that goes down in mid-transfer ends the links over it, and others can be made later") {
    NEEDS_CABLE();
    verbs_world w(cable::at("rxe1"), cable::at("rxe2"));
    std::vector<std::byte> there(std::size_t{8} << 20, std::byte{1});
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    {
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        recording_completion moved[4];
        for (unsigned n = 0; n < 4; ++n) {
            const post_result answer = n % 2 == 0 ? a.link->get(open.remote(), here, moved[n])
                                                  : a.link->put(here, open.remote(), moved[n]);
            REQUIRE(answer == post_result::posted);
        }
        w.until([&] { return here.front() == std::byte{1}; });  // the first get has begun
        REQUIRE(moved[3].calls == 0);
        cable::cut();
        const time_point cut = w.on.now();
        w.until([&] { return a.sink.downs == 1; });
        CHECK(a.sink.reason == errc::peer_lost);
        for (const recording_completion& m : moved) CHECK(m.calls == 1);
        CHECK(moved[3].outcome == errc::peer_lost);
        std::fill(here.begin(), here.end(), std::byte{0x77});
        // The other end sends nothing, and finds out all the same.
        w.until([&] { return b.sink.downs == 1; });
        CHECK(b.sink.reason == errc::peer_lost);
        // Four times the keepalive; the rest is what a busy machine takes.
        CHECK(w.on.now() - cut < 10 * verbs_options().keepalive);
        cable::mend();
        w.turns(200);
        CHECK(std::all_of(here.begin(), here.end(), [](std::byte x) { return x == std::byte{0x77}; }));
    }
    w.on.run([](verbs_world* both) -> task<> {
        co_await timeout(talk(both->client, both->server, "127.0.0.1:0"), 60s);
    }(&w));
}

TEST_CASE("a network that is down for two seconds ends no link, unless a shorter acknowledge timeout was "
          "asked for") {
    NEEDS_CABLE();
    // Adapters give up after some retries; rxe, as the toolkit uses it, never does. So the devices say that they are others.
    const between hooks;
    between::device = [](ibv_device_attr& of) { of.vendor_id = 0x1234; };
    between::modifying = [](const ibv_qp&, ibv_qp_attr& wanted, int mask) {
        // On rxe seven retries are for ever.
        if ((mask & IBV_QP_RETRY_CNT) != 0 && wanted.retry_cnt == 7) wanted.retry_cnt = 6;
        return 0;
    };
    const unsigned asked = GENERATE(0u, 14u);
    const bool idle = GENERATE(false, true);
    CAPTURE(asked, idle);
    verbs_options here = cable::at("rxe1");
    verbs_options there = cable::at("rxe2");
    here.acknowledge_timeout = there.acknowledge_timeout = asked;
    verbs_world w(here, there);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    ibv_qp_attr now{};
    ibv_qp_init_attr made{};
    REQUIRE(::ibv_query_qp(a.link->queue_pair(), &now, IBV_QP_TIMEOUT, &made) == 0);
    CHECK(now.timeout == (asked == 0 ? 18 : asked));
    w.exchange(a, b, pattern(100));
    const std::uint64_t before = b.sink.count;
    cable::cut();
    const time_point cut = w.on.now();
    if (!idle) post_for_sure(w, a, 77);
    if (asked != 0) {
        // Idle ends send something now and then, to which the same applies.
        w.until([&] { return a.sink.downs == 1; });
        CHECK(a.sink.reason == errc::peer_lost);
        CHECK(w.on.now() - cut <
              (idle ? 10 * here.keepalive : duration(10s)));  // most of it for a busy machine
        cable::mend();
        return;
    }
    w.until([&] { return w.on.now() - cut >= 2s; });
    CHECK(a.sink.downs + b.sink.downs == 0);
    cable::mend();
    if (idle) post_for_sure(w, a, 77);
    w.until([&] { return b.sink.count > before || a.sink.downs + b.sink.downs != 0; });
    REQUIRE(b.sink.count == before + 1);
    CHECK(b.sink.messages.back().number == 77);
    CHECK(a.sink.downs + b.sink.downs == 0);
}

TEST_CASE("memory that is deregistered in mid-transfer ends the transfer and its link") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    std::vector<std::byte> there(std::size_t{16} << 20, std::byte{1});
    std::vector<std::byte> here(there.size());
    for (const bool get : {true, false}) {
        CAPTURE(get);
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        std::fill(here.begin(), here.end(), std::byte{2});
        std::fill(there.begin(), there.end(), std::byte{1});
        region open = w.server.register_memory(there, access_rights::all);
        recording_completion moved;
        REQUIRE((get ? a.link->get(open.remote(), here, moved) : a.link->put(here, open.remote(), moved)) ==
                post_result::posted);
        w.until([&] { return get ? here.front() == std::byte{1} : there.front() == std::byte{2}; });
        open.reset();
        REQUIRE(moved.calls == 0);
        w.until([&] { return moved.calls == 1; });
        // rxe looks at the memory of a read for each packet, siw once for each request; a long get is several. Of other devices
        // it is not known how soon they notice.
        const bool siw = way.siw;
        const bool notices = siw || way.rxe;
        if (notices || moved.outcome) {
            CHECK(moved.outcome == (siw ? errc::peer_lost : errc::access_denied));
            w.until([&] { return a.sink.downs == 1 && b.sink.downs == 1; });
        }
        // Nothing comes to either side any more.
        std::fill(here.begin(), here.end(), std::byte{0x77});
        std::fill(there.begin(), there.end(), std::byte{0x77});
        w.turns(200);
        CHECK(std::all_of(here.begin(), here.end(), [](std::byte x) { return x == std::byte{0x77}; }));
        CHECK(std::all_of(there.begin(), there.end(), [](std::byte x) { return x == std::byte{0x77}; }));
    }
}

TEST_CASE("a peer that sends more than it has credit for loses its link; others of the domain go on") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options few = way.options;
    few.credits = 8;
    verbs_world w(few, few);
    verbs_end a;
    verbs_end b;
    verbs_end c;
    verbs_end d;
    w.link(a, b);
    w.link(c, d);
    b.sink.refuse_all = true;  // or it would give credit back as fast as it is used
    // More than the slots of both links. Over iWARP its receive queue runs dry, and the device ends the connection, which may be before
    // the last is posted; what had come before is delivered first.
    for (std::uint64_t n = 0; n < 60; ++n) {
        if (post_by_hand(a.link->queue_pair(), n) == 0) continue;
        REQUIRE(way.iwarp);
        REQUIRE(n > few.credits);
        break;
    }
    w.until([&] { return a.sink.downs + b.sink.downs != 0; });
    b.sink.refuse_all = false;
    w.until([&] { return b.sink.downs == 1; });
    CHECK(b.sink.reason == (way.iwarp ? errc::peer_lost : errc::protocol_violation));
    constexpr std::uint64_t all = 500;
    for (std::uint64_t n = 0; n < all; ++n) {
        post_for_sure(w, c, n);
        post_for_sure(w, d, n);
    }
    w.until([&] { return c.sink.count == all && d.sink.count == all; });
    CHECK(c.sink.downs + d.sink.downs == 0);
}

TEST_CASE("a write that takes a slot is no message, whatever the slot held before, and ends its link") {
    FOR_EACH_VERBS_DEVICE(way);
    if (way.iwarp) return;  // has no immediates
    const std::size_t bytes = GENERATE(std::size_t{100}, std::size_t{65536});
    CAPTURE(bytes);
    verbs_world w(way.options, way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    constexpr std::uint64_t all = 600;  // every slot has held a message
    for (std::uint64_t n = 0; n < all; ++n) post_for_sure(w, a, n, pattern(200));
    w.until([&] { return b.sink.count == all; });
    std::vector<std::byte> there(bytes);
    std::vector<std::byte> here(bytes);
    const region open = w.server.register_memory(there, access_rights::all);
    ibv_qp* const pair = a.link->queue_pair();
    constexpr unsigned rights = IBV_ACCESS_LOCAL_WRITE;
    ibv_mr* const from = ::ibv_reg_mr(pair->pd, here.data(), here.size(), rights);
    REQUIRE(from != nullptr);
    REQUIRE(write_with_immediate(pair, *from, open.remote()) == 0);
    w.until([&] { return b.sink.downs == 1; });
    CHECK(b.sink.reason == errc::protocol_violation);
    CHECK(b.sink.count == all);
    a.link.reset();
    CHECK(::ibv_dereg_mr(from) == 0);
}

TEST_CASE("as many links as a domain may have can all be busy at once, over several completion queues; one "
          "more is refused") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options small = way.options;
    small.completion_entries = 128;
    small.send_depth = 32;
    small.credits = 8;
    constexpr unsigned fit = 6;  // three of them by the first queue
    small.most_links = fit;
    verbs_world w(small, small);
    std::array<verbs_end, fit> as;
    std::array<verbs_end, fit> bs;
    for (unsigned n = 0; n < fit; ++n) w.link(as[n], bs[n]);
    const refusal seen = refused([&] { static_cast<void>(w.connect()); });
    CHECK(seen.code == errc::no_resources);
    constexpr std::uint64_t all = 400;
    std::array<std::uint64_t, fit> from_a{};
    std::array<std::uint64_t, fit> from_b{};
    recording_completion none;
    w.until([&] {
        bool over = true;
        for (unsigned n = 0; n < fit; ++n) {
            while (from_a[n] < all && as[n].link->post(header_of(from_a[n]), {}, none) == post_result::done)
                ++from_a[n];
            while (from_b[n] < all && bs[n].link->post(header_of(from_b[n]), {}, none) == post_result::done)
                ++from_b[n];
            over = over && as[n].sink.count == all && bs[n].sink.count == all;
        }
        return over;
    });
    for (unsigned n = 0; n < fit; ++n) CHECK(as[n].sink.downs + bs[n].sink.downs == 0);
    // A link that ends makes room for the next.
    as[0].link.reset();
    bs[0].link.reset();
    w.until([&] { return w.client.connections() == fit - 1 && w.server.connections() == fit - 1; });
    verbs_end a;
    verbs_end b;
    w.link(a, b);
}

}  // namespace test_verbs_faults
