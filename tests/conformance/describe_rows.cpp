// The rows of docs/cancellation.md: each stage at which an operation can be stopped is reached, over every transport, by each protocol, and
// the party that must act next is compared with this table, which does not come from the code.

#include "described.hpp"

#include "support/described_stages.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace test_conformance_describe_rows {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Looks at what the scheduler of two domains describes.
class stage_watcher {
public:
    stage_watcher(two_domains& w, const capabilities& link)
        : w_(w), stages_(room_of(w, link), transfers_of(w, link)) {}

    void look() { stages_.look(w_.on()); }
    /// Looks at each turn until `done`.
    template <class Done>
    task<> until(Done done) {
        while (!done()) {
            look();
            co_await yield();
        }
    }
    task<> turns(int count) {
        for (int n = 0; n < count; ++n) {
            look();
            co_await yield();
        }
    }
    [[nodiscard]] const described_stages& stages() const { return stages_; }

private:
    static bool is(const two_domains& w, std::string_view family) { return w.is().name.starts_with(family); }
    static next_actor room_of(const two_domains& w, const capabilities& link) {
        if (is(w, "shm")) return next_actor::peer_poll;
        return !is(w, "sim") && link.one_sided_offloaded ? next_actor::device : next_actor::network;
    }
    static next_actor transfers_of(const two_domains& w, const capabilities& link) {
        if (is(w, "sim")) return next_actor::network;
        if (!link.one_sided_offloaded) return next_actor::peer_poll;
        return is(w, "shm") ? next_actor::this_scheduler : next_actor::device;
    }

    two_domains& w_;
    described_stages stages_;
};

/// Stages at which something is stopped: the first turns, and some later ones.
constexpr int turns_before_stop[] = {0, 1, 2, 3, 4, 5, 6, 8, 10, 13, 17, 24, 40};

/// A long message from `a` to `b`, of which one side is stopped at each stage: nothing that is pending then is left without its next actor.
/// `announced`: the receive is posted long before, and its buffer may be announced.
task<> stopped_anywhere(stage_watcher& watch, peer& a, peer& b, bool by_sender, bool lent, bool announced) {
    const auto data = pattern(long_bytes, 1);
    std::vector<std::byte> into(long_bytes);
    const std::uint64_t marker = 7;
    std::uint64_t heard = 0;
    for (const int stage : turns_before_stop) {
        CAPTURE(stage, by_sender, lent, announced);
        local_stop_source stop;
        local_stop_source at_the_end;
        auto& of_receive = by_sender ? at_the_end : stop;
        auto& of_send = by_sender ? stop : at_the_end;
        auto into_memory =
            lent ? stoppable(b.recv(into, 99), at_the_end) : stoppable(b.recv(into, 1), of_receive);
        auto borrowed = stoppable(b.recv_lent(lent ? 1 : 98), lent ? of_receive : at_the_end);
        if (announced) co_await watch.turns(10);
        auto sending = stoppable(a.send(data, 1), of_send);
        co_await watch.turns(stage);
        stop.request_stop();
        const auto over = [&] { return lent ? borrowed.done() : into_memory.done(); };
        // Where the send was never announced, or its receive is gone, the other side waits on: it is stopped, too, after a while.
        for (int n = 0; n < 2000 && !(sending.done() && over()); ++n) {
            watch.look();
            co_await yield();
        }
        at_the_end.request_stop();
        co_await watch.until([&] { return sending.done() && into_memory.done() && borrowed.done(); });
        static_cast<void>(co_await sending);
        static_cast<void>(co_await into_memory);
        static_cast<void>(co_await borrowed);
        // What met no receive is taken out of the way.
        auto rest = start(b.recv(room_for(heard), 2));
        co_await a.send(bytes_of(marker), 2);
        co_await watch.until([&] { return rest.done(); });
        co_await rest;
        static_cast<void>(b.connection().mailbox().discard(any_source, 1));
    }
}

