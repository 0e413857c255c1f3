#include <rdmacoro/service/detail/calls_base.hpp>

#include <rdmacoro/service/calls.hpp>

#include "support/calls_pair.hpp"
#include "support/child_process.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/raw_requests.hpp"
#include "support/scripted_peer.hpp"

#include <csignal>
#include <optional>

namespace test_service_detail_calls_base {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE(
    "a calls object that is destroyed while a call of it is under way ends the process with a message") {
    const death seen = dies([] {
        run_pair(*over_sim.front(), [](any_calls&, any_calls&, shop&, calls_link link) -> task<> {
            auto mine = link.a.make_calls();
            auto waiting = start(mine->call(kv::wait));
            mine.reset();
            co_await waiting;
        });
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, Catch::Contains("a calls object was destroyed while calls of it were under way"));
}

namespace {
struct flow {
    static constexpr method<"flow.up", std::uint64_t(stream<std::uint64_t>)> up{};
    static constexpr method<"flow.down", stream<std::uint64_t>()> down{};
    static constexpr method<"flow.wait", void()> wait{};
    static constexpr method<"flow.note", one_way()> note{};
};
/// A note that cancels a request which was perhaps not sent whole: it is answered at once.
void cancel_perhaps(scripted_peer& peer, std::uint64_t number) {
    const detail::note_head cancel{
        static_cast<std::uint32_t>(detail::note_kind::cancel),
        static_cast<std::uint32_t>(detail::call_kind::answer) | detail::perhaps_bit, number};
    peer.say(wire_kind::eager, detail::call_tag(detail::call_kind::note, 0),
             std::as_bytes(std::span(&cancel, 1)));
}
/// Cancels one after the other until the answer waits for the link's credit, which the peer does not give.
task<> use_up_credit(scripted_peer& peer) {
    constexpr std::uint64_t most = 1'000'000;
    std::uint64_t told = 0;
    for (std::size_t before = 1; before != peer.heard().size() && told != most; ++told) {
        before = peer.heard().size();
        cancel_perhaps(peer, 1000 + told);
        for (int n = 0; n < 5; ++n) co_await yield();
    }
    REQUIRE(told > 1);
    REQUIRE(told < most);
}
}  // namespace

TEST_CASE("streams that wait for credit end with their link, also while the answer to a cancellation waits "
          "to be sent") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        service offered;
        std::error_code handler_ended;
        offered.on(flow::down, [&](call_context&, stream_writer<std::uint64_t>& out) -> task<> {
            try {
                for (std::uint64_t n = 0;; ++n) co_await out.write(n);
            } catch (const std::system_error& ended) {
                handler_ended = ended.code();
                throw;
            }
        });
        calls<loopback, scripted_peer::endpoint_type::protocols_type> mine(peer.self(), offered);
        const detail::request_head request{flow::down.facts.number, flow::down.facts.signature, 0};
        peer.say(wire_kind::eager,
                 detail::call_tag(detail::call_kind::open, 7, flow::down.facts.service) |
                     detail::first_call_bit,
                 std::as_bytes(std::span(&request, 1)));
        auto rows = co_await mine.open(flow::up);
        std::uint64_t written = 0;
        auto writing = start([](auto& to, std::uint64_t& n) -> task<std::error_code> {
            for (;; ++n) {
                const auto one = co_await as_result(to.write(n));
                if (!one) co_return one.error();
            }
        }(rows, written));
        for (int n = 0; n < 1000; ++n) {  // as if it received everything
            std::size_t spent = 0;
            for (; !peer.heard().empty(); peer.heard().pop_front())
                spent += detail::message_cost(peer.heard().front().payload.size());
            if (spent != 0) peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(spent));
            co_await yield();
        }
        CHECK(written == detail::stream_window);
        CHECK(offered.running() == 1);
        co_await use_up_credit(peer);
        // So many that the notes behind them wait, too.
        for (std::uint64_t n = 0; n < 100; ++n) cancel_perhaps(peer, 2'000'000 + n);
        for (int n = 0; n < 1000; ++n) co_await yield();
        CHECK(!handler_ended);
        peer.self().abort();
        const std::error_code ended = co_await timeout(writing, 1s);
        CHECK(ended == errc::closed);
        for (int n = 0; n < 100 && offered.running() != 0; ++n) co_await yield();
        CHECK(offered.running() == 0);
        CHECK(handler_ended == errc::canceled);
    }(world.on));
}

