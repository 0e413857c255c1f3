#include <rdmacoro/protocol/reuse_aware_eager.hpp>

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/scripted_peer.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <unistd.h>

namespace test_protocol_reuse_aware_eager {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using list = protocols<reuse_aware_eager<>, segmented<>>;
using reuse_peer = basic_scripted_peer<list>;

// A copy costs a nanosecond a byte, so that lengths of 512 to 1023 bytes save 412 ns each time.
constexpr detail::reuse_costs costs{.copy = 0, .copied_byte = 1, .bookkeeping = 100};
constexpr double saved = 412;
constexpr unsigned first_uses = detail::reuse_threshold::first_uses;

std::vector<std::byte> filled(std::size_t bytes, std::uint64_t value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value & 0xff));
}

template <class Endpoint>
detail::reuse_watch& watch_of(Endpoint& self) {
    return reuse_aware_eager<>::watch<std::remove_cvref_t<decltype(self.connection())>>(
        *scheduler::current());
}

/// An endpoint whose link prepares memory in so much virtual time that it pays after `uses`.
struct reuse_case {
    virtual_time world;

    void run(task<> (*body)(reuse_peer&), unsigned uses = 20) {
        world.run([](virtual_time& w, task<> (*run_body)(reuse_peer&), unsigned n) -> task<> {
            reuse_peer peer(w.on);
            watch_of(peer.self()).set_costs(costs);
            peer.to_peer().prepare_clock = &w.time;
            peer.to_peer().prepare_takes =
                duration(static_cast<duration::rep>(saved / detail::reuse_threshold::guessed_at * (n - 1)));
            co_await peer.open();
            co_await run_body(peer);
        }(world, body, uses));
    }
};

/// Takes the next message at the other end, and gives its credit back.
task<heard_message> take(reuse_peer& peer) {
    heard_message m = co_await peer.hear();
    peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(detail::message_cost(m.payload.size())));
    co_return m;
}

/// Sends `times`, each time something else, and checks what comes.
task<> send_and_check(reuse_peer& peer, std::span<std::byte> buffer, unsigned times) {
    unsigned wrong = 0;
    for (unsigned n = 0; n < times; ++n) {
        std::fill(buffer.begin(), buffer.end(), static_cast<std::byte>(n));
        auto sending = start(peer.self().send(buffer, n));
        const heard_message m = co_await take(peer);
        co_await sending;
        if (m.header.tag != n ||
            !std::equal(m.payload.begin(), m.payload.end(), buffer.begin(), buffer.end()))
            ++wrong;
        if (m.header.kind != detail::first_policy_kind) ++wrong;
    }
    CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("memory that is sent often enough is prepared, and then sent in place") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        const reuse_statistics& s = watch_of(peer.self()).statistics();
        auto first = filled(1000, 0);
        co_await send_and_check(peer, first, first_uses - 1);
        CHECK(s.registrations == 0);
        CHECK(peer.to_peer().in_place == 0);
        co_await send_and_check(peer, first, 10);
        CHECK(s.registrations == 1);
        CHECK(s.in_place == 10);
        CHECK(s.copies == first_uses - 1);
        CHECK(peer.to_peer().in_place == 10);
        CHECK(peer.to_peer().staged == first_uses - 1);
        // What preparing costs is known now.
        auto second = filled(900, 0);
        co_await send_and_check(peer, second, 19);
        CHECK(s.registrations == 1);
        co_await send_and_check(peer, second, 5);
        CHECK(s.registrations == 2);
        CHECK(s.in_place == 15);
        const metrics& counts = peer.self().counts();
        CHECK(counts.in_place_sent == 15);
        CHECK(counts.reuse_registrations == 2);
        CHECK(counts.eager_sent == first_uses - 1 + 19);
        CHECK(counts.messages_sent == counts.in_place_sent + counts.eager_sent);
    });
}

TEST_CASE("short messages, and those in several pieces, are not watched") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        auto tiny = filled(64, 0);
        co_await send_and_check(peer, tiny, 200);
        auto a = filled(600, 1);
        auto b = filled(300, 2);
        for (unsigned n = 0; n < 50; ++n) {
            co_await peer.self().send(gather(a, b), 1);
            const heard_message m = co_await take(peer);
            CHECK(m.payload.size() == 900);
        }
        CHECK(watch_of(peer.self()).statistics().lookups == 0);
        CHECK(peer.to_peer().in_place == 0);
        CHECK(peer.self().counts().eager_sent == 250);
    });
}