/// Messages that are received at once, or after a while.
task<> all_received(stage_watcher& watch, peer& a, peer& b) {
    const auto data = pattern(long_bytes, 1);
    std::vector<std::byte> into(long_bytes);
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{3000}, std::size_t{40000}, long_bytes}) {
        for (const bool synchronous : {false, true}) {
            for (const bool waits : {false, true}) {
                CAPTURE(bytes, synchronous, waits);
                const auto part = std::span(data).first(bytes);
                auto sending = start(synchronous ? a.ssend(part, 3) : a.send(part, 3));
                watch.look();
                if (waits) co_await watch.turns(20);
                auto receiving = start(b.recv(into, 3));
                co_await watch.until([&] { return sending.done() && receiving.done(); });
                co_await sending;
                co_await receiving;
            }
        }
    }
}

/// Sends that nothing takes: one after the other waits, for room or for credit; and behind them one for which a receive is posted.
task<> none_received(stage_watcher& watch, peer& a, peer& b, int slowness) {
    const auto data = pattern(600, 1);
    std::vector<std::unique_ptr<started<any_operation<void>>>> sends;
    // In one turn: nothing is taken meanwhile.
    const int at_once = 20000 / slowness;
    for (int n = 0; n < at_once && (sends.empty() || sends.back()->done()); ++n)
        sends.push_back(std::make_unique<started<any_operation<void>>>(a.send(data, 4)));
    watch.look();
    for (int n = 0; n < 3; ++n)
        sends.push_back(std::make_unique<started<any_operation<void>>>(a.send(data, 4)));
    watch.look();
    co_await watch.turns(20);
    for (int n = 0; n < at_once; ++n) {
        for (int turn = 0; turn < 20 && !sends.back()->done(); ++turn) co_await watch.turns(1);
        if (!sends.back()->done()) break;
        sends.push_back(std::make_unique<started<any_operation<void>>>(a.send(data, 4)));
    }
    // Until all has come that can: a network in which a turn moves one message is in the middle of thousands.
    std::uint64_t came = 0;
    do {
        came = b.counts().unexpected;
        co_await settle();
    } while (b.counts().unexpected != came);
    watch.look();
    auto behind = start(a.send(data, 5));
    std::vector<std::byte> into(600);
    auto wanted = start(b.recv(into, 5));
    co_await watch.turns(100);
    for (auto& each : sends) {
        static_cast<void>(co_await b.recv(into, 4));
        if (each->done()) continue;
        watch.look();
    }
    co_await watch.until([&] { return wanted.done() && behind.done(); });
    co_await wanted;
    co_await behind;
    for (auto& each : sends) co_await *each;
}

/// A stage that is reached with a list, over some of the transports; where a device decides how far a message comes between two
/// looks, none is asked for.
struct reached {
    list_name list;
    const char* stage;
    bool (*over)(const traits&);
};
bool in_shm(const traits& t) { return t.name.starts_with("shm"); }
bool in_shm_tiny(const traits& t) { return t.name == "shm_tiny"; }
bool in_shm_as_it_comes(const traits& t) { return t.name == "shm_as_it_comes"; }
bool in_sim(const traits& t) { return t.name.starts_with("sim"); }
bool in_tcp_and_sim(const traits& t) { return t.name.starts_with("tcp") || in_sim(t); }
bool everywhere(const traits& t) { return in_shm(t) || in_tcp_and_sim(t) || t.name == "in_memory"; }
bool revoked_late(const traits& t) { return t.name == "sim_that_revokes_late"; }
bool in_memory_and_shm(const traits& t) { return t.name == "in_memory" || in_shm_as_it_comes(t); }
bool matched_by_the_link(const traits& t) { return t.name.starts_with("matched"); }
bool matched_with_little_room(const traits& t) { return t.name == "matched_with_little_room"; }

