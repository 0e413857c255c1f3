// The words of `scheduler::describe` at each stage of each operation, over every transport: nothing that is pending is missing, nothing
// is there twice, and who must act next is named.

#include "described.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace test_conformance_describe {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

// ---- receives

task<> posted_receives(two_domains& w) {
    auto p = co_await w.connected();
    std::vector<std::byte> into(100);
    auto first = start(p.a.recv(into, 7));
    auto lent = start(p.a.recv_lent(8));
    auto looked = start(p.b.probe(9));
    co_await settle();
    for (const auto& [what, tag] :
         {std::pair{"recv", tag_type{7}}, {"recv_lent", tag_type{8}}, {"probe", tag_type{9}}}) {
        const auto waits = found(w, what, tag);
        INFO(what << "\n" << w.on().describe().text());
        REQUIRE(waits.size() == 1);
        CHECK(waits[0].next == next_actor::peer_send);
        CHECK_FALSE(waits[0].peer.empty());
    }
    CHECK(found(w, "recv", 7)[0].bytes == 100);
    CHECK_FALSE(found(w, "recv", 7)[0].waited.has_value());  // begun, and no coroutine waits for it yet
    std::vector<std::byte> later(100);
    task_group waiting;
    waiting.spawn([&]() -> task<> { co_await p.a.recv(later, 17); });
    waiting.spawn([&]() -> task<> { static_cast<void>(co_await p.a.recv_lent(18)); });
    waiting.spawn([&]() -> task<> { co_await p.b.probe(19); });
    const time_point before = w.on().now();
    co_await settle();
    for (const auto& [what, tag] :
         {std::pair{"recv", tag_type{17}}, {"recv_lent", tag_type{18}}, {"probe", tag_type{19}}}) {
        const auto waits = found(w, what, tag);
        INFO(what << "\n" << w.on().describe().text());
        REQUIRE(waits.size() == 1);
        REQUIRE(waits[0].waited.has_value());
        CHECK_FALSE(waits[0].at_least);
        CHECK(*waits[0].waited >= 2ms);
        CHECK(*waits[0].waited <= w.on().now() - before + 1ms);  // the time is a little old
    }
    for (const tag_type tag : {tag_type{17}, tag_type{18}, tag_type{19}})
        co_await (tag == 19 ? p.a : p.b).send(bytes_of(tag), tag);
    co_await waiting.join();
    const std::uint64_t number = 5;
    co_await p.b.send(bytes_of(number), 7);
    co_await p.b.send(bytes_of(number), 8);
    co_await p.a.send(bytes_of(number), 9);
    co_await first;
    static_cast<void>(co_await lent);
    co_await looked;
    CHECK(found(w, "recv", 7).empty());
    CHECK(found(w, "recv_lent", 8).empty());
    CHECK(found(w, "probe", 9).empty());
}

// ---- sends

task<> short_of_credit(two_domains& w) {
    auto p = co_await w.connected();
    const auto data = pattern(600, 1);
    std::size_t sent = 0;
    // A peer that waits is granted more, up to its budget.
    for (bool more = true; more;) {
        while (p.a.connection().credits().available() >= detail::message_cost(data.size())) {
            co_await p.a.send(data, 1);
            ++sent;
        }
        const auto one = co_await as_result(timeout(p.a.send(data, 1), 50ms));
        more = bool(one);
        if (more) ++sent;
    }
    co_await settle();
    auto waiting = start(p.a.send(data, 2));
    auto behind = start(p.a.send(data, 3));
    co_await settle();
    {
        INFO(w.on().describe().text());
        REQUIRE(found(w, "send", 2).size() == 1);
        CHECK(found(w, "send", 2)[0].next == next_actor::credit);
        REQUIRE(found(w, "send", 2)[0].waited.has_value());
        CHECK(*found(w, "send", 2)[0].waited < 60s);
        REQUIRE(found(w, "send", 3).size() == 1);
        CHECK(found(w, "send", 3)[0].next == next_actor::credit);
        CHECK(found(w, "send", 3)[0].stage == "waits behind other sends");
    }
    // The receive of another tag says what lies in its way.
    std::vector<std::byte> into(600);
    auto other = start(p.b.recv(into, 99));
    co_await settle();
    REQUIRE(found(w, "recv", 99).size() == 1);
    CHECK(found(w, "recv", 99)[0].next == next_actor::peer_send);
    if (p.b.counts().unexpected != 0)  // the mailbox has them, and not the link
        CHECK(found(w, "recv", 99)[0].stage.find("stored that it does not take") != std::string::npos);
    std::vector<std::byte> each(600);
    for (std::size_t n = 0; n < sent; ++n) co_await p.b.recv(each, 1);
    co_await p.b.recv(each, 2);
    co_await p.b.recv(each, 3);
    co_await waiting;
    co_await behind;
    co_await p.a.send(data, 99);
    co_await other;
}

// ---- gets and puts

/// The party that moves the bytes of gets and puts.
next_actor moves_bytes_of(const two_domains& w, bool offloaded) {
    if (w.is().name.substr(0, 3) == "sim") return next_actor::network;
    if (!offloaded) return next_actor::peer_poll;
    return w.is().name.substr(0, 3) == "shm" ? next_actor::this_scheduler : next_actor::device;
}

