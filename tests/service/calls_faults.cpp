// Faults of calls over one connection: services that take no more, a lack of memory, and cancellations that come late or early.
#include <rdmacoro/service/calls.hpp>

#include "support/calls_pair.hpp"
#include "support/counting_new.hpp"
#include "support/raw_requests.hpp"

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/shm.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace test_service_calls_faults {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct narrow {
    static constexpr method<"narrow.note", one_way(std::string)> note{};
};
struct broad {
    static constexpr method<"broad.twice", int(int)> twice{};
    static constexpr method<"broad.rows", std::vector<std::vector<float>>(std::uint32_t)> rows{};
    static constexpr method<"broad.rows_now", std::vector<std::vector<float>>(std::uint32_t)> rows_now{};
};
struct crowd {
    static constexpr method<"crowd.wait", void(std::uint32_t)> wait{};
};
struct nowhere {
    static constexpr method<"nowhere.note", one_way(int)> note{};
    static constexpr method<"nowhere.call", int()> call{};
};

/// Says that the caller of that request waits no longer.
template <class Raw>
task<> say_canceled(Raw& raw, std::uint64_t number) {
    const detail::note_head note{static_cast<std::uint32_t>(detail::note_kind::cancel),
                                 static_cast<std::uint32_t>(detail::call_kind::answer), number};
    co_await raw.send(std::as_bytes(std::span(&note, 1)), detail::call_tag(detail::call_kind::note, 0));
}

}  // namespace

CALLS_CASE("a service that takes no more holds no other's first calls up, and has one request in hand") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        event go;
        std::size_t begun = 0;
        service one({.running = 1});
        one.on(narrow::note, [&](call_context&, std::string) -> task<> {
            ++begun;
            co_await go.wait();
        });
        service other;
        other.on(broad::twice, [](call_context&, int n) -> task<int> { co_return 2 * n; });
        server.serve(one);
        server.serve(other);
        // As of a caller that has not heard that the service is there.
        auto& raw = link.a;
        using note = std::remove_const_t<decltype(narrow::note)>;
        encoder request;
        request.write(detail::request_head{note::number, note::signature, 0});
        request.write(std::string(100, 'x'));
        constexpr std::uint64_t casts = 200;
        for (std::uint64_t n = 0; n < casts; ++n) {
            co_await raw.send(const_buffers(request.pieces()),
                              detail::call_tag(detail::call_kind::one_way, (1 << 20) + n, note::service) |
                                  detail::first_call_bit);
        }
        const int twice = co_await timeout(client.call(broad::twice, 21), 30s);
        CHECK(twice == 42);
        // So are those of services that are not there.
        const auto none = co_await as_result(timeout(client.call(nowhere::call), 30s));
        CHECK(none.error() == call_errc::unknown_method);
        const auto heard = link.a.counts().messages_received;
        co_await client.cast(nowhere::note, 1);
        while (link.a.counts().messages_received == heard) co_await yield();
        for (int n = 0; n < 10; ++n) co_await yield();
        const auto refused = co_await as_result(client.cast(nowhere::note, 1));
        CHECK(refused.error() == call_errc::unknown_method);
        CHECK(begun == 1);
        CHECK(one.running() == 1);
        CHECK(one.bytes() < 300);
        const auto& stored = link.b.connection().mailbox().matching();
        CHECK(stored.unexpected() == casts - 2);
        go.set();
        while (begun != casts || one.running() != 0) co_await yield();
        const std::size_t left = co_await left_over(link.b);
        CHECK(left == 0);
    });
}

CALLS_CASE("a service's limit of bytes makes its callers wait, and no more than one request lies beyond it") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        service one({.running = 100, .bytes = 1000});
        std::size_t begun = 0;
        std::size_t most = 0;
        event go;
        one.on(narrow::note, [&](call_context&, std::string) -> task<> {
            ++begun;
            most = std::max(most, one.bytes());
            co_await go.wait();
        });
        service other;
        other.on(broad::twice, [](call_context&, int n) -> task<int> { co_return 2 * n; });
        server.serve(one);
        server.serve(other);
        const std::string text(200, 'x');
        task_group sending;
        constexpr std::size_t casts = 50;
        for (std::size_t n = 0; n < casts; ++n)
            sending.spawn([&]() -> task<> { co_await client.cast(narrow::note, text); });
        while (begun != 4) co_await yield();
        const int twice = co_await timeout(client.call(broad::twice, 21), 30s);
        CHECK(twice == 42);
        for (int n = 0; n < 100; ++n) co_await yield();
        CHECK(begun == 4);  // of 218 bytes each
        CHECK(one.running() == 4);
        CHECK(one.bytes() <= 1000);
        const auto& stored = link.b.connection().mailbox().matching();
        while (stored.unexpected() < casts - 5) co_await yield();
        CHECK(stored.unexpected() == casts - 5);  // one is beyond the limit
        go.set();
        co_await sending.join();
        while (begun != casts || one.running() != 0) co_await yield();
        CHECK(most <= 1000);
        CHECK(one.bytes() == 0);
        // One that is longer than the limit has the service for itself.
        const std::string longer(5000, 'y');
        co_await client.cast(narrow::note, longer);
        while (begun != casts + 1 || one.running() != 0) co_await yield();
        CHECK(one.bytes() == 0);
    });
}