TEST_CASE("a cancellation reaches its handler while the answer to another one waits for credit") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        service offered;
        std::error_code handler_ended;
        offered.on(flow::wait, [&](call_context&) -> task<> {
            event never;
            const auto ended = co_await as_result(never.wait());
            handler_ended = ended.error();
        });
        calls<loopback, scripted_peer::endpoint_type::protocols_type> mine(peer.self(), offered);
        const detail::request_head request{flow::wait.facts.number, flow::wait.facts.signature, 0};
        peer.say(wire_kind::eager, detail::call_tag(detail::call_kind::request, 7, flow::wait.facts.service),
                 std::as_bytes(std::span(&request, 1)));
        co_await use_up_credit(peer);
        REQUIRE(offered.running() == 1);
        CHECK(!handler_ended);
        cancel_perhaps(peer, 7);
        for (int n = 0; n < 100; ++n) co_await yield();
        CHECK(handler_ended == errc::canceled);
        CHECK(peer.self().is_open());
        peer.self().abort();
    }(world.on));
}

TEST_CASE("a one-way request that says that its caller writes a stream begins nothing but its handler") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        service offered;
        std::size_t noted = 0;
        offered.on(flow::note, [&](call_context&) -> task<> {
            ++noted;
            co_return;
        });
        calls<loopback, scripted_peer::endpoint_type::protocols_type> mine(peer.self(), offered);
        const auto& receives = peer.self().connection().mailbox().matching();
        for (int n = 0; n < 100; ++n) co_await yield();
        const std::size_t before = receives.posted();
        const detail::request_head request{flow::note.facts.number, flow::note.facts.signature, 0};
        for (std::uint64_t number = 1; number <= 10; ++number) {
            peer.say(wire_kind::eager,
                     detail::call_tag(detail::call_kind::one_way, number | detail::caller_writes_bit,
                                      flow::note.facts.service),
                     std::as_bytes(std::span(&request, 1)));
            for (int n = 0; n < 10; ++n) co_await yield();
        }
        CHECK(noted == 10);
        CHECK(receives.posted() == before);
        for (const heard_message& one : peer.heard())
            CHECK(one.header.kind != static_cast<std::uint8_t>(wire_kind::eager));
        CHECK(peer.self().is_open());
        peer.self().abort();
    }(world.on));
}

TEST_CASE("a peer that refuses a one-way call with a code that is no error ends the link") {
    const std::uint32_t code = GENERATE(0U, 9U, 0x80000001U);
    virtual_time world;
    world.run([](scheduler& on, std::uint32_t refusal) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        calls<loopback, scripted_peer::endpoint_type::protocols_type> mine(peer.self());
        const auto refuse = [&](std::uint32_t amount) {
            const detail::note_head refused{static_cast<std::uint32_t>(detail::note_kind::refused), amount,
                                            flow::note.facts.number};
            peer.say(wire_kind::eager, detail::call_tag(detail::call_kind::note, 0),
                     std::as_bytes(std::span(&refused, 1)));
        };
        refuse(static_cast<std::uint32_t>(call_errc::reader_left));
        for (int n = 0; n < 100; ++n) co_await yield();
        const auto told = co_await as_result(mine.cast(flow::note));
        CHECK(told.error() == call_errc::reader_left);
        CHECK(peer.self().is_open());
        refuse(refusal);
        for (int n = 0; n < 100; ++n) co_await yield();
        CHECK_FALSE(peer.self().is_open());
        const auto later = co_await as_result(mine.cast(flow::note));
        CHECK(later.error() == errc::closed);
        peer.self().abort();
    }(world.on, code));
}

