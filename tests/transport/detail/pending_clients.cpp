#include <rdmacoro/transport/detail/pending_clients.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <rdmacoro/coro/coro.hpp>

#include <memory>
#include <vector>

namespace test_transport_detail_pending_clients {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

struct two_places;

struct waiting_client : detail::list_node<detail::pending_tag> {
    waiting_client(two_places& in, int number) noexcept : of(in), name(number) {}
    waiting_client(const waiting_client&) = delete;
    waiting_client& operator=(const waiting_client&) = delete;
    ~waiting_client() { leave(); }

    void ask() noexcept;
    void leave() noexcept;
    [[nodiscard]] time_point pending_since() const noexcept { return since; }
    void pending_admitted() noexcept;
    void pending_begins(time_point now) noexcept {
        admitted = true;
        since = now;
    }
    void pending_expired() noexcept {
        expired = true;
        leave();
    }

    two_places& of;
    int name;
    bool admitted = false;
    bool expired = false;
    time_point since{};
};

/// With room for two, most often.
struct two_places {
    static constexpr duration grace = 1s;

    void admit_waiting() noexcept {
        pending.admit_waiting([this]() noexcept { return has_room(); }, in.on.now(), grace);
    }
    [[nodiscard]] bool has_room() const noexcept { return pending.size() < places; }
    void pass(duration time) {
        in.on.run([](duration how_long) -> task<> { co_await sleep_for(how_long); }(time));
    }

    virtual_time in;
    std::size_t places = 2;
    duration cost{};  // of the network, for each that has waited
    detail::pending_clients<waiting_client> pending{
        in.on, this, [](void* self) noexcept { static_cast<two_places*>(self)->admit_waiting(); }};
    std::vector<int> order;  // of admission
};

void waiting_client::ask() noexcept {
    if (of.pending.admit(*this, of.has_room(), of.in.on.now(), two_places::grace)) of.order.push_back(name);
}
void waiting_client::pending_admitted() noexcept {
    ask();
    of.in.time.advance(of.cost);
}
void waiting_client::leave() noexcept {
    if (admitted) {
        of.pending.leave(*this);
    } else {
        static_cast<detail::list_node<detail::pending_tag>&>(*this).unlink();
    }
    admitted = false;
}

std::vector<std::unique_ptr<waiting_client>> ask_all(two_places& of, int count) {
    std::vector<std::unique_ptr<waiting_client>> all;
    for (int n = 0; n < count; ++n) {
        all.push_back(std::make_unique<waiting_client>(of, n));
        all.back()->ask();
    }
    return all;
}

}  // namespace

TEST_CASE("clients are admitted while there is room, and the others wait") {
    two_places d;
    const auto all = ask_all(d, 4);
    CHECK(d.order == std::vector{0, 1});
    CHECK(d.pending.size() == 2);
    CHECK(d.pending.any_waiting());
    d.admit_waiting();  // before their time is over
    CHECK(d.pending.size() == 2);
    CHECK_FALSE(all[0]->expired);
}

TEST_CASE("a client that has finished leaves its place to the newest that waits") {
    two_places d;
    const auto all = ask_all(d, 4);
    all[1]->leave();
    d.admit_waiting();
    CHECK(d.order == std::vector{0, 1, 3});
    CHECK_FALSE(all[0]->expired);
    all[2]->leave();  // gave up waiting
    CHECK_FALSE(d.pending.any_waiting());
    all[3]->leave();
    all[0]->leave();
    CHECK(d.pending.size() == 0);
}

TEST_CASE("clients that go no further give way after their time, oldest first, while others wait") {
    two_places d;
    auto all = ask_all(d, 1);
    d.pass(300ms);
    for (int n = 1; n < 4; ++n) {
        all.push_back(std::make_unique<waiting_client>(d, n));
        all.back()->ask();
    }
    d.pass(900ms);
    CHECK_FALSE(all[0]->expired);  // the list looks when those that wait have waited for as long
    d.pass(200ms);
    CHECK(all[0]->expired);
    CHECK(all[1]->expired);
    CHECK(d.order == std::vector{0, 1, 3, 2});
    CHECK_FALSE(d.pending.any_waiting());
}

TEST_CASE("clients that take the network long are admitted one by one and a turn goes by between them") {
    two_places d;
    const auto all = ask_all(d, 6);
    REQUIRE(d.order.size() == 2);
    d.places = 6;
    d.cost = 1ms;
    d.admit_waiting();
    CHECK(d.order.size() == 3);
    CHECK(d.pending.any_waiting());
    // The others need no call, and wait for nothing but their turn.
    const duration before = d.in.now();
    for (std::size_t admitted = 4; admitted <= 6; ++admitted) {
        d.in.on.run_until([&] { return d.order.size() >= admitted; });
        CHECK(d.order.size() == admitted);
    }
    CHECK(d.in.now() - before == 3ms);
    CHECK(d.order == std::vector{0, 1, 5, 4, 3, 2});
    CHECK_FALSE(d.pending.any_waiting());
}

TEST_CASE("clients are left alone while none waits") {
    two_places d;
    const auto all = ask_all(d, 2);
    d.pass(1h);
    d.admit_waiting();
    CHECK(d.pending.size() == 2);
    CHECK_FALSE(all[0]->expired);
    // One that comes now waits no longer than it takes to look.
    waiting_client late(d, 2);
    late.ask();
    d.admit_waiting();
    CHECK(all[0]->expired);
    CHECK_FALSE(all[1]->expired);
    CHECK(late.admitted);
}

}  // namespace test_transport_detail_pending_clients
