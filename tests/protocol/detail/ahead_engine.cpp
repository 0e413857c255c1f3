#include <rdmacoro/protocol/detail/ahead_engine.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <deque>
#include <initializer_list>
#include <optional>

namespace test_protocol_detail_ahead_engine {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

using word = detail::ahead_word;

std::vector<std::byte> filled(std::size_t bytes, int value) {
    return std::vector<std::byte>(bytes, static_cast<std::byte>(value));
}
std::vector<std::byte> numbers(std::initializer_list<std::uint64_t> all) {
    std::vector<std::byte> made(all.size() * 8);
    std::size_t at = 0;
    for (const std::uint64_t n : all) detail::store_number(made.data() + 8 * at++, n);
    return made;
}
mailbox_options little() { return {.unexpected_bytes = 1}; }
task<> turns(int count) {
    for (int n = 0; n < count; ++n) co_await yield();
}
bool is(const heard_message& m, wire_kind kind) { return m.header.kind == static_cast<std::uint8_t>(kind); }
bool is(const heard_message& m, word w) {
    return is(m, wire_kind::ahead) && m.header.flags == static_cast<std::uint8_t>(w);
}
void say(scripted_peer& peer, word w, tag_type tag = 0, std::span<const std::byte> payload = {}) {
    peer.say(wire_kind::ahead, tag, payload, 0, static_cast<std::uint8_t>(w));
}
constexpr std::uint64_t exact = ~std::uint64_t{0};

template <class Kind>
task<> expect(scripted_peer& peer, Kind kind) {
    const heard_message m = co_await peer.hear();
    CHECK(is(m, kind));
}

void with_peer(task<> (*body)(scripted_peer&)) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(scripted_peer&)) -> task<> {
        scripted_peer peer(on, little());
        co_await peer.open();
        co_await run(peer);
    }(world.on, body));
}

/// Sends of tags 0, 1, 2, ... of which only as many go as there is credit for.
using sending = decltype(start(std::declval<scripted_peer::endpoint_type&>().send(const_buffers{})));
task<> use_up(scripted_peer& peer, std::deque<sending>& sends, std::span<const std::byte> data) {
    while (peer.self().counts().credit_waits == 0) sends.emplace_back(peer.self().send(data, sends.size()));
    heard_message m = co_await peer.hear();
    while (is(m, wire_kind::eager)) m = co_await peer.hear();
    CHECK(is(m, wire_kind::starved));
    CHECK(peer.heard().empty());
}

}  // namespace

// ---- the sender

TEST_CASE("a sender offers the first queued send that the first possible receive wants, and sends it when "
          "accepted") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = filled(1000, 1);
        std::deque<sending> sends;
        co_await use_up(peer, sends, data);
        const tag_type last = sends.size() - 1;  // the one that waits
        const auto other = filled(20, 2);
        auto second = start(peer.self().send(other, last + 1));
        auto third = start(peer.self().send(data, last + 1));
        say(peer, word::want, 0, numbers({77, exact, last + 1, exact, 0, 0}));
        const heard_message offer = co_await peer.hear();
        CHECK(is(offer, word::offer));
        CHECK(offer.header.tag == last + 1);
        CHECK(offer.payload == numbers({1, 20}));
        // It keeps its place: credit for all does not let the others pass it, nor later ones.
        peer.say(wire_kind::credit, 0, {}, 2000);
        co_await turns(3);
        CHECK(peer.heard().empty());
        say(peer, word::accept);
        const heard_message piece = co_await peer.hear();
        CHECK(is(piece, word::piece));
        CHECK(piece.payload == other);
        co_await second;
        heard_message m = co_await peer.hear();
        CHECK(is(m, wire_kind::eager));
        CHECK(m.header.tag == last);
        m = co_await peer.hear();
        CHECK(m.header.tag == last + 1);
        CHECK(m.payload == data);
        co_await third;
        for (sending& s : sends) co_await s;
        CHECK(peer.self().counts().sent_ahead == 1);
        // Nothing waits any more.
        say(peer, word::want, 0, numbers({0, 0}));
        m = co_await peer.hear();
        CHECK(is(m, word::none));
        CHECK(m.header.tag == 0);
    });
}

