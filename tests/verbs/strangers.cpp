#include "verbs/between.hpp"
#include "verbs/pair.hpp"
#include "verbs/spare_device.hpp"
#include "verbs/stranger.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace test_verbs_strangers {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

// Clients that connect and do not go on.

namespace {

namespace verbs = rdmacoro::detail::verbs;

/// A stranger that asks for a connection by rdma_cm, and does not take notice of the answer.
class asking_stranger {
public:
    /// `from` an address of this host; empty: the one that the route names.
    explicit asking_stranger(const std::string& to, const std::string& from = {})
        : events_(::rdma_create_event_channel()) {
        auto at = at_url(to);
        rdmacoro::detail::inet_endpoint own;
        if (!from.empty()) own = at_url(from + ":0");
        REQUIRE(events_ != nullptr);
        REQUIRE(::rdma_create_id(events_.get(), &id_, nullptr, RDMA_PS_TCP) == 0);
        REQUIRE(::rdma_resolve_addr(id_, from.empty() ? nullptr : own.get(), at.get(), 2000) == 0);
        await(RDMA_CM_EVENT_ADDR_RESOLVED);
        REQUIRE(::rdma_resolve_route(id_, 2000) == 0);
        await(RDMA_CM_EVENT_ROUTE_RESOLVED);
        const auto greeting = client_greeting();
        rdma_conn_param with{};
        with.private_data = greeting.data();
        with.private_data_len = greeting.size();
        with.responder_resources = with.initiator_depth = 1;
        with.retry_count = with.rnr_retry_count = 7;
        static std::uint32_t queue_pairs = 1000;
        with.qp_num = ++queue_pairs;  // two requests with one number would be one
        REQUIRE(::rdma_connect(id_, &with) == 0);
    }
    asking_stranger(asking_stranger&& other) noexcept
        : events_(std::move(other.events_)), id_(std::exchange(other.id_, nullptr)) {}
    asking_stranger& operator=(asking_stranger&&) = delete;
    ~asking_stranger() {
        if (id_ != nullptr) ::rdma_destroy_id(id_);
    }

private:
    void await(rdma_cm_event_type what) const {
        rdma_cm_event* event = nullptr;
        REQUIRE(::rdma_get_cm_event(events_.get(), &event) == 0);
        CHECK(event->event == what);
        ::rdma_ack_cm_event(event);
    }

    verbs::unique_event_channel events_;
    rdma_cm_id* id_ = nullptr;
};

constexpr unsigned most_links = 64;
constexpr unsigned share = most_links / 4;  // that clients hold which have not finished connecting

verbs_options few_links(verbs_options o, verbs_connect how) {
    o.connect_by = how;
    o.most_links = most_links;
    return o;
}

task<> connect_within(verbs_domain* by, const verbs_listener* to, duration limit) {
    verbs_connection made = co_await timeout(by->connect(to->address()), limit);
    CHECK(static_cast<bool>(made));
}

}  // namespace

TEST_CASE("two hundred connections that say nothing do not keep a client out for a second") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    // Fewer links than strangers: each of them would have one if it got a queue pair.
    verbs_world w(few_links(way.options, verbs_connect::tcp));
    const verbs_listener listening = w.on.run(w.server.listen("127.0.0.1:0"));
    std::vector<stranger> silent;
    for (int n = 0; n < 200; ++n) silent.emplace_back(listening.address());
    w.until([&] { return w.server.connections() >= 150; });
    w.turns(500);
    CHECK(w.server.counts().unfinished == 0);
    w.on.run(connect_within(&w.client, &listening, 1s));
}

TEST_CASE(
    "clients that begin to connect and do not go on hold a part of the links, and others get their turn") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    verbs_world w(few_links(way.options, verbs_connect::tcp));
    const verbs_listener listening = w.on.run(w.server.listen("127.0.0.1:0"));
    std::vector<stranger> begun;
    for (int n = 0; n < 200; ++n) {
        begun.emplace_back(listening.address());
        begun.back().send_connect_info();
    }
    w.until([&] { return w.server.connections() >= 150; });
    w.until([&] { return w.server.counts().unfinished == share; });
    w.turns(500);
    CHECK(w.server.counts().unfinished == share);
    for (int n = 0; n < 3; ++n) w.on.run(connect_within(&w.client, &listening, 3s));
}