TEST_CASE("streams that no handler reads are waited for up to a limit though none can be told so") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        constexpr std::uint64_t streams = 1500;
        service offered({.running = 2 * streams});
        offered.on(flow::wait, [](call_context&) -> task<> { co_return; });
        calls<loopback, scripted_peer::endpoint_type::protocols_type> mine(peer.self(), offered);
        co_await use_up_credit(peer);
        const auto& receives = peer.self().connection().mailbox().matching();
        const std::size_t before = receives.posted();
        const detail::request_head request{flow::wait.facts.number, flow::wait.facts.signature, 0};
        for (std::uint64_t n = 0; n < streams; ++n) {
            const std::uint64_t number = (5'000'000 + n) | detail::caller_writes_bit;
            peer.say(wire_kind::eager,
                     detail::call_tag(detail::call_kind::request, number, flow::wait.facts.service),
                     std::as_bytes(std::span(&request, 1)));
            for (int turn = 0; turn < 5; ++turn) co_await yield();
        }
        CHECK(offered.running() == streams);  // their answers wait
        CHECK(receives.posted() == before);
        for (int n = 0; n < 1000 || offered.running() != 0; ++n) {  // as if it received everything
            REQUIRE(n < 1'000'000);
            std::size_t spent = 0;
            for (; !peer.heard().empty(); peer.heard().pop_front()) {
                const heard_message& one = peer.heard().front();
                if (one.header.kind == static_cast<std::uint8_t>(wire_kind::eager))
                    spent += detail::message_cost(one.payload.size());
            }
            if (spent != 0) peer.say(wire_kind::credit, 0, {}, static_cast<std::uint16_t>(spent));
            co_await yield();
        }
        CHECK(receives.posted() == before + 1024);
        CHECK(peer.self().is_open());
        peer.self().abort();
    }(world.on));
}

TEST_CASE("requests that wait for a full service take no memory again and again") {
    if (!counts_allocations) {
        SUCCEED("allocations are not counted here");
        return;
    }
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        service offered({.running = 1});
        event go;
        offered.on(flow::wait, [&](call_context&) -> task<> { co_await go.wait(); });
        calls<loopback, scripted_peer::endpoint_type::protocols_type> mine(peer.self(), offered);
        const detail::request_head request{flow::wait.facts.number, flow::wait.facts.signature, 0};
        // One runs, one is let in next, the others stay in the mailbox, where requests to no service are looked for all the time.
        for (std::uint64_t number = 1; number <= 4; ++number)
            peer.say(wire_kind::eager,
                     detail::call_tag(detail::call_kind::request, number, flow::wait.facts.service),
                     std::as_bytes(std::span(&request, 1)));
        co_await sleep_for(1s);
        CHECK(offered.running() == 1);
        const std::size_t before = allocations();
        co_await sleep_for(100s);
        CHECK(allocations() == before);
        go.set();
        for (int n = 0; n < 1000 && offered.running() != 0; ++n) co_await yield();
        CHECK(offered.running() == 0);
        peer.self().abort();
    }(world.on));
}

CALLS_CASE("a calls object that ends stops its handlers, and waits for them") {
    run_ends(over, [](calls_link link) -> task<> {
        shop there;
        const auto client = link.a.make_calls();
        auto server = link.b.make_calls();
        server->serve(there.store);
        auto waiting = start(client->call(kv::wait));
        while (there.waiting == 0) co_await yield();
        CHECK(there.store.running() == 1);
        server.reset();
        CHECK(there.store.running() == 0);
        CHECK(there.stopped == 1);
        link.b.abort();
        const auto ended = co_await as_result(timeout(waiting, 10s));
        CHECK_FALSE(ended);
        CHECK(ended.error() != errc::timed_out);
    });
}

namespace {
/// The client of a server that dies: calls of every kind end with an error, and nothing hangs.
task<> outlives_its_server(any_domain& in, std::string where, child_process& child) {
    auto listening = co_await in.listen(where);
    child.tell(listening.address());
    peer end = co_await timeout(listening.accept(), 30s);
    {
        const auto calling = end.make_calls();
        any_calls& client = *calling;
        const std::uint64_t sum = co_await timeout(client.call(kv::add, 1U, 2U), 30s);
        CHECK(sum == 3);
        std::vector<float> row(1 << 20);
        auto waiting = start(client.call(kv::wait));
        auto rows = co_await timeout(client.open(kv::scan, 1000000000U), 30s);
        for (int i = 0; i < 10; ++i) {
            const auto one = co_await timeout(rows.next(), 30s);
            CHECK(one);
        }
        ::kill(child.pid(), SIGSTOP);  // these have begun, and cannot be answered
        auto filling = start(client.call(kv::fill, 1U << 22));
        auto summing = start(client.call(kv::sum, row));
        for (int n = 0; n < 20; ++n) co_await yield();
        child.kill();
        const auto lost = [](const std::error_code& code) { return code == errc::peer_lost; };
        const auto waited = co_await as_result(timeout(waiting, 30s));
        CHECK(lost(waited.error()));
        const auto filled = co_await as_result(timeout(filling, 30s));
        CHECK(lost(filled.error()));
        const auto summed = co_await as_result(timeout(summing, 30s));
        CHECK(lost(summed.error()));
        std::error_code end_of_rows;
        while (!end_of_rows) {
            const auto one = co_await as_result(timeout(rows.next(), 30s));
            end_of_rows = one.error();
        }
        CHECK(lost(end_of_rows));
        const auto late = co_await as_result(timeout(client.call(kv::add, 1U, 2U), 30s));
        CHECK(lost(late.error()));
    }
}
void serve_until_killed(const variant& over, const std::string& address) {
    scheduler on{idle::yield{}};
    const auto domain = over.open(on);
    on.run([](any_domain& in, const std::string& where) -> task<> {
        peer end = co_await timeout(in.connect(where), 30s);
        shop there;
        const auto server = end.make_calls();
        server->serve(there.store);
        co_await sleep_for(1h);
    }(*domain, address));
}
}  // namespace