TEST_CASE("memory that was unmapped is forgotten, and prepared anew when it has been sent often again") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        const reuse_statistics& s = watch_of(peer.self()).statistics();
        auto buffer = filled(1000, 0);
        co_await send_and_check(peer, buffer, 100);
        REQUIRE(s.registrations == 1);
        const std::uint64_t in_place = s.in_place;
        peer.to_peer().unmapped(buffer);
        co_await send_and_check(peer, buffer, 19);
        CHECK(s.forgotten == 1);
        CHECK(s.in_place == in_place);
        CHECK(watch_of(peer.self()).table().ready_entries() == 0);
        co_await send_and_check(peer, buffer, 3);
        CHECK(s.registrations == 2);
        CHECK(s.in_place == in_place + 3);
    });
}

TEST_CASE("a longer message than was prepared is prepared, too, and forgets nothing") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        const reuse_statistics& s = watch_of(peer.self()).statistics();
        auto buffer = filled(1000, 0);
        co_await send_and_check(peer, std::span(buffer).first(600), 100);
        REQUIRE(s.registrations == 1);
        co_await send_and_check(peer, buffer, 2);
        CHECK(s.registrations == 2);
        CHECK(s.forgotten == 0);
        co_await send_and_check(peer, std::span(buffer).first(700), 2);
        CHECK(s.registrations == 2);
        CHECK(s.in_place == 100 - (first_uses - 1) + 4);
    });
}

TEST_CASE("memory that cannot be prepared is copied") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        const reuse_statistics& s = watch_of(peer.self()).statistics();
        peer.to_peer().refuses_to_prepare = true;
        auto buffer = filled(1000, 0);
        co_await send_and_check(peer, buffer, 4 * first_uses);
        CHECK(s.refused >= 2);
        CHECK(s.refused <= 5);
        CHECK(s.in_place == 0);
        CHECK(s.registrations == 0);
    });
}

TEST_CASE("counts age: what is sent now and then only is never prepared") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        const reuse_statistics& s = watch_of(peer.self()).statistics();
        std::vector<std::vector<std::byte>> buffers(300, filled(600, 0));
        auto seldom = filled(600, 0);
        std::vector<const std::byte*> prepared;
        // Once in 3000 sends: five or six times while each count is halved once.
        for (unsigned n = 0; n < 120'000; ++n) {
            if (n % 3000 == 0) {
                co_await peer.self().send(seldom, 1);
                co_await take(peer);
            }
            co_await peer.self().send(buffers[n % 10], 2);
            co_await take(peer);
        }
        CHECK(s.registrations == 10);
        CHECK_FALSE(peer.to_peer().is_prepared(seldom));
    });
}

TEST_CASE("a churn of thousands of buffers stops adding, and adding goes on when buffers are used again") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        detail::reuse_watch& watch = watch_of(peer.self());
        const reuse_statistics& s = watch.statistics();
        auto memory = filled(20'000 * 600, 1);
        const auto churn = [](reuse_peer& p, std::vector<std::byte>& all) -> task<> {
            for (std::size_t n = 0; n < 20'000; ++n) {
                co_await p.self().send(std::span(all).subspan(n * 600, 600), 1);
                co_await take(p);
            }
        };
        co_await churn(peer, memory);
        CHECK(s.stopped >= 1);
        CHECK(s.registrations == 0);
        CHECK(s.lookups < 20'000);
        auto buffer = filled(600, 0);
        for (unsigned n = 0; n < 10 * detail::usage_table::window && s.registrations == 0; ++n) {
            co_await peer.self().send(buffer, 1);
            co_await take(peer);
        }
        CHECK(s.resumed >= 1);
        CHECK(s.registrations == 1);
        CHECK(watch.table().adding());
        co_await send_and_check(peer, buffer, 10);
        CHECK(s.in_place >= 10);
    });
}