CALLS_CASE("peers of one service have its limit together, and one that goes leaves its share") {
    run_in(over, [](two_domains& w) -> task<> {
        service one({.running = 4});
        std::size_t begun[3] = {};
        one.on(crowd::wait, [&](call_context&, std::uint32_t from) -> task<> {
            ++begun[from];
            co_await sleep_for(1h);
        });
        std::vector<two_domains::pair> links;
        std::vector<std::unique_ptr<any_calls>> servers;
        std::vector<std::unique_ptr<any_calls>> clients;
        for (int n = 0; n < 3; ++n) {
            links.push_back(co_await w.connected());
            servers.push_back(links.back().b.make_calls());
            servers.back()->serve(one);
            clients.push_back(links.back().a.make_calls());
        }
        task_group waiting;
        std::size_t lost = 0;
        const auto wait = [&](std::uint32_t by) -> task<> {
            const auto ended = co_await as_result(clients[by]->call(crowd::wait, by));
            if (ended.error() == errc::closed) ++lost;
        };
        for (std::uint32_t n = 0; n < 12; ++n) waiting.spawn(wait, n % 3);
        while (one.running() != 4) co_await yield();
        for (int n = 0; n < 100; ++n) co_await yield();
        CHECK(begun[0] + begun[1] + begun[2] == 4);
        // What two of them have is the third's when they go.
        links[0].a.abort();
        links[1].a.abort();
        while (begun[2] != 4) co_await yield();
        CHECK(one.running() <= 4);
        links[2].a.abort();
        co_await timeout(waiting.join(), 30s);
        CHECK(lost == 12);
        while (one.running() != 0) co_await yield();
        CHECK(one.bytes() == 0);
        clients.clear();
        servers.clear();
    });
}

namespace {
/// Asks for so many rows, all of it at once, and receives none.
task<> ask_for_rows(peer& raw, tag_type first, std::uint64_t count) {
    using rows = std::remove_const_t<decltype(broad::rows)>;
    encoder request;
    request.write(detail::request_head{rows::number, rows::signature, 0});
    request.write(std::uint32_t{1000});
    for (std::uint64_t n = 0; n < count; ++n)
        co_await raw.send(const_buffers(request.pieces()),
                          detail::call_tag(detail::call_kind::request, first + n, rows::service));
}
}  // namespace

CALLS_CASE("peers that take no answers leave a service to the others, and wait for their own") {
    const bool at_a_time = GENERATE(false, true);  // whether all handlers run before the first has ended
    run_in(over, [at_a_time](two_domains& w) -> task<> {
        service one({.running = 8});
        std::size_t begun = 0;
        event go;
        one.on(broad::rows, [&](call_context&, std::uint32_t count) -> task<std::vector<std::vector<float>>> {
            ++begun;
            if (at_a_time) co_await go.wait();
            co_return std::vector<std::vector<float>>(count, std::vector<float>(256));
        });
        one.on(broad::twice, [](call_context&, int n) -> task<int> { co_return 2 * n; });
        std::vector<two_domains::pair> links;
        std::vector<std::unique_ptr<any_calls>> servers;
        for (int n = 0; n < 3; ++n) {
            links.push_back(co_await w.connected());
            servers.push_back(links.back().b.make_calls());
            servers.back()->serve(one);
        }
        const auto client = links[2].a.make_calls();
        constexpr std::uint64_t most = 8;
        for (std::size_t n = 0; n < 2; ++n) {
            begun = 0;
            go.reset();
            co_await ask_for_rows(links[n].a, 1000, 3 * most);
            if (at_a_time) {
                while (one.running() != most) co_await yield();
                go.set();
            }
            while (begun < most) co_await yield();
            const int twice = co_await timeout(client->call(broad::twice, 21), 20s);
            CHECK(twice == 42);
            while (one.running() > most / 2) co_await yield();
            CHECK(one.bytes() == 0);
            for (int turn = 0; turn < 1000; ++turn) co_await yield();
            // The handlers that ran when as many answers waited have ended; no further request of that peer's was taken.
            CHECK(begun < 2 * most);
        }
        for (std::size_t n = 0; n < 2; ++n) {
            for (std::uint64_t call = 0; call < 3 * most; ++call) {
                const message rows = co_await timeout(
                    links[n].a.recv_lent(detail::call_tag(detail::call_kind::answer, 1000 + call)), 20s);
                CHECK(rows.size() > 1'000'000);
            }
        }
        while (one.running() != 0) co_await yield();
        CHECK(one.bytes() == 0);
        for (auto& link : links) link.a.abort();
        servers.clear();
    });
}

