#include <rdmacoro/transport/detail/bare_session.hpp>

#include "support/catch.hpp"
#include "support/shm_pair.hpp"

#include <array>

using namespace rdmacoro;
using namespace rdmacoro::test;

static_assert(message_sink<detail::bare_session<shm>>);

namespace {

/// Two sessions over shared memory.
struct sessions {
    scheduler on{impatient{}};
    shm::domain near{on};
    shm::domain far{on};
    std::unique_ptr<detail::bare_session<shm>> a;
    std::unique_ptr<detail::bare_session<shm>> b;

    sessions() {
        on.run([](sessions& s, std::string name) -> task<> {
            auto listening = co_await s.far.listen(name);
            auto accepting = start(listening.accept());
            s.a = std::make_unique<detail::bare_session<shm>>(co_await s.near.connect(name));
            s.b = std::make_unique<detail::bare_session<shm>>(co_await accepting);
        }(*this, shm_test_name()));
    }
};

}  // namespace

TEST_CASE("a session stores nothing: without a receive the transport keeps the message") {
    sessions s;
    const std::array<std::byte, 4> data{};
    CHECK(s.b->deliver({}, data) == delivery::defer);
    CHECK(s.b->begin_payload({}, 100) == delivery::defer);
    CHECK(s.b->payload_space().empty());
}

TEST_CASE("a session that is closed says why, and closing again changes nothing") {
    sessions s;
    CHECK_FALSE(s.a->reason());
    s.a->close(make_error_code(errc::closed));
    CHECK(s.a->reason() == errc::closed);
    s.a->close(make_error_code(errc::no_resources));
    CHECK(s.a->reason() == errc::closed);
    for (int n = 0; n < 1'000'000 && !s.b->reason(); ++n) s.on.turn();
    CHECK(s.b->reason() == errc::peer_lost);
}