TEST_CASE(
    "spectrum: of a thousand buffers, the one numbered i used i times, only those used enough are prepared") {
    reuse_case().run(
        [](reuse_peer& peer) -> task<> {
            constexpr std::size_t bytes = 600;
            constexpr unsigned threshold = 250;
            const reuse_statistics& s = watch_of(peer.self()).statistics();
            // The first registration tells what it costs.
            auto other = filled(bytes, 0);
            co_await send_and_check(peer, other, first_uses);
            REQUIRE(s.registrations == 1);
            auto memory = filled(1001 * bytes, 7);
            const auto part = [&](std::size_t i) { return std::span(memory).subspan(i * bytes, bytes); };
            for (unsigned i = 1; i <= 1000; ++i) {
                for (unsigned n = 0; n < i; ++n) {
                    co_await peer.self().send(part(i), i);
                    co_await take(peer);
                }
            }
            unsigned prepared = 0;
            unsigned too_early = 0;
            for (unsigned i = 1; i <= 1000; ++i) {
                if (!peer.to_peer().is_prepared(part(i))) continue;
                ++prepared;
                if (i < threshold) ++too_early;
            }
            CHECK(too_early == 0);
            // Those that come just at the threshold may lose some uses to ageing and to entries that must go cold first.
            CHECK(prepared > 450);
            CHECK(s.registrations == prepared + 1);
        },
        250);
}

TEST_CASE("a send in place ends when its memory was read, and not before") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        auto buffer = filled(1000, 0);
        co_await send_and_check(peer, buffer, first_uses);
        peer.to_peer().held = true;
        std::fill(buffer.begin(), buffer.end(), std::byte{1});
        auto sending = start(peer.self().send(buffer, 1));
        for (int n = 0; n < 5; ++n) co_await yield();
        CHECK_FALSE(sending.done());
        std::fill(buffer.begin(), buffer.end(), std::byte{2});  // not read yet: this memory itself was posted
        peer.to_peer().held = false;
        const heard_message m = co_await take(peer);
        CHECK(m.payload == filled(1000, 2));
        co_await sending;
    });
}

TEST_CASE("a canceled send in place gives its memory back at once, and arrives") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        auto buffer = filled(1000, 0);
        co_await send_and_check(peer, buffer, first_uses);
        peer.to_peer().held = true;
        std::fill(buffer.begin(), buffer.end(), std::byte{1});
        local_stop_source stop;
        auto sending = start(as_result(with_stop(peer.self().send(buffer, 1), stop.get_token())));
        for (int n = 0; n < 3; ++n) co_await yield();
        REQUIRE_FALSE(sending.done());
        stop.request_stop();
        const auto ended = co_await sending;
        CHECK(ended.has_value());  // it was with the network already
        std::fill(buffer.begin(), buffer.end(), std::byte{9});
        peer.to_peer().held = false;
        const heard_message m = co_await take(peer);
        CHECK(m.payload == filled(1000, 1));
        co_await send_and_check(peer, buffer, 3);
    });
}

TEST_CASE("a send in place that finds no room waits, and counts as one use") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        const reuse_statistics& s = watch_of(peer.self()).statistics();
        auto buffer = filled(1000, 0);
        co_await send_and_check(peer, buffer, first_uses);
        peer.to_peer().held = true;
        peer.to_peer().room = 1;
        auto one = start(peer.self().send(buffer, 1));
        auto two = start(peer.self().send(buffer, 2));
        for (int n = 0; n < 3; ++n) co_await yield();
        CHECK(peer.self().counts().room_waits == 1);
        peer.to_peer().held = false;
        co_await one;
        co_await two;
        CHECK(s.in_place == 3);
        detail::usage_table::entry* e = watch_of(peer.self()).table().use(buffer);
        CHECK(e->uses == first_uses + 3);
    });
}

TEST_CASE("a link that goes down ends a send in place with the reason") {
    reuse_case().run([](reuse_peer& peer) -> task<> {
        auto buffer = filled(1000, 0);
        co_await send_and_check(peer, buffer, first_uses);
        peer.to_peer().held = true;
        auto sending = start(as_result(peer.self().send(buffer, 1)));
        co_await yield();
        peer.self().abort();
        const auto ended = co_await sending;
        CHECK(ended.error() == errc::closed);
    });
}