TEST_CASE(
    "a sender that has nothing that is wanted says so, and says starved again for sends that come later") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = filled(1000, 1);
        std::deque<sending> sends;
        co_await use_up(peer, sends, data);
        sends.emplace_back(peer.self().send(data, 5000));
        co_await turns(3);
        CHECK(peer.heard().empty());  // it has said so already
        say(peer, word::want, 0, numbers({7000, exact}));
        const heard_message none = co_await peer.hear();
        CHECK(is(none, word::none));
        CHECK(none.header.tag == 1);
        auto later = start(peer.self().send(data, 7000));
        co_await expect(peer, wire_kind::starved);
        say(peer, word::want, 0, numbers({7000, exact}));
        co_await expect(peer, word::offer);
        say(peer, word::decline);
        co_await turns(3);
        CHECK_FALSE(later.done());
        // In their order once credit comes.
        peer.say(wire_kind::credit, 0, {}, 2000);
        co_await expect(peer, wire_kind::starved);  // nothing has become of it
        heard_message m = co_await peer.hear();
        CHECK(m.header.tag < 5000);
        m = co_await peer.hear();
        CHECK(m.header.tag == 5000);
        m = co_await peer.hear();
        CHECK(m.header.tag == 7000);
        co_await later;
        for (sending& s : sends) co_await s;
    });
}

TEST_CASE("a send that is canceled while it is offered, or sent ahead, says so to the peer that accepts it") {
    with_peer([](scripted_peer& peer) -> task<> {
        const auto data = filled(1000, 1);
        std::deque<sending> sends;
        co_await use_up(peer, sends, data);
        local_stop_source stop;
        auto doomed = start(as_result(with_stop(peer.self().send(data, 7000), stop.get_token())));
        say(peer, word::want, 0, numbers({7000, exact}));
        co_await expect(peer, word::offer);
        stop.request_stop();
        const auto ended = co_await doomed;
        CHECK(ended.error() == errc::canceled);
        co_await expect(peer, wire_kind::starved);  // the others wait as before
        say(peer, word::accept);
        co_await expect(peer, word::withdrawn);
        // The next question is answered as ever.
        say(peer, word::want, 0, numbers({7000, exact}));
        co_await expect(peer, word::none);
        // In the middle of its pieces.
        local_stop_source again;
        peer.wire().offered.segment_bytes = 400;
        auto second = start(as_result(with_stop(peer.self().send(data, 8000), again.get_token())));
        co_await expect(peer, wire_kind::starved);
        say(peer, word::want, 0, numbers({8000, exact}));
        co_await expect(peer, word::offer);
        peer.to_peer().room = 1;
        say(peer, word::accept);
        heard_message m = co_await peer.hear();
        CHECK(m.payload.size() == 400);
        peer.to_peer().room = 0;
        co_await turns(3);
        again.request_stop();
        peer.to_peer().room = loopback_lane::unlimited;
        const auto left = co_await second;
        CHECK(left.error() == errc::canceled);
        m = co_await peer.hear();
        while (is(m, word::piece) || is(m, wire_kind::starved)) m = co_await peer.hear();
        CHECK(is(m, word::withdrawn));
        peer.self().abort();
        for (sending& s : sends) static_cast<void>(co_await as_result(s));
    });
}

// ---- the receiver

TEST_CASE("a receiver whose peer is starved asks for its receives, oldest first, and takes what is offered "
          "straight in") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte one[8], other[8], masked[40];
        auto first = start(peer.self().recv(one, 1));
        auto second = start(peer.self().recv(other, 2));
        peer.say(wire_kind::starved);
        heard_message want = co_await peer.hear();
        CHECK(is(want, word::want));
        CHECK(want.payload == numbers({1, exact, 2, exact}));
        auto third = start(peer.self().recv(masked, tag_match(0x10, 0xf0)));
        say(peer, word::none, 1);
        want = co_await peer.hear();  // what was posted since
        CHECK(want.payload == numbers({0x10, 0xf0}));
        say(peer, word::offer, 0x15, numbers({0, 40}));
        co_await expect(peer, word::accept);
        say(peer, word::piece, 0, filled(30, 3));
        say(peer, word::piece, 0, filled(10, 3));
        const received got = co_await third;
        CHECK(got.tag == 0x15);
        CHECK(got.bytes == 40);
        CHECK(std::equal(masked, masked + 40, filled(40, 3).begin()));
        CHECK_FALSE(first.done());
        CHECK(peer.self().connection().mailbox().store().live() == 0);
        // More has come to wait there: all are asked for anew.
        peer.say(wire_kind::starved);
        want = co_await peer.hear();
        CHECK(want.payload == numbers({1, exact, 2, exact}));
        say(peer, word::offer, 2, numbers({1, 0}));
        co_await expect(peer, word::accept);
        say(peer, word::piece);
        co_await second;
        peer.self().abort();
        static_cast<void>(co_await as_result(first));
    });
}

