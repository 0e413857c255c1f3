#include <rdmacoro/transport/tcp/session.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

namespace test_transport_tcp_session {

using namespace rdmacoro;
using namespace rdmacoro::test;
using rdmacoro::detail::tcp_session;

// The low six bits of its address carry the kind of a request.
static_assert(alignof(tcp_session) == 64 && static_cast<unsigned>(detail::tcp_request::cancel) < 64);

TEST_CASE("a session that was connected is ready, greeted, and lives until it is abandoned") {
    tcp_world w;
    tcp_listener listener = w.listen();
    auto made = w.connect(listener);
    tcp_session* session = made.client.release();
    REQUIRE(session != nullptr);
    CHECK(session->now() == tcp_session::phase::ready);
    CHECK(session->greeted() == detail::tcp_greeting::wire_bytes);
    CHECK(session->fd() >= 0);
    CHECK(&session->owner() == &w.on);
    CHECK_THAT(session->peer_name(), contains("127.0.0.1:"));
    const std::size_t before = w.client.sockets();
    session->abandon();
    w.until([&] { return w.client.sockets() == before - 1; });
}

TEST_CASE("memory that a session exposes is registered until its region goes") {
    tcp_world w;
    tcp_listener listener = w.listen();
    auto made = w.connect(listener);
    tcp_end end;
    end.link = std::make_unique<recorded_link>(std::move(made.client), end.sink);
    std::vector<std::byte> memory(100);
    {
        const region open = end.link->expose(memory, access_rights::remote_read);
        CHECK(open);
        CHECK(w.client.registered() == 1);
    }
    CHECK(w.client.registered() == 0);
}

}  // namespace test_transport_tcp_session
