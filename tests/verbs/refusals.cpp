#include "verbs/between.hpp"
#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <cerrno>

#include <sys/resource.h>

namespace test_verbs_refusals {

using namespace rdmacoro;
using namespace rdmacoro::test;

// Connections that are refused for a reason that passes, or that the client's user has to be told.

namespace {

const ibv_context* poor_device = nullptr;

}  // namespace

TEST_CASE("a connection that the peer's host rejects as stale is tried again with another queue pair") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    static unsigned rejections = 0;
    for (const unsigned times : {1u, 3u}) {
        const between hooks;
        rejections = times;
        between::cm_event = [](rdma_cm_event& event) {
            if (event.event != RDMA_CM_EVENT_CONNECT_RESPONSE || rejections == 0) return;
            --rejections;
            event.event = RDMA_CM_EVENT_REJECTED;
            event.status = 10;
            event.param.conn.private_data_len = 0;
        };
        verbs_world w(connecting_by(way.options, verbs_connect::rdma_cm));
        const verbs_listener listening = w.on.run(w.server.listen("*:0"));
        const verbs_connection made = w.on.run(w.client.connect(listening.address()));
        CHECK(static_cast<bool>(made));
        CHECK(rejections == 0);
    }
}

TEST_CASE("a connection that the peer's host rejects as stale again and again is refused") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    const between hooks;
    between::cm_event = [](rdma_cm_event& event) {
        if (event.event != RDMA_CM_EVENT_CONNECT_RESPONSE) return;
        event.event = RDMA_CM_EVENT_REJECTED;
        event.status = 10;
        event.param.conn.private_data_len = 0;
    };
    verbs_world w(connecting_by(way.options, verbs_connect::rdma_cm));
    const verbs_listener listening = w.on.run(w.server.listen("*:0"));
    const refusal seen = refused([&] { static_cast<void>(w.on.run(w.client.connect(listening.address()))); });
    CHECK(seen.code == errc::connection_refused);
}

TEST_CASE("a client that is refused because the peer may not lock memory is told so") {
    FOR_EACH_VERBS_DEVICE(way);
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        if (how == verbs_connect::tcp && way.iwarp) continue;
        CAPTURE(static_cast<int>(how));
        verbs_world w(connecting_by(way.options, how));
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        const between hooks;
        poor_device = b.link->queue_pair()->context;
        between::may_not_lock = [](const ibv_pd& domain) { return domain.context == poor_device; };
        refusal seen;
        std::vector<verbs_connection> more;
        const verbs_listener listening = w.on.run(w.server.listen("*:0"));
        // Until the slots that are registered already are used up.
        for (int n = 0; n < 5 && !seen.code; ++n)
            seen = refused([&] { more.push_back(w.on.run(w.client.connect(listening.address()))); });
        CHECK(seen.code == errc::no_resources);
        CHECK_THAT(seen.text, contains("RLIMIT_MEMLOCK"));
        CHECK_THAT(seen.text, contains("the peer's process"));
    }
}

TEST_CASE("the second queue pair of a stale connection is made before the first is destroyed, or it might "
          "get its number") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    static unsigned rejections = 0;
    static int others = 0;     // queue pairs of the rejected one's owner that there are when it is destroyed
    static int destroyed = 0;  // rejected ones
    static std::vector<const ibv_qp*> alive;
    for (const bool shared : {true, false}) {
        CAPTURE(shared);
        verbs_options o = connecting_by(way.options, verbs_connect::rdma_cm);
        o.share_receives = shared;
        verbs_world w(o);
        verbs_listener listening = w.on.run(w.server.listen("*:0"));
        const between hooks;
        rejections = 1;
        others = destroyed = 0;
        alive.clear();
        between::created = [](const ibv_qp& one) { alive.push_back(&one); };
        between::destroying = [](const ibv_qp& one) {
            std::erase(alive, &one);
            if (one.state != IBV_QPS_INIT) return;
            ++destroyed;
            for (const ibv_qp* const other : alive) others += other->qp_context == one.qp_context;
        };
        between::cm_event = [](rdma_cm_event& event) {
            if (event.event != RDMA_CM_EVENT_CONNECT_RESPONSE || rejections == 0) return;
            --rejections;
            event.event = RDMA_CM_EVENT_REJECTED;
            event.status = 10;
            event.param.conn.private_data_len = 0;
        };
        verbs_end a;
        a.link =
            std::make_unique<verbs_recorded_link>(w.on.run(w.client.connect(listening.address())), a.sink);
        CHECK(destroyed == 1);
        CHECK(others == 1);
        // The slots of the first one serve the second.
        verbs_end b;
        b.link = std::make_unique<verbs_recorded_link>(w.on.run(accepted_from(listening)), b.sink);
        a.sink.count_only = b.sink.count_only = true;
        for (std::uint64_t n = 0; n < 200; ++n) {
            post_for_sure(w, a, n);
            post_for_sure(w, b, n);
        }
        w.until([&] { return a.sink.count >= 200 && b.sink.count >= 200; });
    }
}