TEST_CASE("an offer is declined when its receive is gone, or an older one wants the message") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[8];
        local_stop_source stop;
        auto leaving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        peer.say(wire_kind::starved);
        co_await expect(peer, word::want);
        stop.request_stop();
        static_cast<void>(co_await leaving);
        auto any = start(peer.self().recv(into, any_tag));
        say(peer, word::offer, 1, numbers({0, 8}));
        co_await expect(peer, word::decline);
        // The other receive may have to take an older message: it is asked for.
        const heard_message want = co_await peer.hear();
        CHECK(want.payload == numbers({0, 0}));
        say(peer, word::offer, 9, numbers({0, 8}));
        co_await expect(peer, word::accept);
        say(peer, word::piece, 0, filled(8, 1));
        const received got = co_await any;
        CHECK(got.tag == 9);
    });
}

TEST_CASE(
    "a receive that is canceled, too short, or whose sender gives up, ends as with every other message") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[8];
        auto too_short = start(as_result(peer.self().recv(into, 1)));
        peer.say(wire_kind::starved);
        co_await expect(peer, word::want);
        say(peer, word::offer, 1, numbers({0, 9}));
        co_await expect(peer, word::accept);
        say(peer, word::piece, 0, filled(9, 1));
        const auto cut = co_await too_short;
        CHECK(cut.error() == errc::truncated);
        CHECK(cut.info() == 9);
        local_stop_source stop;
        auto leaving = start(as_result(with_stop(peer.self().recv(into, 2), stop.get_token())));
        co_await expect(peer, word::want);
        say(peer, word::offer, 2, numbers({0, 8}));
        co_await expect(peer, word::accept);
        say(peer, word::piece, 0, filled(4, 1));
        co_await turns(2);
        stop.request_stop();
        const auto canceled = co_await leaving;
        CHECK(canceled.error() == errc::canceled);
        std::fill(into, into + 8, std::byte{9});
        say(peer, word::piece, 0, filled(4, 1));
        co_await turns(2);
        CHECK(into[7] == std::byte{9});
        auto given_up = start(as_result(peer.self().recv(into, 3)));
        co_await expect(peer, word::want);
        say(peer, word::offer, 3, numbers({0, 8}));
        co_await expect(peer, word::accept);
        say(peer, word::withdrawn);
        const auto failed = co_await given_up;
        CHECK(failed.error() == errc::peer_canceled);
    });
}

TEST_CASE("words that find no room are said when there is some") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[8];
        auto receiving = start(peer.self().recv(into, 1));
        peer.to_peer().room = 0;
        peer.say(wire_kind::starved);
        co_await turns(3);
        CHECK(peer.heard().empty());
        peer.to_peer().room = loopback_lane::unlimited;
        co_await expect(peer, word::want);
        peer.to_peer().room = 0;
        say(peer, word::offer, 1, numbers({0, 8}));
        co_await turns(3);
        CHECK(peer.heard().empty());
        peer.to_peer().room = loopback_lane::unlimited;
        co_await expect(peer, word::accept);
        say(peer, word::piece, 0, filled(8, 1));
        co_await receiving;
    });
}

// ---- much that waits