TEST_CASE("links of one kind on one scheduler know the same buffers") {
    virtual_time world;
    world.run([](virtual_time& w) -> task<> {
        reuse_peer one(w.on);
        reuse_peer two(w.on);
        watch_of(one.self()).set_costs(costs);
        CHECK(&watch_of(one.self()) == &watch_of(two.self()));
        co_await one.open();
        co_await two.open();
        auto buffer = filled(1000, 0);
        co_await send_and_check(one, buffer, first_uses / 2);
        co_await send_and_check(two, buffer, first_uses / 2);
        CHECK(watch_of(two.self()).statistics().registrations == 1);
        CHECK(two.to_peer().in_place == 1);
    }(world));
}

TEST_CASE("a list with it is another list, and chooses as with eager") {
    using with_eager = protocols<eager<>, segmented<>>;
    STATIC_REQUIRE(list::fingerprint != with_eager::fingerprint);
    STATIC_REQUIRE(protocol_policy<reuse_aware_eager<>>);
    const capabilities& link = loopback::static_capabilities;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, link.eager_bytes, link.eager_bytes + 1}) {
        CHECK(list::choose({bytes, false}, link) == with_eager::choose({bytes, false}, link));
        CHECK(list::choose({bytes, true}, link) == with_eager::choose({bytes, true}, link));
    }
    CHECK(reuse_aware_eager<up_to<500>>::longest(link) == 500);
}

TEST_CASE("over shared memory, where the copy is the transfer, nothing is watched") {
    using shm_connection = detail::connection<shm, list>;
    using eager_connection = detail::connection<shm, protocols<eager<>, segmented<>>>;
    using loopback_connection_of = detail::connection<loopback, list>;
    STATIC_REQUIRE(sizeof(shm_connection) == sizeof(eager_connection));
    STATIC_REQUIRE(sizeof(loopback_connection_of) > 0);
    STATIC_REQUIRE_FALSE(reuse_aware_eager<>::engine<shm_connection>::watches);
    STATIC_REQUIRE(reuse_aware_eager<>::engine<loopback_connection_of>::watches);
}