TEST_CASE("a client whose own process may not lock memory is told the limit, and one whose device has no "
          "queue pair left is not") {
    FOR_EACH_VERBS_DEVICE(way);
    for (const verbs_connect how : {verbs_connect::rdma_cm, verbs_connect::tcp}) {
        if (how == verbs_connect::tcp && way.iwarp) continue;
        CAPTURE(static_cast<int>(how));
        verbs_world w(connecting_by(way.options, how));
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        poor_device = a.link->queue_pair()->context;
        const verbs_listener listening = w.on.run(w.server.listen("*:0"));
        const rlimit unlimited{RLIM_INFINITY, RLIM_INFINITY};
        REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0);
        {
            const between hooks;
            between::creating = [](const ibv_pd& domain, const ibv_qp_init_attr&) {
                return domain.context == poor_device ? ENOMEM : 0;
            };
            const refusal seen =
                refused([&] { static_cast<void>(w.on.run(w.client.connect(listening.address()))); });
            CHECK(seen.code == errc::no_resources);
            CHECK_THAT(seen.text, contains("create a queue pair"));
            CHECK(seen.text.find("MEMLOCK") == std::string::npos);
        }
        {
            // The same at the peer.
            const between hooks;
            between::creating = [](const ibv_pd& domain, const ibv_qp_init_attr&) {
                return domain.context != poor_device ? ENOMEM : 0;
            };
            const refusal seen =
                refused([&] { static_cast<void>(w.on.run(w.client.connect(listening.address()))); });
            CHECK(seen.code == errc::no_resources);
            CHECK_THAT(seen.text, contains("the peer has no room"));
            CHECK(seen.text.find("MEMLOCK") == std::string::npos);
        }
        const between hooks;
        between::may_not_lock = [](const ibv_pd& domain) { return domain.context == poor_device; };
        const rlimit little{std::size_t{32} << 20, RLIM_INFINITY};
        REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &little) == 0);
        refusal seen;
        std::vector<verbs_connection> more;
        // Until the slots that are registered already are used up.
        for (int n = 0; n < 5 && !seen.code; ++n)
            seen = refused([&] { more.push_back(w.on.run(w.client.connect(listening.address()))); });
        REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &unlimited) == 0);
        CHECK(seen.code == errc::no_resources);
        CHECK_THAT(seen.text, contains("RLIMIT_MEMLOCK"));
        CHECK_THAT(seen.text, contains("this process may lock 32 MiB"));
    }
}

TEST_CASE("a queue that the device refuses for lack of memory is told with the limit of locked memory, where "
          "that is "
          "low") {
    FOR_EACH_VERBS_DEVICE(way);
    const auto with_limit = [](rlim_t bytes, auto what) {
        rlimit before{};
        REQUIRE(::getrlimit(RLIMIT_MEMLOCK, &before) == 0);
        const rlimit limit{bytes, before.rlim_max};
        REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
        const refusal seen = refused(what);
        REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &before) == 0);
        return seen;
    };
    constexpr rlim_t little = rlim_t{1} << 20;
    constexpr rlim_t much = rlim_t{1} << 40;
    scheduler on;
    {
        // The first queue of a domain, and its first queue pair.
        const between hooks;
        const bool pair = GENERATE(false, true);
        CAPTURE(pair);
        if (pair) {
            between::creating = [](const ibv_pd&, const ibv_qp_init_attr&) { return ENOMEM; };
        } else {
            between::creating_queue = [](const ibv_context&) { return ENOMEM; };
        }
        const auto open = [&] { const verbs_domain tried(on, way.options); };
        const refusal poor = with_limit(little, open);
        CHECK(poor.code == errc::no_resources);
        CHECK_THAT(poor.text, contains("this process may lock 1 MiB (RLIMIT_MEMLOCK)"));
        const refusal other = with_limit(much, open);
        CHECK(other.text.find("MEMLOCK") == std::string::npos);
        CHECK((pair || other.code == errc::no_resources));
    }
    verbs_world w(way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    poor_device = a.link->queue_pair()->context;
    const verbs_listener listening = w.on.run(w.server.listen("*:0"));
    const auto connect = [&] { static_cast<void>(w.on.run(w.client.connect(listening.address()))); };
    const between hooks;
    between::creating = [](const ibv_pd& domain, const ibv_qp_init_attr&) {
        return domain.context == poor_device ? ENOMEM : 0;
    };
    // Memory for slots may be locked, on siw too, which looks at root's limit.
    const rlim_t near = locked_memory() + (rlim_t{2} << 20);
    const refusal own = with_limit(near, connect);
    CHECK(own.code == errc::no_resources);
    CHECK_THAT(own.text, contains("RLIMIT_MEMLOCK"));
    between::creating = [](const ibv_pd& domain, const ibv_qp_init_attr&) {
        return domain.context != poor_device ? ENOMEM : 0;
    };
    const refusal peers = with_limit(near, connect);
    CHECK(peers.code == errc::no_resources);
    CHECK_THAT(peers.text, contains("the peer's process may not lock the memory"));
}

}  // namespace test_verbs_refusals