constexpr reached stages_reached[] = {
    {list_name::standard, "recv: posted, no message has met it", everywhere},
    {list_name::standard, "recv: no message waits", everywhere},
    {list_name::standard, "send: waits for credit", everywhere},
    {list_name::standard, "close: goodbye is sent, the peer has not answered", everywhere},
    {list_name::standard, "send: waits for room in the link", in_shm},
    {list_name::standard, "send: waits behind other sends", in_shm},
    {list_name::standard, "send: waits for credit, and the peer has not taken what was sent", in_shm_tiny},
    {list_name::standard, "send: waits for room for its next piece", in_shm_tiny},
    {list_name::standard, "send: its pieces have come and are not taken", in_shm_as_it_comes},
    {list_name::standard, "send: handed to the network", in_tcp_and_sim},
    {list_name::standard, "send: a piece is with the network", in_tcp_and_sim},
    {list_name::eager_and_pieces, "send: announced, no receive has met it", everywhere},
    {list_name::eager_and_pieces, "recv: is being filled", everywhere},
    {list_name::eager_and_pieces, "send: offered to a receive ahead of its turn", in_sim},
    {list_name::eager_and_pieces, "send: goes to its receive ahead of its turn", in_sim},
    {list_name::eager_and_pieces, "recv: is being filled, ahead of older messages", in_sim},
    {list_name::get, "send: requested, not received", everywhere},
    {list_name::get, "recv: is being got", in_tcp_and_sim},
    {list_name::get, "recv: is being got", in_shm_as_it_comes},
    {list_name::get, "send: canceled, the peer has not answered", revoked_late},
    {list_name::put, "send: requested, not received", everywhere},
    {list_name::put, "recv: met, the peer has not put it", everywhere},
    {list_name::put, "send: is being put", in_tcp_and_sim},
    {list_name::put, "send: canceled, the peer has not answered", revoked_late},
    {list_name::put, "recv: canceled, the peer has not answered", revoked_late},
    {list_name::cooperative, "send: both sides copy it", in_memory_and_shm},
    {list_name::speculative_get, "recv: the peer puts it", in_tcp_and_sim},
    {list_name::speculative_get, "send: is being put to its receive", in_shm_as_it_comes},
    {list_name::speculative_get, "send: is being put to its receive", in_tcp_and_sim},
    {list_name::speculative_get, "recv: canceled, the peer has not answered", revoked_late},
    {list_name::staged, "recv: is being got", in_sim},
    {list_name::standard, "send: posted, no receive has met it", matched_by_the_link},
    {list_name::standard, "recv: posted with the link, no message has met it", matched_by_the_link},
    {list_name::standard, "recv: its message is coming", matched_by_the_link},
    {list_name::standard, "send: canceled, the peer has not answered", matched_by_the_link},
    {list_name::standard, "send: handed to the network", matched_with_little_room},
};

task<> each_stage(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    stage_watcher watch(w, p.a.link_capabilities());
    co_await all_received(watch, p.a, p.b);
    for (const bool by_sender : {true, false}) {
        for (const bool lent : {false, true})
            co_await stopped_anywhere(watch, p.a, p.b, by_sender, lent, false);
        if (list == list_name::speculative_get || list == list_name::speculative_put)
            co_await stopped_anywhere(watch, p.a, p.b, by_sender, false, true);
    }
    co_await none_received(watch, p.a, p.b, w.is().slowness);
    {
        auto looking = start(p.b.probe(6));
        watch.look();
        auto looked_for = start(p.a.send({}, 6));
        co_await watch.until([&] { return looking.done(); });
        co_await looking;
        co_await p.b.recv({}, 6);
        co_await looked_for;
    }
    auto closing = start(p.a.close());
    co_await watch.until([&] { return closing.done(); });
    co_await closing;
    INFO(w.is().name << ":\n" << watch.stages().text());
    for (const reached& row : stages_reached) {
        if (row.list != list || !row.over(w.is())) continue;
        INFO(row.stage);
        CHECK(watch.stages().saw(row.stage) > 0);
    }
}

constexpr list_name lists_of_rows[] = {
    list_name::standard, list_name::eager_and_pieces, list_name::get,         list_name::put,
    list_name::by_size,  list_name::cooperative,      list_name::reuse_aware, list_name::speculative_get,
    list_name::staged,   list_name::speculative_put};

}  // namespace

CONFORMANCE_CASE("describe: at each stage of docs/cancellation.md the right party is named",
                 every_transport) {
    for (const list_name list : lists_of_rows) {
        if (over.is().delegates_matching && list != list_name::standard) continue;
        INFO(static_cast<int>(list));
        conform(over, list, each_stage);
    }
}

}  // namespace test_conformance_describe_rows
