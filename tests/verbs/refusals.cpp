#include "verbs/between.hpp"
#include "verbs/pair.hpp"

#include "support/catch.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

// Connections that are refused for a reason that passes, or that the client's user has to be told.

namespace {

const ibv_context* poor = nullptr;

verbs_options connecting_by(verbs_options o, verbs_connect how) {
    o.connect_by = how;
    return o;
}

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
        if (how == verbs_connect::tcp && way.name == "SIW_IP") continue;
        CAPTURE(static_cast<int>(how));
        verbs_world w(connecting_by(way.options, how));
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        const between hooks;
        poor = b.link->queue_pair()->context;
        between::may_not_lock = [](const ibv_pd& domain) { return domain.context == poor; };
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
