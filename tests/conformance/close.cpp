#include "conformance.hpp"

#include "support/seldom.hpp"

#include <deque>
#include <optional>

namespace test_conformance_close {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

// ---- close drains

task<> close_drains(two_domains& w) {
    auto p = co_await w.connected({}, least_memory());
    // Everything that was sent before arrives: whether it went at once, waits for credit, room, or its receiver.
    const auto small = pattern(700, 1);
    const auto large = pattern(std::size_t{3} << 20, 2);
    using send_type = started<any_operation<void>>;
    std::deque<send_type> sends;
    for (tag_type n = 0; n < 1000; ++n) sends.emplace_back(p.a.send(small, n));
    sends.emplace_back(p.a.send(large, 1000));
    sends.emplace_back(p.a.ssend(small, 1001));
    auto closing = start(p.a.close());
    const auto late = co_await as_result(p.a.send(small, 1002));
    CHECK(late.error() == errc::closed);
    std::vector<std::byte> into(large.size());
    for (tag_type n = 0; n < 1002; ++n) {
        const received got = co_await p.b.recv(into);
        if (got.tag != n) FAIL_CHECK("message " << n << " has tag " << got.tag);
        CHECK(is_pattern(std::span(into).first(got.bytes), n == 1000 ? 2 : 1));
    }
    const auto after = co_await as_result(p.b.recv(into));
    CHECK(after.error() == errc::closed);
    co_await closing;
    for (auto& s : sends) co_await s;
    CHECK_FALSE(p.a.is_open());
    const auto closed = co_await as_result(p.a.recv(into));
    CHECK(closed.error() == errc::closed);
    const auto back = co_await as_result(p.b.send(small));
    CHECK(back.error() == errc::closed);
}
CONFORMANCE_CASE("close drains: all that was sent before it arrives, then receives end closed",
                 every_transport) {
    conform(over, close_drains);
}

task<> kept_messages_survive(two_domains& w) {
    // This list sends long messages eagerly, too: all are stored by the receiver before it receives them.
    auto [a, b] = co_await w.connected_with(list_name::eager_and_pieces);
    const auto data = pattern(100000, 1);
    for (tag_type tag = 0; tag < 10; ++tag) co_await a.send(data, tag);
    co_await a.close();
    std::vector<std::byte> into(100000);
    std::byte nothing[1];
    const auto none = co_await as_result(b.recv(nothing, 99));
    CHECK(none.error() == errc::closed);
    const auto probe = co_await as_result(b.probe(99));
    CHECK(probe.error() == errc::closed);
    for (tag_type tag = 10; tag-- > 0;) {
        co_await b.probe(tag);
        const received got = co_await b.recv(into, tag);
        CHECK(got.bytes == data.size());
        CHECK(same_bytes(into, data));
    }
    const auto lent = co_await as_result(b.recv_lent());
    CHECK(lent.error() == errc::closed);
}
CONFORMANCE_CASE("messages that wait can be received after their sender has closed", every_transport) {
    conform(over, kept_messages_survive);
}

// ---- all orders

task<> both_close(two_domains& w) {
    for (int head_start = 0; head_start < 6; ++head_start) {
        auto p = co_await w.connected();
        co_await p.a.send({}, 1);
        co_await p.b.send({}, 2);
        auto first = start(p.a.close());
        co_await turns(head_start);
        auto second = start(p.b.close());
        co_await first;
        co_await second;
        CHECK_FALSE(p.a.is_open());
        CHECK_FALSE(p.b.is_open());
        // The last words of each are there.
        co_await p.b.recv({}, 1);
        co_await p.a.recv({}, 2);
        // Closing again is no error.
        co_await p.a.close();
        co_await p.b.close();
    }
}
CONFORMANCE_CASE("both ends may close in any order, and again", every_transport) {
    conform(over, both_close);
}

task<> aborts(two_domains& w) {
    for (const bool abort_a : {true, false}) {
        auto p = co_await w.connected();
        auto& left = abort_a ? p.a : p.b;
        auto& stays = abort_a ? p.b : p.a;
        std::byte into[4];
        auto receiving = start(stays.recv(into));
        left.abort();
        const auto gone = co_await as_result(receiving);
        CHECK(gone.error() == errc::peer_lost);
        const auto own = co_await as_result(left.recv(into));
        CHECK(own.error() == errc::closed);
        co_await stays.close();
        const auto send = co_await as_result(stays.send(into));
        CHECK(send.error());
    }
}
CONFORMANCE_CASE("an end that is aborted ends the other with peer_lost", every_transport) {
    conform(over, aborts);
}

// ---- pending operations

/// One of everything that can be pending on an endpoint. Nothing that is sent meets a receive, so all of it stays
/// pending, except for sends that the peer's budget pays for.
struct everything {
    std::vector<std::byte> large = pattern(std::size_t{2} << 20, 1);
    std::vector<std::byte> into_exact = std::vector<std::byte>(8);
    std::vector<std::byte> into_wildcard = std::vector<std::byte>(8);
    started<any_operation<received>> exact;
    started<any_operation<received>> wildcard;
    started<any_operation<message>> lent;
    started<any_operation<received>> probe;
    started<any_operation<void>> synchronous;
    started<any_operation<void>> unmatched;
    std::deque<started<any_operation<void>>> waiting;