CONFORMANCE_CASE("calls of all kinds end with an error when their server is killed", every_real_transport) {
    child_process child([&](const std::string& address) { serve_until_killed(over, address); });
    scheduler on;
    const auto domain = over.open(on);
    on.run(outlives_its_server(*domain, over.address(), child));
}

CALLS_CASE("handlers are asked to stop when their caller goes, and drain ends") {
    run_pair(over, [](any_calls& client, any_calls& server, shop& there, calls_link link) -> task<> {
        auto waiting = start(client.call(kv::wait));
        while (there.waiting == 0) co_await yield();
        link.a.abort();
        const auto lost = co_await as_result(waiting);
        CHECK_FALSE(lost);
        co_await timeout(server.drain(), 10s);
        CHECK(there.store.running() == 0);
        CHECK(there.stopped == 1);
    });
}

namespace {
struct narrow {
    static constexpr method<"narrow.wait", void()> wait{};
};
struct broad {
    static constexpr method<"broad.twice", int(int)> twice{};
};
}  // namespace

CALLS_CASE("calls that wait for a full service can all be canceled, before they run and for good") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service one({.running = 1});
        std::size_t begun = 0;
        one.on(narrow::wait, [&](call_context&) -> task<> {
            ++begun;
            co_await sleep_for(1h);
        });
        service other;
        other.on(broad::twice, [](call_context&, int n) -> task<int> { co_return 2 * n; });
        server.serve(one);
        server.serve(other);
        auto running = start(client.call(narrow::wait));
        while (begun == 0) co_await yield();
        local_stop_source stop;
        task_group many(stop.get_token());
        for (int i = 0; i < 100; ++i)
            many.spawn([&client]() -> task<> { co_await client.call(narrow::wait); });
        // The first call of another service does not wait for them.
        const int twice = co_await timeout(client.call(broad::twice, 21), 10s);
        CHECK(twice == 42);
        stop.request_stop();
        while (many.size() != 0) co_await yield();
        local_stop_source now;
        now.request_stop();
        const auto canceled = co_await as_result(with_stop(running, now.get_token()));
        CHECK(canceled.error() == errc::canceled);
        while (one.running() != 0) co_await yield();
        const int again = co_await timeout(client.call(broad::twice, 4), 10s);
        CHECK(again == 8);
        CHECK(begun == 1);
        CHECK(one.running() == 0);
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
    });
}

CALLS_CASE("ten thousand cancels go together, and hold up no other call") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service one({.running = 1});
        one.on(narrow::wait, [](call_context&) -> task<> { co_await sleep_for(1h); });
        service other;
        other.on(broad::twice, [](call_context&, int n) -> task<int> { co_return 2 * n; });
        server.serve(one);
        server.serve(other);
        const int first = co_await timeout(client.call(broad::twice, 1), 10s);
        CHECK(first == 2);
        auto running = start(client.call(narrow::wait));
        while (one.running() == 0) co_await yield();
        local_stop_source stop;
        task_group many(stop.get_token());
        for (int i = 0; i < 10000; ++i)
            many.spawn([&client]() -> task<> { co_await client.call(narrow::wait); });
        const int before = co_await timeout(client.call(broad::twice, 21), 10s);
        CHECK(before == 42);
        const auto sent = link.a.counts().messages_sent;
        stop.request_stop();
        while (many.size() != 0) co_await yield();
        const int after = co_await timeout(client.call(broad::twice, 4), 10s);
        CHECK(after == 8);
        CHECK(link.a.counts().messages_sent - sent < 100);
        local_stop_source now;
        now.request_stop();
        const auto canceled = co_await as_result(with_stop(running, now.get_token()));
        CHECK(canceled.error() == errc::canceled);
        while (one.running() != 0) co_await yield();
        const std::size_t at_client = co_await left_over(link.a);
        CHECK(at_client == 0);
        const std::size_t at_server = co_await left_over(link.b);
        CHECK(at_server == 0);
    });
}

