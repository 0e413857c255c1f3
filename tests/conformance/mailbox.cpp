#include "conformance.hpp"

#include <deque>
#include <map>
#include <optional>
#include <random>

namespace test_conformance_mailbox {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// A mailbox in domain `there` with some peers; `clients[n]` is the other end of `ids[n]`.
struct hub {
    explicit hub(two_domains& w) : owned(w.there().make_mailbox()), box(*owned) {}
    std::unique_ptr<any_mailbox> owned;
    any_mailbox& box;
    std::vector<peer> clients;
    std::vector<peer_id> ids;
};

task<> join(two_domains& w, hub& h, std::size_t count, mailbox_options options = {}) {
    for (std::size_t n = 0; n < count; ++n) {
        auto p = co_await w.connected(options, options);
        h.clients.push_back(std::move(p.a));
        h.ids.push_back(h.box.attach(std::move(p.b)));
        CHECK_FALSE(static_cast<bool>(p.b));
    }
}

task<> from_any(two_domains& w) {
    hub h(w);
    co_await join(w, h, 5);
    CHECK(h.box.size() == 5);
    auto chatter = [](peer& client, std::uint64_t who) -> task<> {
        for (std::uint64_t n = 0; n < 500; ++n) {
            const std::uint64_t said[] = {who, n};
            co_await client.send(std::as_bytes(std::span(said)), n % 4);
        }
    };
    task_group group;
    for (std::size_t n = 0; n < 5; ++n) group.spawn(chatter, std::ref(h.clients[n]), n);
    std::map<peer_id, std::uint64_t> next;
    for (int n = 0; n < 2500; ++n) {
        std::uint64_t heard[2] = {};
        const received got = co_await h.box.recv(std::as_writable_bytes(std::span(heard)));
        REQUIRE(heard[0] < 5);
        CHECK(got.source == h.ids[heard[0]]);
        CHECK(heard[1] == next[got.source]++);
        CHECK(got.tag == heard[1] % 4);
    }
    co_await group.join();
    // Answers go to the peer that asked.
    for (std::size_t n = 0; n < 5; ++n) {
        const std::uint64_t answer = n + 100;
        co_await h.box.send(h.ids[n], bytes_of(answer), 9);
        std::uint64_t heard = 0;
        co_await h.clients[n].recv(room_for(heard), 9);
        CHECK(heard == answer);
    }
}
CONFORMANCE_CASE("a mailbox receives from any peer, each peer's messages in their order", every_transport) {
    conform(over, from_any);
}

task<> from_one(two_domains& w) {
    hub h(w);
    co_await join(w, h, 3);
    for (std::uint64_t n = 0; n < 3; ++n) co_await h.clients[n].send(bytes_of(n), 7);
    std::uint64_t heard = 0;
    // Whatever came first, the source asked for is the source received from.
    for (std::size_t n = 3; n-- > 0;) {
        const received seen = co_await h.box.probe(7, h.ids[n]);
        CHECK(seen.source == h.ids[n]);
        const received got = co_await h.box.recv(room_for(heard), any_tag, h.ids[n]);
        CHECK(got.source == h.ids[n]);
        CHECK(heard == n);
    }
    // One receive posted for any source, then one for a single source: the older matches first.
    std::uint64_t from_first = 99;
    std::uint64_t from_any_peer = 99;
    auto any = start(h.box.recv(room_for(from_any_peer), 1));
    auto one = start(h.box.recv(room_for(from_first), 1, h.ids[0]));
    auto lent = start(h.box.recv_lent(2));
    const std::uint64_t a = 10;
    const std::uint64_t b = 11;
    co_await h.clients[0].send(bytes_of(a), 1);
    co_await h.clients[0].send(bytes_of(b), 1);
    co_await h.clients[2].send(bytes_of(b), 2);
    co_await any;
    co_await one;
    CHECK(from_any_peer == 10);
    CHECK(from_first == 11);
    const message m = co_await lent;
    CHECK(m.source() == h.ids[2]);
    CHECK(m.size() == 8);
}
CONFORMANCE_CASE("a mailbox receives from one peer when asked to, in one order with receives from any",
                 every_transport) {
    conform(over, from_one);
}

task<> attached_late(two_domains& w) {
    // The mailbox waits already, the endpoint has messages already: they meet.
    hub h(w);
    auto p = co_await w.connected();
    std::uint64_t first = 0;
    auto waiting = start(h.box.recv(room_for(first), 5));
    auto probing = start(h.box.probe(8));
    const auto large = pattern(std::size_t{3} << 20, 1);
    std::vector<std::byte> into(large.size());
    auto waiting_large = start(h.box.recv(into, 6));
    const std::uint64_t five = 5;
    const std::uint64_t seven = 7;
    co_await p.a.send(bytes_of(seven), 7);
    co_await p.a.send(bytes_of(five), 5);
    auto sending = start(p.a.send(large, 6));
    auto synchronous = start(p.a.ssend(bytes_of(seven), 8));
    co_await p.b.probe(8);
    // Something of its own is on its way out, too.
    auto outgoing = start(p.b.send(large, 9));
    const peer_id id = h.box.attach(std::move(p.b));
    co_await waiting;
    CHECK(first == 5);
    const received seen = co_await probing;
    CHECK(seen.source == id);
    co_await waiting_large;
    CHECK(into == large);
    co_await sending;
    std::uint64_t value = 0;
    co_await h.box.recv(room_for(value), 7);
    CHECK(value == 7);
    co_await h.box.recv(room_for(value), 8, id);
    co_await synchronous;
    co_await p.a.recv(into, 9);
    co_await outgoing;
    CHECK(h.box.base().store().live() == 0);
}
CONFORMANCE_CASE("an endpoint that is attached brings its waiting messages and its sends along",
                 every_transport) {
    conform(over, attached_late);
}

task<> made_before_attaching(two_domains& w) {
    hub h(w);
    co_await join(w, h, 1);  // so that the name in the mailbox is another than at an endpoint
    auto p = co_await w.connected();
    std::uint64_t heard = 0;
    std::uint64_t later = 0;
    auto probing = p.b.probe(5);
    auto receiving = p.b.recv(room_for(heard), 5);
    auto lending = p.b.recv_lent(5);
    auto waiting = p.b.recv(room_for(later), 8);
    const std::uint64_t said[] = {10, 11, 12, 13};
    auto sending = p.b.send(bytes_of(said[0]), 6);
    const peer_id id = h.box.attach(std::move(p.b));
    REQUIRE(id != 0);
    // The first peer's message has the same tag, and came first.
    co_await h.clients[0].send(bytes_of(said[0]), 5);
    co_await h.box.probe(5, h.ids[0]);
    co_await p.a.send(bytes_of(said[1]), 5);
    co_await p.a.send(bytes_of(said[2]), 5);
    const received seen = co_await std::move(probing);
    CHECK(seen.source == id);
    const received got = co_await std::move(receiving);
    CHECK(got.source == id);
    CHECK(heard == 11);
    {
        const message m = co_await std::move(lending);
        CHECK(m.source() == id);
    }
    auto posted = start(std::move(waiting));
    co_await h.clients[0].send(bytes_of(said[0]), 8);
    co_await h.box.probe(8, h.ids[0]);
    CHECK_FALSE(posted.done());
    co_await p.a.send(bytes_of(said[3]), 8);
    co_await posted;
    CHECK(later == 13);
    co_await std::move(sending);
    co_await p.a.recv(room_for(heard), 6);
    CHECK(heard == 10);
}
CONFORMANCE_CASE("an operation made before its endpoint was attached is of that peer when it begins after",
                 every_transport) {
    conform(over, made_before_attaching);
}

task<> refuses_attaching(two_domains& w) {
    hub h(w);
    auto p = co_await w.connected();
    std::byte into[8];
    const auto attach = [&] {
        try {
            h.box.attach(std::move(p.b));
        } catch (const error& refused) {
            return refused.code();
        }
        return std::error_code{};
    };
    {
        local_stop_source stop;
        auto receiving = start(as_result(with_stop(p.b.recv(into), stop.get_token())));
        CHECK(attach() == errc::invalid_argument);
        stop.request_stop();
        const auto ended = co_await receiving;
        CHECK(ended.error() == errc::canceled);
    }
    {
        local_stop_source stop;
        auto probing = start(as_result(with_stop(p.b.probe(), stop.get_token())));
        CHECK(attach() == errc::invalid_argument);
        stop.request_stop();
        const auto ended = co_await probing;
        CHECK(ended.error() == errc::canceled);
    }
    CHECK(static_cast<bool>(p.b));  // still the caller's
    CHECK(h.box.size() == 0);
    CHECK(attach() == std::error_code{});
    CHECK(attach() == errc::invalid_argument);  // nothing is left of it
    co_await h.box.close();
    auto q = co_await w.connected();
    p.b = std::move(q.b);
    CHECK(attach() == errc::closed);
}
CONFORMANCE_CASE("an endpoint with a pending receive is not attached and stays as it was", every_transport) {
    conform(over, refuses_attaching);
}

task<> attached_while_filled(two_domains& w) {
    const auto large = pattern(std::size_t{3} << 20, 1);
    hub h(w);
    co_await join(w, h, 1);  // so that the name in the mailbox is another than at an endpoint
    for (int turns = 0; turns < 12; ++turns) {
        CAPTURE(turns);
        auto p = co_await w.connected();
        std::vector<std::byte> into(large.size());
        auto receiving = start(p.b.recv(into, 5));
        auto sending = start(p.a.send(large, 5));
        for (int n = 0; n < turns; ++n) co_await yield();
        const bool ended = receiving.done();
        peer_id id = 0;
        try {
            id = h.box.attach(std::move(p.b));
        } catch (const error& refused) {  // nothing has come yet, or the link matches
            CHECK(refused.code() == errc::invalid_argument);
            CHECK_FALSE(ended);
        }
        const received got = co_await receiving;
        CHECK(got.source == (ended ? 0 : id));
        CHECK(into == large);
        co_await sending;
        if (id != 0) h.box.remove(id);
    }
}
CONFORMANCE_CASE("a receive that is being filled while its endpoint is attached gets its message",
                 every_transport) {
    conform(over, attached_while_filled);
}

task<> peers_go(two_domains& w) {
    hub h(w);
    co_await join(w, h, 3);
    const std::uint64_t said = 3;
    co_await h.clients[0].send(bytes_of(said), 1);
    co_await h.box.probe(1, h.ids[0]);
    std::byte into[8];
    std::byte other[8];
    auto from_first = start(h.box.recv(into, 2, h.ids[0]));
    auto from_any = start(h.box.recv(other, 2));
    // One peer dies: receives from it alone end, the others go on.
    { const peer gone = std::move(h.clients[0]); }
    const auto ended = co_await as_result(from_first);
    CHECK(ended.error() == errc::peer_lost);
    CHECK_FALSE(from_any.done());
    CHECK_FALSE(h.box.is_open(h.ids[0]));
    CHECK(h.box.is_open(h.ids[1]));
    // Its unexpected message is still there.
    const received kept = co_await h.box.recv(into, 1, h.ids[0]);
    CHECK(kept.bytes == 8);
    const auto none = co_await as_result(h.box.recv(into, any_tag, h.ids[0]));
    CHECK(none.error() == errc::peer_lost);
    const auto send = co_await as_result(h.box.send(h.ids[0], into));
    CHECK(send.error() == errc::peer_lost);
    co_await h.clients[1].send(bytes_of(said), 2);
    const received got = co_await from_any;
    CHECK(got.source == h.ids[1]);

    // Removed: its messages go with it, and its number can be given again.
    co_await h.clients[2].send(bytes_of(said), 5);
    co_await h.box.probe(5);
    auto pending = start(h.box.recv(into, 6, h.ids[2]));
    auto pending_send = start(h.box.ssend(h.ids[2], other));
    h.box.remove(h.ids[2]);
    const auto cut = co_await as_result(pending);
    CHECK(cut.error() == errc::closed);
    const auto cut_send = co_await as_result(pending_send);
    CHECK(cut_send.error() == errc::closed);
    CHECK(h.box.size() == 2);
    CHECK(h.box.base().matching().unexpected() == 0);
    const auto nobody = co_await as_result(h.box.recv(into, any_tag, h.ids[2]));
    CHECK(nobody.error() == errc::invalid_argument);
    const auto to_nobody = co_await as_result(h.box.send(h.ids[2], into));
    CHECK(to_nobody.error() == errc::invalid_argument);
    CHECK_THROWS_AS(h.box.remove(h.ids[2]), error);
    CHECK_THROWS_AS(h.box.close(77), error);
    auto p = co_await w.connected();
    CHECK(h.box.attach(std::move(p.b)) == h.ids[2]);
    CHECK(h.box.size() == 3);
    co_await p.a.send(bytes_of(said), 8);
    const received fresh = co_await h.box.recv(into, 8);
    CHECK(fresh.source == h.ids[2]);
}
CONFORMANCE_CASE("peers of a mailbox come and go, and the others go on", every_transport) {
    conform(over, peers_go);
}

task<> closes(two_domains& w) {
    hub h(w);
    co_await join(w, h, 4);
    const std::uint64_t said = 1;
    std::byte into[8];
    auto from_any = start(h.box.recv(into, 99));
    auto lent_from_any = start(h.box.recv_lent(99));
    auto probing = start(h.box.probe(99));
    co_await h.box.close(h.ids[0]);
    CHECK_FALSE(h.box.is_open(h.ids[0]));
    CHECK_FALSE(from_any.done());
    for (std::size_t n = 1; n < 4; ++n) co_await h.box.send(h.ids[n], bytes_of(said), n);
    co_await h.clients[1].send(bytes_of(said), 4);
    co_await h.box.probe(4);
    co_await h.box.close();
    for (std::size_t n = 1; n < 4; ++n) {
        std::uint64_t heard = 0;
        co_await h.clients[n].recv(room_for(heard), n);
        const auto end = co_await as_result(h.clients[n].recv(into));
        CHECK(end.error() == errc::closed);
    }
    const auto a = co_await as_result(from_any);
    CHECK(a.error() == errc::closed);
    const auto b = co_await as_result(lent_from_any);
    CHECK(b.error() == errc::closed);
    const auto c = co_await as_result(probing);
    CHECK(c.error() == errc::closed);
    // The unexpected message can be received; then receives end.
    const received kept = co_await h.box.recv(into);
    CHECK(kept.tag == 4);
    const auto over = co_await as_result(h.box.recv(into));
    CHECK(over.error() == errc::closed);
    co_await h.box.close();
}
CONFORMANCE_CASE("closing a mailbox drains all its peers and then ends receives from any", every_transport) {
    conform(over, closes);
}

task<> destroyed(two_domains& w) {
    std::vector<peer> clients;
    std::byte into[8];
    std::byte other[8];
    std::vector<message> kept;
    std::optional<hub> h(std::in_place, w);
    co_await join(w, *h, 3);
    const std::uint64_t said = 1;
    co_await h->clients[0].send(bytes_of(said), 1);
    co_await h->clients[0].send(bytes_of(said), 2);
    co_await h->box.probe(2);
    kept.push_back(co_await h->box.recv_lent(1));
    auto any = start(h->box.recv(into, 9));
    auto one = start(h->box.recv(other, 9, h->ids[1]));
    auto probing = start(h->box.probe(9));
    auto sending = start(h->box.ssend(h->ids[2], into));
    clients = std::move(h->clients);
    h.reset();
    const auto a = co_await as_result(any);
    CHECK(a.error() == errc::closed);
    const auto b = co_await as_result(one);
    CHECK(b.error() == errc::closed);
    const auto c = co_await as_result(probing);
    CHECK(c.error() == errc::closed);
    const auto d = co_await as_result(sending);
    CHECK(d.error() == errc::closed);
    for (peer& client : clients) {
        const auto gone = co_await as_result(client.recv(into, 77));
        CHECK(gone.error() == errc::peer_lost);
    }
    CHECK(kept[0].size() == 8);
}
CONFORMANCE_CASE("destroying a mailbox ends everything pending on it", every_transport) {
    conform(over, destroyed);
}

task<> gets_and_puts(two_domains& w) {
    hub h(w);
    co_await join(w, h, 2);
    std::vector<std::byte> memory = pattern(5000, 1);
    const region open = w.here().register_memory(memory, access_rights::all);
    std::vector<std::byte> here(5000);
    co_await h.box.rdma_get(h.ids[1], open.remote(), here);
    CHECK(here == memory);
    here = pattern(5000, 2);
    co_await h.box.rdma_put(h.ids[0], here, open.remote());
    CHECK(memory == here);
    CHECK(h.box.counts(h.ids[0]).messages_sent == 0);
    CHECK_FALSE(h.box.peer_name(h.ids[0]).empty());
    CHECK(&h.box.owner() == &w.on());
}
CONFORMANCE_CASE("a mailbox gets from and puts to its peers", every_transport) {
    conform(over, gets_and_puts);
}

task<> cancels(two_domains& w) {
    hub h(w);
    co_await join(w, h, 2);
    std::byte into[8];
    local_stop_source stop;
    auto any = start(as_result(with_stop(h.box.recv(into), stop.get_token())));
    auto one = start(as_result(with_stop(h.box.recv(into, any_tag, h.ids[0]), stop.get_token())));
    auto probing = start(as_result(with_stop(h.box.probe(), stop.get_token())));
    auto closing = start(as_result(with_stop(h.box.close(h.ids[1]), stop.get_token())));
    const bool closed_at_once = closing.done();  // by a peer that answers it
    stop.request_stop();
    const auto a = co_await any;
    CHECK(a.error() == errc::canceled);
    const auto b = co_await one;
    CHECK(b.error() == errc::canceled);
    const auto c = co_await probing;
    CHECK(c.error() == errc::canceled);
    const auto closed = co_await closing;
    CHECK(closed.error() == (closed_at_once ? std::error_code() : make_error_code(errc::canceled)));
    CHECK_FALSE(h.box.is_open(h.ids[1]));
    const std::uint64_t said = 1;
    co_await h.clients[0].send(bytes_of(said), 1);
    const received got = co_await h.box.recv(into);
    CHECK(got.source == h.ids[0]);
    // All at once; the peer that reads nothing is not waited for.
    const auto large = pattern(std::size_t{9} << 20, 1);
    auto sending = start(h.box.send(h.ids[0], large));
    local_stop_source quit;
    auto closing_all = start(as_result(with_stop(h.box.close(), quit.get_token())));
    for (int n = 0; n < 20; ++n) co_await yield();
    CHECK_FALSE(closing_all.done());
    quit.request_stop();
    const auto all = co_await closing_all;
    CHECK(all.error() == errc::canceled);
    const auto lost = co_await as_result(sending);
    CHECK(lost.error() == errc::closed);
    const auto over = co_await as_result(h.box.recv(into));
    CHECK(over.error() == errc::closed);
}
CONFORMANCE_CASE("operations of a mailbox can be stopped, closing all included", every_transport) {
    conform(over, cancels);
}

}  // namespace

}  // namespace test_conformance_mailbox