    explicit everything(peer& at)
        : exact(at.recv(into_exact, 11)),
          wildcard(at.recv(into_wildcard, tag_match(16, 16))),
          lent(at.recv_lent(12)),
          probe(at.probe(13)),
          synchronous(at.ssend(std::span(large).first(10), 1)),
          unmatched(at.send(large, 2)) {
        for (int n = 0; n < 1000; ++n) waiting.emplace_back(at.send(std::span(large).first(1000), 3));
    }

    /// Every one ends with an error, and which.
    task<> end_with(errc expected, errc or_else) {
        const auto check = [&](std::error_code code) {
            CAPTURE(code.message());
            CHECK((code == expected || code == or_else));
        };
        const auto a = co_await as_result(exact);
        check(a.error());
        const auto b = co_await as_result(wildcard);
        check(b.error());
        const auto c = co_await as_result(lent);
        check(c.error());
        const auto d = co_await as_result(probe);
        check(d.error());
        const auto e = co_await as_result(synchronous);
        check(e.error());
        const auto f = co_await as_result(unmatched);
        check(f.error());
        std::size_t ended = 0;
        for (auto& s : waiting) {
            const auto g = co_await as_result(s);
            if (!g) {
                check(g.error());
                ++ended;
            }
        }
        CHECK(ended > 0);
    }
};

task<> destroyed_with_all_pending(two_domains& w) {
    for (const int later : {0, 1, 20}) {
        auto p = co_await w.connected(least_memory(), least_memory());
        everything mine(p.a);
        everything theirs(p.b);
        co_await turns(later);
        std::optional<peer> a(std::move(p.a));
        a.reset();
        co_await mine.end_with(errc::closed, errc::closed);
        co_await theirs.end_with(errc::peer_lost, errc::closed);
    }
}
CONFORMANCE_CASE("destroying an endpoint ends everything pending on it, and on its peer's", every_transport) {
    conform(over, destroyed_with_all_pending);
}

task<> aborted_with_all_pending(two_domains& w) {
    auto p = co_await w.connected(least_memory(), least_memory());
    everything mine(p.a);
    everything theirs(p.b);
    auto closing = start(p.b.close());
    co_await turns(10);
    p.a.abort();
    co_await mine.end_with(errc::closed, errc::closed);
    co_await theirs.end_with(errc::peer_lost, errc::closed);
    co_await closing;
}
CONFORMANCE_CASE("aborting a link ends everything pending, a close included", every_transport) {
    conform(over, aborted_with_all_pending);
}

task<> unread_at_the_end(two_domains& w) {
    auto p = co_await w.connected();
    const auto data = pattern(1000, 1);
    for (tag_type tag = 0; tag < 50; ++tag) co_await p.a.send(data, tag);
    const auto seen = co_await p.b.probe(49);
    CHECK(seen.bytes == data.size());
    // These the receiver may not even have taken from its device when endpoints and domains are destroyed, right after this.
    for (tag_type tag = 50; tag < 100; ++tag) co_await p.a.send(data, tag);
}
CONFORMANCE_CASE("endpoints and domains may be destroyed with messages that nobody has received",
                 every_transport) {
    conform(over, unread_at_the_end);
}

task<> half_filled(two_domains& w) {
    // The peer dies while a message is on its way into a receive's memory: after each number of turns, until it arrives whole.
    int half = 0;
    int whole = 0;
    for (int stage = 0; stage < 30 || whole == 0; stage += stage < 30 ? 1 : stage / 8) {
        CAPTURE(stage);
        auto p = co_await w.connected();
        const auto data = pattern(std::size_t{w.is().slowness == 1 ? 6u : 2u} << 20, 1);
        std::vector<std::byte> into(data.size());
        auto receiving = start(p.b.recv(into, 1));
        auto borrowing = start(p.b.recv_lent(2));
        auto sending = start(p.a.send(data, 1));
        auto second = start(p.a.send(data, 2));
        co_await turns(stage);
        std::optional<peer> a(std::move(p.a));
        a.reset();
        const auto got = co_await as_result(receiving);
        if (got) {
            ++whole;
            CHECK(same_bytes(into, data));
        } else {
            CHECK(got.error() == errc::peer_lost);
            if (!all_are(std::byte{0}, into)) ++half;
        }
        const auto lent = co_await as_result(borrowing);
        if (!lent) CHECK(lent.error() == errc::peer_lost);
        const auto sent = co_await as_result(sending);
        if (!sent) CHECK(sent.error() == errc::closed);
        const auto sent_too = co_await as_result(second);
        if (!sent_too) CHECK(sent_too.error() == errc::closed);
        CHECK(p.b.connection().mailbox().store().live() <= (lent ? 1 : 0));
    }
    CAPTURE(half, whole);
    if (w.is().timing_decides || w.is().lingers) {
        if (w.is().fills_in_turns && !w.is().lingers)
            seldom("a receive was half filled when its peer died", w.is().name, half > 0);
    } else {
        CHECK((half > 0) == w.is().fills_in_turns);
    }
}
CONFORMANCE_CASE("a receive that is half filled when the peer dies ends with peer_lost", every_transport) {
    conform(over, half_filled);
}

/// `closes`: this side has begun to close before the peer dies.
task<> dies_in_the_middle(two_domains& w, bool closes) {
    const std::error_code why = make_error_code(closes ? errc::closed : errc::peer_lost);
    auto p = co_await w.connected();
    const auto data = pattern(std::size_t{w.is().slowness == 1 ? 6u : 2u} << 20, 1);
    const auto small = pattern(100, 2);
    std::vector<std::byte> into(data.size());
    auto sending = start(p.a.send(data, 1));
    co_await p.a.send(small, 1);
    co_await p.a.send(small, 2);
    co_await p.b.probe(2);  // all have come, of the first its beginning
    if (w.is().delegates_matching)
        co_await turns(50);  // the short ones are fetched after they were announced
    std::optional<started<any_operation<void>>> closing;
    if (closes) closing.emplace(p.b.close());
    p.a.abort();
    const auto sent = co_await as_result(sending);
    CHECK(sent.error() == errc::closed);
    if (closes) co_await *closing;
    const auto none = co_await as_result(p.b.recv({}, 99));
    CHECK(none.error() == why);
    const auto half = co_await as_result(p.b.recv(into, 1));
    CHECK(half.error() == why);
    const auto behind = co_await as_result(p.b.recv(into, 1));
    REQUIRE(behind.has_value());
    CHECK(behind->bytes == small.size());
    CHECK(is_pattern(std::span(into).first(small.size()), 2));
    const auto last = co_await as_result(p.b.recv_lent(2));
    CHECK(last.has_value());
    const auto more = co_await as_result(p.b.recv(into));
    CHECK(more.error() == why);
    CHECK(p.b.connection().mailbox().store().live() <= 1);  // what was lent
}
task<> died_in_the_middle(two_domains& w) { return dies_in_the_middle(w, false); }
task<> died_while_closing(two_domains& w) { return dies_in_the_middle(w, true); }
CONFORMANCE_CASE("a receive ends with peer_lost where its message was to come from a peer that died in the "
                 "middle of it, and "
                 "none gets a later message in its stead",
                 every_transport) {
    conform(over, died_in_the_middle);
}
CONFORMANCE_CASE("a receive ends with closed where its message was to come from a peer that died in the "
                 "middle of it while this side closed and none gets a later message in its stead",
                 every_transport) {
    conform(over, died_while_closing);
}

task<> one_sided_pending(two_domains& w) {
    int done_before = 0;
    int cut = 0;
    bool may_end_well = false;
    for (const bool close_initiator : {true, false}) {
        auto p = co_await w.connected();
        std::vector<std::byte> memory(std::size_t{8} << 20);
        std::vector<std::byte> here(memory.size());
        const region open = w.there().register_memory(memory, access_rights::all);
        auto getting = start(p.a.rdma_get(open.remote(), here));
        auto putting = start(p.a.rdma_put(here, open.remote()));
        const bool got_before = getting.done();
        const bool put_before = putting.done();
        done_before += got_before + put_before;
        (close_initiator ? p.a : p.b).abort();
        const auto got = co_await as_result(getting);
        const auto put = co_await as_result(putting);
        const std::error_code why = make_error_code(close_initiator ? errc::closed : errc::peer_lost);
        // An offloaded get or put needs no poll by either side: it may end well between its start and the abort.
        may_end_well = p.a.link_capabilities().one_sided_offloaded || w.is().lingers;
        CAPTURE(close_initiator, got_before, put_before, got.error().message(), put.error().message());
        if (got) {
            CHECK((got_before || may_end_well));
        } else {
            CHECK(got.error() == why);
            ++cut;
        }
        if (put) {
            CHECK((put_before || may_end_well));
        } else {
            CHECK(put.error() == why);
            ++cut;
        }
        const auto down = co_await as_result(p.a.recv({}));
        CHECK(down.error() == why);
        const auto late = co_await as_result(p.a.rdma_get(open.remote(), here));
        CHECK(late.error());
    }
    // Some were pending when the link ended, but where all of them are over as soon as they are posted.
    CAPTURE(done_before, cut);
    if (w.is().lingers) co_return;
    if (may_end_well && w.is().timing_decides) {
        seldom("a get or put was under way when its link ended", w.is().name, cut > 0);
    } else {
        CHECK((cut > 0) == (done_before < 4));
    }
}
CONFORMANCE_CASE("gets and puts end when the link does", every_transport) {
    conform(over, one_sided_pending);
}

}  // namespace

}  // namespace test_conformance_close