namespace {
struct late {
    static constexpr method<"late.note", one_way(int)> note{};
    static constexpr method<"late.more", one_way(int)> more{};
    static constexpr method<"late.items", stream<int>()> items{};
    static constexpr method<"late.twice", int(int)> twice{};
};
/// Waits until so many messages have come to that end and had their effect.
task<> until_received(peer& at, std::uint64_t count) {
    while (at.counts().messages_received < count) co_await yield();
    for (int n = 0; n < 10; ++n) co_await yield();
}
}  // namespace

CALLS_CASE("a one-way call that was refused is sent again once the peer offers its service") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        auto seen = link.a.counts().messages_received;
        co_await client.cast(late::note, 1);
        co_await until_received(link.a, seen + 1);  // it was refused
        service there;
        int noted = 0;
        there.on(late::note, [&](call_context&, int n) -> task<> {
            noted = n;
            co_return;
        });
        seen = link.a.counts().messages_received;
        server.serve(there);
        co_await until_received(link.a, seen + 1);  // it is there
        co_await client.cast(late::note, 3);
        while (noted != 3) co_await yield();
        // A method that the service gets later: each refusal is told of once.
        seen = link.a.counts().messages_received;
        co_await client.cast(late::more, 4);
        co_await until_received(link.a, seen + 1);
        there.on(late::more, [&](call_context&, int n) -> task<> {
            noted = n;
            co_return;
        });
        const auto refused = co_await as_result(client.cast(late::more, 5));
        CHECK(refused.error() == call_errc::unknown_method);
        co_await client.cast(late::more, 6);
        while (noted != 6) co_await yield();
    });
}

CALLS_CASE("requests to a service that is offered no more are answered, and leave nothing") {
    run_ends(over, [](calls_link link) -> task<> {
        const auto client = link.a.make_calls();
        {
            service there;
            there.on(late::twice, [](call_context&, int n) -> task<int> { co_return 2 * n; });
            const auto server = link.b.make_calls();
            server->serve(there);
            const int twice = co_await timeout(client->call(late::twice, 4), 10s);
            CHECK(twice == 8);
            co_await server->drain();
        }
        const auto server = link.b.make_calls();  // without that service, of which the client does not know
        const auto refused = co_await as_result(timeout(client->call(late::twice, 4), 10s));
        CHECK(refused.error() == call_errc::unknown_method);
        auto items = co_await client->open(late::items);
        const auto none = co_await as_result(timeout(items.next(), 10s));
        CHECK(none.error() == call_errc::unknown_method);
        for (int i = 0; i < 1000; ++i) co_await client->cast(late::note, i);
        const auto last = co_await as_result(timeout(client->call(late::twice, 4), 10s));
        CHECK(last.error() == call_errc::unknown_method);
        auto& stored = link.b.connection().mailbox().matching();
        for (int n = 0; stored.unexpected() != 0 && n < 1000; ++n) co_await sleep_for(10ms);
        CHECK(stored.unexpected() == 0);
    });
}

namespace {
/// Says that the call was canceled while its request was sent.
template <class Raw>
task<> say_perhaps(Raw& raw, std::uint64_t number) {
    const detail::note_head note{static_cast<std::uint32_t>(detail::note_kind::cancel),
                                 static_cast<std::uint32_t>(detail::call_kind::answer) | detail::perhaps_bit,
                                 number};
    co_await raw.send(std::as_bytes(std::span(&note, 1)), detail::call_tag(detail::call_kind::note, 0));
}
/// How many answers to the call have come when all that was sent before is served.
template <class Raw>
task<std::size_t> answers_to(Raw& raw, std::uint64_t number) {
    for (std::uint64_t other = 1000; other < 1002;
         ++other) {  // one behind the notes, one behind the requests
        co_await ask_to_add(raw, other);
        const auto answer = co_await raw.recv_lent(detail::call_tag(detail::call_kind::answer, other));
        CHECK(answer.size() == sizeof(detail::answer_head) + 8);
    }
    co_return raw.discard(detail::call_tag(detail::call_kind::answer, number));
}
}  // namespace