task<> gets_and_puts(two_domains& w) {
    auto p = co_await w.connected();
    std::vector<std::byte> memory(long_bytes * 4);
    std::vector<std::byte> local(long_bytes * 4);
    const region open = w.there().register_memory(memory, access_rights::all);
    const bool offloaded = p.a.link_capabilities().one_sided_offloaded;
    for (const bool read : {true, false}) {
        const std::string what = read ? "rdma_get" : "rdma_put";
        auto moving = start(read ? p.a.rdma_get(open.remote(), local) : p.a.rdma_put(local, open.remote()));
        std::size_t looks = 0;
        for (; !moving.done(); ++looks) {
            const auto waits = found(w, what);
            INFO(w.on().describe().text());
            REQUIRE(waits.size() == 1);
            CHECK(waits[0].stage == "is under way");
            CHECK(waits[0].bytes == local.size());
            CHECK_FALSE(waits[0].peer.empty());
            CHECK(waits[0].next == moves_bytes_of(w, offloaded));
            co_await yield();
        }
        if (!offloaded) CHECK(looks > 0);  // else it may be over at once
        co_await moving;
        CHECK(found(w, what).empty());
    }
}

task<> atomics(two_domains& w) {
    auto p = co_await w.connected();
    if (!p.a.link_capabilities().atomics) {
        note_skipped(__FILE__, __LINE__, "the provider has no atomics");
        co_return;
    }
    alignas(8) std::uint64_t number = 1;
    const region open =
        w.there().register_memory(std::as_writable_bytes(std::span(&number, 1)), access_rights::all);
    for (const bool adds : {true, false}) {
        const std::string what = adds ? "rdma_fetch_add" : "rdma_compare_swap";
        auto moving =
            start(adds ? p.a.rdma_fetch_add(open.remote(), 1) : p.a.rdma_compare_swap(open.remote(), 2, 3));
        std::size_t looks = 0;
        for (; !moving.done(); ++looks) {
            const auto waits = found(w, what);
            INFO(w.on().describe().text());
            REQUIRE(waits.size() == 1);
            CHECK(waits[0].stage == "is under way");
            CHECK(waits[0].bytes == 8);
            CHECK_FALSE(waits[0].peer.empty());
            CHECK(waits[0].next == moves_bytes_of(w, p.a.link_capabilities().one_sided_offloaded));
            co_await yield();
        }
        CHECK(looks > 0);  // it is over after a poll at the earliest
        co_await moving;
        CHECK(found(w, what).empty());
    }
    CHECK(number == 3);
}

// ---- connecting and closing

task<> beginning_and_end(two_domains& w) {
    any_listener listening = co_await w.there().listen(list_name::standard, w.address());
    auto accepting = start(listening.accept());
    co_await settle();
    {
        INFO(w.on().describe().text());
        REQUIRE(found(w, "accept").size() == 1);
        CHECK(found(w, "accept")[0].stage == "no peer has connected and shaken hands");
        CHECK(found(w, "accept")[0].next == next_actor::peer_connect);
        CHECK(w.on().describe().operations().size() == 1);  // nothing of the toolkit's own
    }
    auto connecting = start(w.here().connect(list_name::standard, listening.address()));
    CHECK_FALSE(connecting.done());  // the handshake takes turns
    {
        INFO(w.on().describe().text());
        REQUIRE(found(w, "connect").size() == 1);
        CHECK(found(w, "connect")[0].next == next_actor::peer_accept);
        CHECK(found(w, "connect")[0].peer == listening.address());
    }
    peer a = co_await connecting;
    peer b = co_await accepting;
    CHECK(found(w, "connect").empty());
    CHECK(found(w, "accept").empty());
    const auto data = pattern(long_bytes, 1);
    auto sending = start(a.ssend(data, 3));
    co_await settle();
    auto closing = start(a.close());
    co_await settle();
    // The announcement may wait for room in the link.
    for (int n = 0; n < 1000 && found(w, "close")[0].next != next_actor::peer_receive; ++n) co_await settle();
    {
        INFO(w.on().describe().text());
        REQUIRE(found(w, "close").size() == 1);
        CHECK(found(w, "close")[0].next == next_actor::peer_receive);
    }
    std::vector<std::byte> into(long_bytes);
    co_await b.recv(into, 3);
    co_await sending;
    if (!closing.done()) CHECK(found(w, "close").size() == 1);
    co_await closing;
    CHECK(found(w, "close").empty());
    auto late = start(b.close());
    co_await late;
    a = {};
    b = {};
    INFO(w.on().describe().text());
    CHECK(w.on().describe().operations().empty());
}

}  // namespace

CONFORMANCE_CASE("describe: a posted receive or probe waits for the peer to send", every_transport) {
    conform(over, posted_receives);
}
CONFORMANCE_CASE("describe: a send without credit names the credit, and one behind it, too",
                 every_transport) {
    conform(over, short_of_credit);
}
CONFORMANCE_CASE("describe: gets and puts that are under way name who moves them", every_transport) {
    conform(over, gets_and_puts);
}
CONFORMANCE_CASE("describe: atomics that are under way name who carries them out", every_atomic_transport) {
    conform(over, atomics);
}
CONFORMANCE_CASE("describe: connecting, accepting and closing name the other side", every_transport) {
    conform(over, beginning_and_end);
}

}  // namespace test_conformance_describe
