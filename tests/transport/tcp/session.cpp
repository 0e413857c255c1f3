#include <rdmacoro/transport/tcp/session.hpp>

#include <rdmacoro/transport/tcp/engine.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <chrono>
#include <cstring>
#include <vector>

#include <sys/resource.h>
#include <sys/un.h>

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

TEST_CASE("closing a socket takes no longer where many others of the domain wait") {
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    constexpr std::size_t few = 50;
    constexpr std::size_t many = 5000;
    if (limit.rlim_max < many + 200) SKIP_TEST("needs 5,200 descriptors (ulimit -Hn)");
    limit.rlim_cur = limit.rlim_max;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
    scheduler on;
    detail::tcp_engine engine(on, {});
    engine.enable();
    std::vector<tcp_session*> waiting;
    // Sockets of one descriptor each, each with a request in the kernel.
    const auto fill = [&](std::size_t count) {
        while (waiting.size() < count) {
            sockaddr_un any{};
            any.sun_family = AF_UNIX;  // the system chooses a name
            const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            REQUIRE(::bind(fd, reinterpret_cast<const sockaddr*>(&any), sizeof any.sun_family) == 0);
            REQUIRE(::listen(fd, 1) == 0);
            waiting.push_back(&engine.add_socket(fd));
            waiting.back()->start_accept();
        }
        engine.poll();
    };
    // The shortest of several: the machine may be busy.
    const auto shortest = [&] {
        auto found = std::chrono::nanoseconds::max();
        for (std::size_t n = 0; n < few; ++n) {
            const auto begin = std::chrono::steady_clock::now();
            waiting.back()->abandon();
            found = std::min(found, std::chrono::nanoseconds(std::chrono::steady_clock::now() - begin));
            waiting.pop_back();
            engine.poll();
        }
        return found;
    };
    fill(few);
    const auto alone = shortest();
    fill(many);
    const auto among_many = shortest();
    CAPTURE(alone.count(), among_many.count());
    CHECK(among_many < 5 * alone + std::chrono::microseconds(10));
    while (!waiting.empty()) {
        waiting.back()->abandon();
        waiting.pop_back();
    }
    for (int n = 0; n < 1000 && engine.sockets() != 0; ++n) engine.poll();
    CHECK(engine.sockets() == 0);
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
