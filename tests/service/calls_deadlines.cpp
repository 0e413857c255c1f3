// The time that a call is given: what of it is told to the peer, and what becomes of a call that has none left.
#include <rdmacoro/service/node_calls.hpp>

#include <rdmacoro/transport/sim.hpp>

#include "support/calls_pair.hpp"
#include "support/nodes.hpp"
#include "support/raw_requests.hpp"
#include "support/virtual_nodes.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace test_service_calls_deadlines {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Of any kind, and not the notes about them.
constexpr tag_match any_request{detail::calls_bit, detail::calls_bit | detail::request_bits};
/// The rest of the time, as a request says it.
duration time_told(const message& request) {
    detail::request_head head{};
    REQUIRE(request.size() >= sizeof head);
    std::memcpy(&head, request.bytes().data(), sizeof head);
    return std::chrono::microseconds(head.time);
}

}  // namespace

TEST_CASE("a call tells its peer how much time it has when its request is written") {
    in_virtual_time([](sim::domain& left, sim::domain& right) -> task<> {
        auto listening = co_await listen<sim>(right, "sim://deadlines");
        auto accepting = start(listening.accept());
        auto a = co_await connect<sim>(left, listening.address());
        auto b = co_await accepting;
        {
            calls<sim> client(a);
            const auto request_of = [&](auto op) -> task<duration> {
                auto pending = start(as_result(std::move(op)));
                const message request = co_await b.recv_lent(any_request);
                local_stop_source now;
                now.request_stop();
                static_cast<void>(co_await with_stop(pending, now.get_token()));
                co_return time_told(request);
            };
            std::vector<float> room(10);
            const duration none = co_await request_of(client.call(kv::add, 1U, 2U));
            CHECK(none == duration::zero());
            const duration fixed = co_await request_of(timeout(client.call(kv::add, 1U, 2U), 10ms));
            CHECK(fixed == 10ms);
            const duration encoded = co_await request_of(timeout(client.call(kv::get, "colour"), 20ms));
            CHECK(encoded == 20ms);
            const duration in_place =
                co_await request_of(timeout(client.call_into(std::span(room), kv::fill, 7U), 30ms));
            CHECK(in_place == 30ms);
            co_await timeout(client.cast(kv::note, "a note"), 40ms);
            const message note = co_await b.recv_lent(any_request);
            CHECK(time_told(note) == 40ms);
            // One that begins later than it was made has all of its time.
            auto later = timeout(client.call(kv::add, 1U, 2U), 10ms);
            co_await sleep_for(4ms);
            const duration of_later = co_await request_of(std::move(later));
            CHECK(of_later == 10ms);
        }
        a.abort();
    });
}

TEST_CASE(
    "calls made anew over a connection take no number of an earlier object after the clock has gone round") {
    in_virtual_time([](sim::domain& left, sim::domain& right) -> task<> {
        auto listening = co_await listen<sim>(right, "sim://anew");
        auto accepting = start(listening.accept());
        auto a = co_await connect<sim>(left, listening.address());
        auto b = co_await accepting;
        const auto number_of_note = [&](calls<sim>& client) -> task<std::uint64_t> {
            co_await client.cast(kv::note, "a note");
            const message request = co_await b.recv_lent(any_request);
            co_return detail::call_number(request.tag());
        };
        constexpr std::uint64_t numbers = detail::caller_writes_bit;
        std::uint64_t last = 0;
        {
            calls<sim> client(a);
            last = co_await number_of_note(client);
        }
        // Numbers once began at the clock, which comes back to the same after that many nanoseconds; up to half of all is later to the peer.
        for (const std::uint64_t ahead : {numbers / 2 + 5'000'000'000, numbers}) {
            CAPTURE(ahead);
            co_await sleep_for(std::chrono::nanoseconds(ahead));
            calls<sim> client(a);
            const std::uint64_t next = co_await number_of_note(client);
            CHECK(next == ((last + 1) & (numbers - 1)));
            last = next;
        }
        a.abort();
    });
}

TEST_CASE("connecting takes its share of the time of a call to a node") {
    in_virtual_time([](sim::domain& left, sim::domain& right) -> task<> {
        node<sim> here(1, {}, left);
        std::optional<node_calls<sim>> peers(std::in_place, here);
        node<sim> far(9, {}, right);
        here.add({.id = 9, .urls = {"sim://nine"}});
        auto hears = far.peer(1);
        const time_point begin = scheduler::current()->now();
        task_group calling;
        std::vector<std::error_code> ended;
        calling.spawn([&]() -> task<> {
            const auto one = co_await as_result(timeout(peers->call(9, kv::add, 1U, 2U), 200ms));
            ended.push_back(one.error());
        });
        calling.spawn([&]() -> task<> {
            std::vector<node_id> ids(1, 9);
            const auto all = co_await timeout(peers->call_all(std::move(ids), kv::get, "colour"), 300ms);
            ended.push_back(all[0].ended.error());
        });
        co_await sleep_for(40ms);
        co_await far.listen("sim://nine");
        std::vector<duration> in_all;
        for (int n = 0; n < 2; ++n) {
            const message request = co_await hears.recv_lent(any_tag);
            CHECK(time_since(begin) >= 40ms);
            in_all.push_back(time_told(request) + time_since(begin));
        }
        std::sort(in_all.begin(), in_all.end());
        CHECK((in_all[0] >= 200ms && in_all[0] <= 201ms));
        CHECK((in_all[1] >= 300ms && in_all[1] <= 301ms));
        co_await calling.join();
        CHECK(ended == std::vector<std::error_code>{make_error_code(errc::timed_out),
                                                    make_error_code(errc::timed_out)});
        CHECK(time_since(begin) <= 302ms);
        co_await here.close();
        co_await far.close();
    });
}

CALLS_CASE("a call whose time is over before its service lets it in is answered, and never begun") {
    run_ends(over, [](calls_link link) -> task<> {
        event go;
        std::size_t begun = 0;
        service one({.running = 1});
        one.on(kv::add, [&](call_context&, std::uint64_t a, std::uint64_t b) -> task<std::uint64_t> {
            ++begun;
            co_await go.wait();
            co_return a + b;
        });
        const auto server = link.b.make_calls();
        server->serve(one);
        auto& raw = link.a;
        co_await ask_to_add(raw, 1);
        while (begun == 0) co_await yield();
        co_await ask_to_add(raw, 2, 1);  // behind the full service, with a microsecond
        co_await ask_to_add(raw, 3);
        const detail::answer_head second = co_await answer_to(raw, 2);  // while the service is full
        CHECK(second.outcome == a_call_error);
        CHECK(second.code == static_cast<std::int32_t>(call_errc::expired));
        CHECK(begun == 1);
        go.set();
        const detail::answer_head third = co_await answer_to(raw, 3);
        CHECK(third.outcome == a_value);
        CHECK(begun == 2);
        while (one.running() != 0) co_await yield();
        CHECK(one.bytes() == 0);
    });
}

}  // namespace test_service_calls_deadlines