CALLS_CASE("an answer for which there is no memory ends its call with an error, and no other") {
    if (!counts_allocations) {
        SUCCEED("no allocation can be made to fail here");
        return;
    }
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
        std::optional<failing_allocations> none;
        const auto make = [&](std::uint32_t count) {
            std::vector<std::vector<float>> all(count, std::vector<float>(300));
            // The list of the answer's pieces, of 16 bytes each, when there are more than 2048.
            if (count > 1024) none.emplace(65536U, 65536U);
            return all;
        };
        service one;
        one.on(broad::rows, [&](call_context&, std::uint32_t count) -> task<std::vector<std::vector<float>>> {
            co_return make(count);
        });
        one.on(broad::rows_now, [&](call_context&, std::uint32_t count) { return make(count); });
        server.serve(one);
        const auto fails_once = [&](const auto& rows) -> task<> {
            const auto few = co_await timeout(client.call(rows, 10U), 30s);
            CHECK(few.size() == 10);
            const auto sent_before = link.a.counts().messages_sent;
            const auto failed = co_await as_result(timeout(client.call(rows, 1200U), 30s));
            CHECK(none.has_value());
            none.reset();
            CHECK(failed.error() == errc::no_resources);
            CHECK(link.a.counts().messages_sent > sent_before);
            const auto again = co_await timeout(client.call(rows, 200U), 30s);
            CHECK(again.size() == 200);
            CHECK(one.running() == 0);
        };
        co_await fails_once(broad::rows);
        co_await fails_once(broad::rows_now);
    });
}

TEST_CASE("a lack of memory for a handler ends its link, so that no caller waits for ever") {
    if (!counts_allocations) {
        SUCCEED("no allocation can be made to fail here");
        return;
    }
    // On a thread of its own, which has no memory of frames that have ended.
    std::jthread([] {
        scheduler on;
        on.run([]() -> task<> {
            auto listening = co_await listen<shm>("shm://no-memory-" + std::to_string(::getpid()));
            auto accepting = start(listening.accept());
            auto a = co_await connect<shm>(listening.address());
            auto b = co_await accepting;
            std::size_t begun = 0;
            service one;
            one.on(kv::add, [&](call_context&, std::uint64_t x, std::uint64_t y) -> task<std::uint64_t> {
                ++begun;
                co_return x + y;
            });
            {
                calls<shm> server(b, one);
                co_await ask_to_add(a, 5);
                {
                    const failing_allocations none(1, ~std::size_t{0});
                    for (int n = 0; n < 100; ++n) co_await yield();
                }
                const auto ended = co_await as_result(
                    timeout(a.recv_lent(detail::call_tag(detail::call_kind::answer, 5)), 30s));
                CHECK(ended.error() == errc::peer_lost);
                CHECK(begun == 0);
            }
            CHECK(one.running() == 0);
            a.abort();
        }());
    }).join();
}

CALLS_CASE("cancellations that come late do not make one be forgotten that comes early") {
    run_ends(over, [](calls_link link) -> task<> {
        shop there;
        const auto server = link.b.make_calls();
        server->serve(there.store);
        auto& raw = link.a;
        constexpr std::uint64_t many = 400;
        for (std::uint64_t n = 1; n <= many; ++n) {
            co_await ask_to_add(raw, n);
            const detail::answer_head said = co_await answer_to(raw, n);
            CHECK(said.outcome == a_value);
        }
        co_await say_canceled(raw, many + 2);                                    // its request comes later
        for (std::uint64_t n = 1; n <= 200; ++n) co_await say_canceled(raw, n);  // these have ended long ago
        co_await ask_to_add(raw, many + 1);
        const detail::answer_head other = co_await answer_to(raw, many + 1);
        CHECK(other.outcome == a_value);
        co_await ask_to_add(raw, many + 2);
        const detail::answer_head early = co_await answer_to(raw, many + 2);
        CHECK(early.outcome == a_call_error);
        CHECK(early.code == static_cast<std::int32_t>(call_errc::stopped));
        // Of the late ones nothing was answered.
        co_await ask_to_add(raw, many + 3);
        co_await answer_to(raw, many + 3);
        CHECK(raw.discard({detail::call_tag(detail::call_kind::answer, 0),
                           detail::calls_bit | detail::kind_bits}) == 0);
    });
}