TEST_CASE("clients whose GID is an address that no host answers for hold nobody up, and are dropped") {
    NEEDS_SPARE_DEVICE();
    // On an interface that asks for hardware addresses, as a dummy one does not.
    const std::string name = "asks" + std::to_string(::getpid() % 1000);
    spare_device::run("ip link add " + name + " type veth peer name " + name + "b && ip link set " + name +
                      " up && ip link set " + name + "b up && ip addr add 10.97.11.1/24 dev " + name +
                      " && rdma link add rxe" + name + " type rxe netdev " + name);
    {
        verbs_options o;
        o.device = "rxe" + name;
        o.connect_by = verbs_connect::tcp;
        verbs_world w(o);
        const verbs_listener listening = w.on.run(w.server.listen("127.0.0.1:0"));
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        std::vector<stranger> begun;
        for (std::uint8_t n = 0; n < 5; ++n) {
            begun.emplace_back(listening.address());
            ibv_gid nobody{};
            nobody.raw[10] = nobody.raw[11] = 0xff;
            nobody.raw[12] = 10;
            nobody.raw[13] = 97;
            nobody.raw[14] = 11;
            nobody.raw[15] = static_cast<std::uint8_t>(77 + n);
            begun.back().send_connect_info(nobody);
        }
        duration longest{};
        bool served = false;
        time_point last = std::chrono::steady_clock::now();
        const auto look = [&] {
            const time_point now = std::chrono::steady_clock::now();
            longest = std::max<duration>(longest, now - last);
            last = now;
            return w.server.counts().unfinished == 0;
        };
        w.until([&] { return !look() && w.server.counts().unfinished == begun.size(); });
        // Meanwhile a client whose address answers is served, and a link's messages go on.
        w.on.run(connect_within(&w.client, &listening, 5s));
        last = std::chrono::steady_clock::now();
        served = !look();
        w.exchange(a, b, pattern(100));
        w.until(look);
        CHECK(served);
        CHECK(longest < 800ms);  // each look of the kernel's would have taken a second
    }
    spare_device::run("ip addr flush dev " + name);  // the device stays, as librdmacm has it open
}

TEST_CASE(
    "clients that ask by rdma_cm and do not go on hold a part of the links, and others get their turn") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    verbs_world w(few_links(way.options, verbs_connect::rdma_cm));
    const verbs_listener listening = w.on.run(w.server.listen("*:0"));
    std::vector<asking_stranger> begun;
    for (int n = 0; n < 100; ++n) {
        begun.emplace_back(listening.address());
        w.turns(5);
    }
    w.until([&] { return w.server.connections() >= 90; });
    w.until([&] { return w.server.counts().unfinished == share; });
    w.turns(500);
    CHECK(w.server.counts().unfinished == share);
    for (int n = 0; n < 3; ++n) w.on.run(connect_within(&w.client, &listening, 5s));
}

namespace {

/// What a domain takes of requests that have come.
struct seen_requests {
    manual_clock* time = nullptr;
    unsigned taken = 0;
    int channel = -1;  // that they come by
};
seen_requests seen;

bool more_has_come() {
    pollfd look{seen.channel, POLLIN, 0};
    return ::poll(&look, 1, 0) == 1;
}

}  // namespace

TEST_CASE("requests by rdma_cm whose queue pairs take the device long are taken one in a turn") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    virtual_time in;
    verbs_domain server(in.on, few_links(way.options, verbs_connect::rdma_cm));
    const verbs_listener listening = in.run(server.listen("*:0"));
    const between hooks;
    seen = {&in.time, 0, -1};
    between::creating = [](const ibv_pd&, const ibv_qp_init_attr&) {
        seen.time->advance(1ms);
        return 0;
    };
    between::cm_event = [](rdma_cm_event& event) {
        if (event.event != RDMA_CM_EVENT_CONNECT_REQUEST) return;
        ++seen.taken;
        seen.channel = event.listen_id->channel->fd;
    };
    constexpr unsigned all = 8;
    static_assert(all <= share);
    std::vector<asking_stranger> begun;
    for (unsigned n = 0; n < all; ++n) begun.emplace_back(listening.address());
    unsigned most = 0;  // in a turn
    bool left = false;  // some, by a turn that took one
    while (seen.taken < all) {
        const unsigned before = seen.taken;
        in.on.run_until([&] { return seen.taken != before; });
        most = std::max(most, seen.taken - before);
        left = left || (seen.taken < all && more_has_come());
    }
    CHECK(left);
    CHECK(most == 1);
}

TEST_CASE("clients that ask by rdma_cm and do not go on leave their places to those of other hosts") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    spare_device::run("ip addr add 10.97.7.1/24 dev " + device.interface);
    verbs_options server = few_links(device.options(), verbs_connect::rdma_cm);
    server.most_waiting = 8;
    server.handshake_timeout = 100s;  // so long that none of them expires here
    verbs_options client = device.options();
    client.device.clear();
    client.address = "10.97.7.1";
    client.connect_by = verbs_connect::rdma_cm;
    verbs_world w(client, server);
    const verbs_listener listening = w.on.run(w.server.listen("10.97.0.1:0"));
    std::vector<asking_stranger> begun;
    for (unsigned n = 0; n < server.most_waiting; ++n) {
        begun.emplace_back(listening.address(), "10.97.0.1");
        w.until([&] { return w.server.connections() == n + 1; });
    }
    w.on.run(connect_within(&w.client, &listening, 5s));
    // One of them had to go.
    w.until([&] { return w.server.connections() <= server.most_waiting; });
}

}  // namespace test_verbs_strangers