TEST_CASE(
    "a long message ahead of its turn goes 64 KiB at a time, and as far as it has come it can be canceled") {
    scheduler on{idle::yield{}};  // a clock that moves on
    on.run([](scheduler& own) -> task<> {
        scripted_peer peer(own, little());
        co_await peer.open();
        const auto data = filled(1000, 1);
        const auto longer = filled(1_MiB, 2);
        std::deque<sending> sends;
        co_await use_up(peer, sends, data);
        peer.wire().offered.segment_bytes = 16_KiB;
        for (const bool canceled : {false, true}) {
            local_stop_source stop;
            auto ahead = start(as_result(with_stop(peer.self().send(longer, 5000), stop.get_token())));
            say(peer, word::want, 0, numbers({5000, exact}));
            heard_message m = co_await peer.hear();
            while (is(m, wire_kind::starved)) m = co_await peer.hear();
            CHECK(is(m, word::offer));
            say(peer, word::accept);
            std::size_t most = 0;
            std::size_t came = 0;
            for (int more = 0; more < 1'000'000 && came < longer.size(); ++more) {
                std::size_t now = 0;
                for (; !peer.heard().empty(); peer.heard().pop_front()) now += peer.heard()[0].payload.size();
                most = std::max(most, now);
                came += now;
                if (canceled && came != 0) break;
                co_await yield();
            }
            CHECK(most <= 128_KiB);  // a call of the timer, and one of the link
            if (canceled) stop.request_stop();
            const auto ended = co_await ahead;
            CHECK(ended.has_value() == !canceled);
            if (!canceled) continue;
            m = co_await peer.hear();
            while (!is(m, word::withdrawn)) m = co_await peer.hear();
            co_await turns(5);
            for (const heard_message& later : peer.heard()) CHECK_FALSE(is(later, word::piece));
        }
        peer.self().abort();
        for (sending& s : sends) static_cast<void>(co_await as_result(s));
    }(on));
}

TEST_CASE("a long piece of a message ahead of its turn is the last one of its turn") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::vector<std::byte> into(100_KiB);
        auto receiving = start(peer.self().recv(into, 1));
        peer.say(wire_kind::starved);
        co_await expect(peer, word::want);
        say(peer, word::offer, 1, numbers({0, 16_KiB + 100}));
        co_await expect(peer, word::accept);
        say(peer, word::piece, 0, filled(16_KiB, 1));
        say(peer, word::piece, 0, filled(100, 1));
        co_await receiving;
        CHECK(peer.from_peer().paused == 1);
    });
}

TEST_CASE("a question to a sender of which thousands of sends wait is the last one of its turn") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::deque<sending> sends;
        co_await use_up(peer, sends, filled(1000, 1));
        say(peer, word::want, 0, numbers({~tag_type{0}, exact}));
        co_await expect(peer, word::none);
        CHECK(peer.from_peer().paused == 0);
        const std::size_t before = sends.size();
        while (sends.size() < before + 3000)
            sends.emplace_back(peer.self().send(const_buffers{}, sends.size()));
        say(peer, word::want, 0, numbers({~tag_type{0}, exact}));
        heard_message m = co_await peer.hear();
        while (is(m, wire_kind::starved)) m = co_await peer.hear();
        CHECK(is(m, word::none));
        CHECK(peer.from_peer().paused == 1);
        peer.self().abort();
        for (sending& s : sends) static_cast<void>(co_await as_result(s));
    });
}

TEST_CASE("a word to a receiver at which thousands of receives wait is the last one of its turn") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[8];
        using receiving = decltype(start(peer.self().recv(into, 1)));
        std::deque<receiving> receives;
        const auto ask_and_answer = [&](std::uint64_t pauses) {
            CHECK(peer.from_peer().paused == pauses);
            say(peer, word::none, 1);
        };
        while (receives.size() < 100) receives.emplace_back(peer.self().recv(into, receives.size()));
        peer.say(wire_kind::starved);
        co_await expect(peer, word::want);
        ask_and_answer(0);
        co_await expect(peer, word::want);
        CHECK(peer.from_peer().paused == 0);
        while (receives.size() < 3000) receives.emplace_back(peer.self().recv(into, receives.size()));
        ask_and_answer(0);
        heard_message want = co_await peer.hear();
        CHECK(is(want, word::want));
        CHECK(want.payload.size() == 16 * detail::ahead_engine::most_wants);
        CHECK(want.payload[0] == std::byte{32});  // after those that were asked for
        ask_and_answer(1);
        co_await expect(peer, word::want);
        say(peer, word::offer, 48, numbers({0, 8}));
        co_await expect(peer, word::accept);
        CHECK(peer.from_peer().paused == 3);
        say(peer, word::piece, 0, filled(8, 1));
        co_await receives[48];
        peer.self().abort();
        for (std::size_t n = 0; n < receives.size(); ++n) {
            if (n != 48) static_cast<void>(co_await as_result(receives[n]));
        }
    });
}