CALLS_CASE("a call whose cancellation comes after its answer, or before its request, is answered once") {
    run_ends(over, [](calls_link link) -> task<> {
        shop there;
        const auto server = link.b.make_calls();
        server->serve(there.store);
        auto& raw = link.a;
        co_await ask_to_add(raw, 5);
        const auto answered = co_await answers_to(raw, 5);
        CHECK(answered == 1);
        co_await say_perhaps(raw, 5);
        const auto again = co_await answers_to(raw, 5);
        CHECK(again == 0);

        // A call that no handler has seen was answered, too.
        const raw_addition sent;
        const auto nowhere =
            detail::call_tag(detail::call_kind::request, 7, raw_addition::method_type::service ^ 1) |
            detail::first_call_bit;
        co_await raw.send(std::as_bytes(std::span(&sent, 1)), nowhere);
        co_await say_perhaps(raw, 7);
        const auto refused = co_await answers_to(raw, 7);
        CHECK(refused == 1);

        co_await say_perhaps(raw, 6);
        const auto stopped = co_await answers_to(raw, 6);
        CHECK(stopped == 1);
        co_await ask_to_add(raw, 6);  // it comes all the same
        const auto late = co_await answers_to(raw, 6);
        CHECK(late == 0);
    });
}

namespace {
struct bulk {
    static constexpr method<"bulk.sum", double(std::vector<float>)> sum{};
    static constexpr method<"bulk.items", stream<float>(std::vector<float>)> items{};
    static constexpr method<"bulk.note", one_way(std::vector<float>)> note{};
};
}  // namespace

CALLS_CASE("a request that is longer than its peer takes ends with an error") {
    run_in(over, [](two_domains& w) -> task<> {
        auto [a, b] = co_await w.connected({}, {.lent_bytes = 100000});
        {
            service there;
            there.on(bulk::sum, [](call_context&, std::vector<float> all) -> task<double> {
                co_return std::accumulate(all.begin(), all.end(), 0.0);
            });
            const auto server = b.make_calls();
            server->serve(there);
            const auto calling = a.make_calls();
            any_calls& client = *calling;
            const std::vector<float> much(1 << 20, 1.0F);
            const std::vector<float> few(100, 1.0F);
            for (int turn = 0; turn < 2; ++turn) {  // the first request, and a later one
                try {
                    static_cast<void>(co_await timeout(client.call(bulk::sum, much), 10s));
                    FAIL("it was received");
                } catch (const error& failed) {
                    CHECK(failed.code() == errc::message_too_long);
                    CHECK_THAT(failed.what(), Catch::Contains("lent_bytes"));
                }
                const double sum = co_await timeout(client.call(bulk::sum, few), 10s);
                CHECK(sum == 100.0);
            }
            auto items = co_await timeout(client.open(bulk::items, much), 10s);
            const auto item = co_await as_result(timeout(items.next(), 10s));
            CHECK(item.error() == errc::message_too_long);
            co_await timeout(client.cast(bulk::note, much), 10s);  // dropped
            const double sum = co_await timeout(client.call(bulk::sum, few), 10s);
            CHECK(sum == 100.0);
        }
        a.abort();
    });
}

TEST_CASE("a calls object that is destroyed while a handler hears no stop says which, and waits for it") {
    const death seen = dies([] {
        run_ends(*over_sim.front(), [](calls_link link) -> task<> {
            bool began = false;
            service methods;
            methods.on(flow::wait, [&began](call_context&) -> task<> {
                began = true;
                co_await without_stop(sleep_for(2500ms));
                began = false;
            });
            auto served = link.b.make_calls();
            served->serve(methods);
            auto mine = link.a.make_calls();
            auto calling = start(as_result(mine->call(flow::wait)));
            while (!began) co_await yield();
            served.reset();
            if (began) std::abort();  // it was not waited for
            static_cast<void>(co_await calling);
        });
    });
    CHECK(!seen.aborted);
    CHECK(seen.status == 0);
    CHECK_THAT(seen.said, Catch::Contains("a calls object is destroyed, and waits for handlers") &&
                              Catch::Contains("flow.wait"));
}

}  // namespace test_service_detail_calls_base