CALLS_CASE(
    "cancellations of calls that wait for a full service, by their numbers alone, leave others their turns") {
    run_ends(over, [](calls_link link) -> task<> {
        event go;
        service one({.running = 1});
        one.on(kv::add, [&](call_context&, std::uint64_t a, std::uint64_t b) -> task<std::uint64_t> {
            co_await go.wait();
            co_return a + b;
        });
        const auto server = link.b.make_calls();
        server->serve(one);
        auto& raw = link.a;
        constexpr std::uint64_t many = 200;
        for (std::uint64_t n = 1; n <= many; ++n) co_await ask_to_add(raw, n);
        while (one.running() == 0) co_await yield();
        // As many as a message of the library's has, of calls that there are not.
        std::vector<detail::note_head> notes;
        for (std::uint64_t n = 0; n < 512; ++n)
            notes.push_back({static_cast<std::uint32_t>(detail::note_kind::cancel),
                             static_cast<std::uint32_t>(detail::call_kind::answer), 10'000 + n});
        notes.push_back({static_cast<std::uint32_t>(detail::note_kind::cancel),
                         static_cast<std::uint32_t>(detail::call_kind::answer), many});
        const auto send_notes = [&](std::size_t from, std::size_t count) -> task<> {
            co_await raw.send(std::as_bytes(std::span(notes).subspan(from, count)),
                              detail::call_tag(detail::call_kind::note, 0));
        };
        co_await send_notes(0, 512);
        co_await send_notes(512, 1);
        std::size_t turns = 0;
        bool answered = false;
        task_group beside;
        beside.spawn([&]() -> task<> {
            while (!answered) {
                co_await yield();
                ++turns;
            }
        });
        const detail::answer_head last = co_await answer_to(raw, many);
        answered = true;
        co_await beside.join();
        CHECK(last.outcome == a_call_error);
        CHECK(last.code == static_cast<std::int32_t>(call_errc::stopped));
        CHECK(turns >= 500);
        go.set();
        const detail::answer_head first = co_await answer_to(raw, 1);
        CHECK(first.outcome == a_value);
        // More than that are none of the library's.
        co_await send_notes(0, 513);
        const auto gone = co_await as_result(timeout(raw.recv_lent(tag_match(1)), 30s));
        CHECK_FALSE(gone);
        CHECK(gone.error() != errc::timed_out);
        while (one.running() != 0) co_await yield();
    });
}

CALLS_CASE("a handler that ends well after its calls object was told to end is answered with its value") {
    run_ends(over, [](calls_link link) -> task<> {
        service store;
        std::size_t began = 0;
        std::size_t told = 0;
        const auto stays = [&]() -> task<> {
            ++began;
            const auto slept = co_await as_result(sleep_for(std::chrono::hours(1)));
            if (slept.error() == errc::canceled) ++told;
        };
        store.on(kv::add, [&](call_context&, std::uint64_t a, std::uint64_t b) -> task<std::uint64_t> {
            co_await stays();
            co_return a + b;
        });
        store.on(kv::get, [&](call_context&, std::string key) -> task<std::string> {
            co_await stays();
            co_return std::string(20'000, key.at(0));
        });
        std::optional server(link.b.make_calls());
        (*server)->serve(store);
        const auto client = link.a.make_calls();
        auto number = start(as_result(client->call(kv::add, 1U, 2U)));
        auto text = start(as_result(client->call(kv::get, "x")));
        while (began != 2) co_await yield();
        server.reset();  // the handlers do not mind
        CHECK(told == 2);
        const auto sum = co_await timeout(number, 30s);
        REQUIRE(sum);
        CHECK(*sum == 3);
        const auto row = co_await timeout(text, 30s);
        REQUIRE(row);
        CHECK(*row == std::string(20'000, 'x'));
    });
}

}  // namespace test_service_calls_faults