TEST_CASE("a question that found no room asks for the receives that wait when it goes") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::byte into[8];
        local_stop_source stop;
        auto leaving = start(as_result(with_stop(peer.self().recv(into, 1), stop.get_token())));
        peer.to_peer().room = 0;
        peer.say(wire_kind::starved);
        co_await turns(3);
        stop.request_stop();
        static_cast<void>(co_await leaving);
        auto other = start(peer.self().recv(into, 2));
        peer.to_peer().room = loopback_lane::unlimited;
        const heard_message want = co_await peer.hear();
        CHECK(want.payload == numbers({2, exact}));
        say(peer, word::offer, 2, numbers({0, 0}));
        co_await expect(peer, word::accept);
        say(peer, word::piece);
        co_await other;
    });
}

// ---- a peer that breaks the rules

TEST_CASE("words of a message ahead of its turn that make no sense end the link with protocol_violation") {
    struct forbidden {
        const char* what;
        void (*say_it)(scripted_peer&);
    };
    const forbidden all[] = {
        {"an unknown word", [](scripted_peer& p) { say(p, static_cast<word>(7)); }},
        {"none, and nobody asked", [](scripted_peer& p) { say(p, word::none); }},
        {"an offer, and nobody asked", [](scripted_peer& p) { say(p, word::offer, 1, numbers({0, 8})); }},
        {"accept, and nothing was offered", [](scripted_peer& p) { say(p, word::accept); }},
        {"decline, and nothing was offered", [](scripted_peer& p) { say(p, word::decline); }},
        {"a piece of nothing", [](scripted_peer& p) { say(p, word::piece, 0, filled(8, 1)); }},
        {"a piece of nothing, in parts",
         [](scripted_peer& p) {
             p.from_peer().announces_above = 0;
             say(p, word::piece, 0, filled(8, 1));
         }},
        {"withdrawn, and nothing was accepted", [](scripted_peer& p) { say(p, word::withdrawn); }},
        {"want of nothing", [](scripted_peer& p) { say(p, word::want); }},
        {"want of too many",
         [](scripted_peer& p) {
             say(p, word::want, 0, filled(16 * (detail::ahead_engine::most_wants + 1), 0));
         }},
        {"want of a half", [](scripted_peer& p) { say(p, word::want, 0, filled(24, 0)); }},
        {"none with a payload",
         [](scripted_peer& p) {
             p.say(wire_kind::starved);
             say(p, word::none, 0, filled(1, 0));
         }},
        {"none before the question has gone",
         [](scripted_peer& p) {
             p.to_peer().room = 0;
             p.say(wire_kind::starved);
             say(p, word::none, 1);
         }},
        {"an offer before the question has gone",
         [](scripted_peer& p) {
             p.to_peer().room = 0;
             p.say(wire_kind::starved);
             say(p, word::offer, 99, numbers({0, 8}));
         }},
        {"an offer for a receive that was not asked for",
         [](scripted_peer& p) {
             p.say(wire_kind::starved);
             say(p, word::offer, 99, numbers({1, 8}));
         }},
        {"a piece that is too long",
         [](scripted_peer& p) {
             p.say(wire_kind::starved);
             say(p, word::offer, 99, numbers({0, 8}));
             say(p, word::piece, 0, filled(9, 0));
         }},
        {"an empty piece",
         [](scripted_peer& p) {
             p.say(wire_kind::starved);
             say(p, word::offer, 99, numbers({0, 8}));
             say(p, word::piece);
         }},
    };
    for (const forbidden& f : all) {
        CAPTURE(f.what);
        virtual_time world;
        world.run([](scheduler& on, const forbidden& what) -> task<> {
            scripted_peer peer(on, little());
            co_await peer.open();
            auto waits = start(peer.self().recv_lent(99));
            what.say_it(peer);
            const auto later = co_await as_result(waits);
            CHECK(later.error() == errc::protocol_violation);
            CHECK_FALSE(peer.self().is_open());
            CHECK(peer.self().connection().mailbox().store().live() == 0);
        }(world.on, f));
    }
}

}  // namespace test_protocol_detail_ahead_engine
