#include "verbs/between.hpp"
#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace test_verbs_connecting {

using namespace rdmacoro;
using namespace rdmacoro::test;

// Connections that are given up while they open by rdma_cm.

namespace {

/// Identifiers that have asked for a connection and have not got an event since.
std::vector<const rdma_cm_id*> ids_waiting;
bool destroyed_while_waiting = false;
unsigned ids_asked = 0;

struct watch_identifiers {
    watch_identifiers() {
        ids_waiting.clear();
        destroyed_while_waiting = false;
        ids_asked = 0;
        between::asked = [](const rdma_cm_id& id) {
            ids_waiting.push_back(&id);
            ++ids_asked;
        };
        between::cm_event = [](rdma_cm_event& event) { std::erase(ids_waiting, event.id); };
        between::destroying_id = [](const rdma_cm_id& id) {
            if (std::erase(ids_waiting, &id) != 0) destroyed_while_waiting = true;
        };
    }
    between hooks;
};

}  // namespace

TEST_CASE("a connect that is given up does not wait in the kernel for the peer's answer, which may come from "
          "this thread") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options o = way.options;
    o.connect_by = verbs_connect::rdma_cm;
    verbs_world w(o);
    const verbs_listener listening = w.on.run(w.server.listen("*:0"));
    const watch_identifiers watched;
    constexpr unsigned rounds = 4;
    for (unsigned n = 0; n < rounds; ++n) {
        local_stop_source stop;
        w.on.run([](verbs_world* both, const verbs_listener* at, local_stop_source* give_up,
                    unsigned so_many) -> task<> {
            auto connecting =
                start(as_result(with_stop(both->client.connect(at->address()), give_up->get_token())));
            while (ids_asked != so_many) co_await yield();
            give_up->request_stop();
            const auto ended = co_await connecting;
            CHECK(ended.error() == errc::canceled);
        }(&w, &listening, &stop, n + 1));
    }
    // Over InfiniBand and RoCE the kernel does not wait.
    if (way.iwarp) CHECK_FALSE(destroyed_while_waiting);
    CHECK(ids_asked == rounds);
    w.until([&] { return w.client.connections() == 0; });
    CHECK(ids_waiting.empty());
    verbs_end a;
    verbs_end b;
    w.link(a, b);
}

}  // namespace test_verbs_connecting