namespace {

/// Messages of many sizes both ways, from buffers that are used again, expected and unexpected, lent, canceled, synchronous.
template <class Transport>
task<> exchange(typename Transport::domain& here, typename Transport::domain& there, std::string address) {
    auto listening = co_await listen<Transport, list>(there, address);
    auto accepting = start(listening.accept());
    auto a = co_await connect<Transport, list>(here, listening.address());
    auto b = co_await accepting;
    watch_of(a).set_costs(costs);
    const std::size_t sizes[] = {0, 1, 8, 64, 127, 128, 129, 500, 1000, 2000, 4096, 4097, 100'000};
    std::vector<std::byte> from(100'000);
    std::vector<std::byte> into(100'001);
    unsigned wrong = 0;
    for (unsigned round = 0; round < 60; ++round) {
        for (const std::size_t bytes : sizes) {
            const auto value = static_cast<std::byte>(round + bytes);
            const auto out = std::span(from).first(bytes);
            std::fill(out.begin(), out.end(), value);
            received got;
            if (round % 3 == 0) {
                auto receiving = start(b.recv(into, 3));
                co_await a.send(out, 3);
                got = co_await receiving;
            } else if (round % 3 == 1) {
                auto sending = start(a.send(out, 3));
                co_await b.probe(3);
                got = co_await b.recv(into, 3);
                co_await sending;
            } else {
                auto sending = start(a.ssend(out, 3));
                got = co_await b.recv(into, 3);
                co_await sending;
            }
            const bool same = std::all_of(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got.bytes),
                                          [&](std::byte x) { return x == value; });
            if (got.bytes != bytes || !same) ++wrong;
        }
        auto sending = start(a.send(std::span(from).first(1000), 4));
        const message lent = co_await b.recv_lent(4);
        co_await sending;
        if (lent.size() != 1000 || !std::equal(lent.bytes().begin(), lent.bytes().end(), from.begin()))
            ++wrong;
        // And back.
        auto answering = start(b.send(std::span(into).first(1500), 5));
        const received got = co_await a.recv(from, 5);
        co_await answering;
        if (got.bytes != 1500 || !std::equal(from.begin(), from.begin() + 1500, into.begin())) ++wrong;
    }
    CHECK(wrong == 0);
    if constexpr (reuse_aware_eager<>::engine<std::remove_cvref_t<decltype(a.connection())>>::watches) {
        CHECK(a.counts().in_place_sent > 50);
        CHECK(b.counts().in_place_sent > 10);
        CHECK(a.counts().reuse_registrations > 0);
    } else {
        CHECK(a.counts().in_place_sent == 0);
    }
    co_await a.close();
}

template <class Transport>
void exchange_over(const std::string& address) {
    scheduler on{impatient{}};
    typename Transport::domain here(on);
    typename Transport::domain there(on);
    on.run(exchange<Transport>(here, there, address));
}

}  // namespace

TEST_CASE("messages of every size arrive, in memory") { exchange_over<loopback>("reuse-aware-eager"); }
TEST_CASE("messages of every size arrive, over shared memory") {
    exchange_over<shm>("reuse-aware-eager-" + std::to_string(::getpid()));
}
#if RDMACORO_WITH_TCP
TEST_CASE("messages of every size arrive, over tcp") { exchange_over<tcp>("127.0.0.1:0"); }

TEST_CASE("many sends in place at a time arrive in order, over tcp") {
    scheduler on{impatient{}};
    tcp::domain here(on);
    tcp::domain there(on);
    on.run([](tcp::domain& near, tcp::domain& far) -> task<> {
        auto listening = co_await listen<tcp, list>(far, "127.0.0.1:0");
        auto accepting = start(listening.accept());
        auto a = co_await connect<tcp, list>(near, listening.address());
        auto b = co_await accepting;
        watch_of(a).set_costs(costs);
        constexpr unsigned lanes = 16;
        constexpr unsigned rounds = 400;
        std::vector<std::vector<std::byte>> buffers(lanes, std::vector<std::byte>(700));
        const auto sender = [](endpoint<tcp, list>& via, std::vector<std::byte>& buffer,
                               unsigned lane) -> task<> {
            for (unsigned n = 0; n < rounds; ++n) {
                std::fill(buffer.begin(), buffer.end(), static_cast<std::byte>(n + lane));
                co_await via.send(buffer, lane);
            }
        };
        task_group group;
        for (unsigned lane = 0; lane < lanes; ++lane)
            group.spawn(sender, std::ref(a), std::ref(buffers[lane]), lane);
        std::vector<unsigned> next(lanes);
        std::vector<std::byte> into(700);
        unsigned wrong = 0;
        for (unsigned n = 0; n < lanes * rounds; ++n) {
            const received got = co_await b.recv(into, any_tag);
            const auto value = static_cast<std::byte>(next[got.tag]++ + got.tag);
            if (!std::all_of(into.begin(), into.end(), [&](std::byte x) { return x == value; })) ++wrong;
        }
        CHECK(wrong == 0);
        co_await group.join();
        CHECK(a.counts().in_place_sent > lanes * rounds / 2);
    }(here, there));
}
#endif

TEST_CASE("in steady state a watched send allocates nothing") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    reuse_case().run([](reuse_peer& peer) -> task<> {
        std::vector<std::vector<std::byte>> buffers(20, filled(600, 0));
        const auto lap = [](reuse_peer& p, std::vector<std::vector<std::byte>>& all) -> task<> {
            for (auto& buffer : all) {
                co_await p.self().send(buffer, 1);
                co_await take(p);
            }
        };
        for (unsigned n = 0; n < 40; ++n) co_await lap(peer, buffers);
        detail::reuse_watch& watch = watch_of(peer.self());
        REQUIRE(watch.table().ready_entries() == 20);
        const std::size_t before = allocations();
        for (unsigned n = 0; n < 10'000; ++n) {
            const auto choice = watch.look_at(peer.self().connection().link(), buffers[n % 20]);
            if (!choice.in_place) FAIL("not in place");
        }
        CHECK(allocations() == before);
    });
}

}  // namespace test_protocol_reuse_aware_eager
