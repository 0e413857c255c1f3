#pragma once

// Answers that come after their receive was canceled, over a transport and list of the test's choice.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/run.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// Two ends of one link over `Way` with list `P`, on the scheduler that runs.
template <class Way, class P = default_protocols<typename Way::transport_type>>
struct late_answers {
    using transport = typename Way::transport_type;
    using end = endpoint<transport, P>;

    explicit late_answers(scheduler& on) : here(Way::open(on)), there(Way::open(on)) {}

    task<> open(mailbox_options of_client = {}) { return open_it(*this, of_client); }

    // The client's, which gives up; it is moved away where a mailbox has it.
    [[nodiscard]] detail::mailbox_base& box() { return client.connection().mailbox(); }

    std::unique_ptr<typename transport::domain> here;
    std::unique_ptr<typename transport::domain> there;
    end client;
    end server;

private:
    static task<> open_it(late_answers& w, mailbox_options of_client) {
        auto listening = co_await listen<transport, P>(*w.there, Way::address());
        auto accepting = start(listening.accept());
        w.client = co_await connect<transport, P>(*w.here, listening.address(), of_client);
        w.server = co_await accepting;
    }
};

/// Begins a receive and cancels it.
template <class Operation>
task<> give_up(Operation receiving) {
    local_stop_source stop;
    auto begun = start(as_result(with_stop(std::move(receiving), stop.get_token())));
    stop.request_stop();
    const auto outcome = co_await begun;
    REQUIRE_FALSE(outcome);
    CHECK(outcome.error() == errc::canceled);
}
/// Cancels a receive before it begins.
template <class Operation>
task<> never_begin(Operation receiving) {
    local_stop_source stop;
    stop.request_stop();
    const auto outcome = co_await as_result(with_stop(std::move(receiving), stop.get_token()));
    REQUIRE_FALSE(outcome);
    CHECK(outcome.error() == errc::canceled);
}

/// A short request and its answer.
template <class World>
task<> short_exchange(World& w) {
    std::uint64_t number = 17;
    auto asking = start(w.client.send(bytes_of(number), 1'000'000));
    std::uint64_t heard = 0;
    co_await timeout(w.server.recv(bytes_of(heard), 1'000'000), std::chrono::seconds(20));
    co_await asking;
    auto answering = start(w.server.send(bytes_of(heard), 1'000'001));
    std::uint64_t answer = 0;
    co_await timeout(w.client.recv(bytes_of(answer), 1'000'001), std::chrono::seconds(20));
    co_await answering;
    CHECK(answer == 17);
}

/// Waits until nothing waits in the client's mailbox for its message any more.
template <class World>
task<> all_dropped(World& w) {
    while (w.box().matching().posted() != 0 || w.box().store().live() != 0) co_await yield();
    CHECK(w.box().discarding().posted() == 0);
    CHECK(w.box().matching().unexpected() == 0);
}

/// Late answers of `bytes` each, of which the receive was canceled before, between and after.
template <class World>
task<> many_late_answers(World& w, tag_type count, std::size_t bytes) {
    const std::uint64_t received_before = w.client.counts().messages_received;
    const std::vector<std::byte> answer(bytes, std::byte{7});
    std::vector<std::byte> into(bytes);
    for (tag_type n = 0; n < count; ++n) {
        if (n % 3 == 0) co_await give_up(w.client.recv(into, n, discard_if_canceled));
        if (n % 3 == 1) co_await never_begin(w.client.recv(into, n, discard_if_canceled));
        auto answering = start(w.server.send(answer, n));
        if (n % 3 == 2) {
            co_await w.client.probe(n);
            co_await never_begin(w.client.recv(into, n, discard_if_canceled));
        }
        co_await timeout(answering, std::chrono::seconds(20));
    }
    co_await all_dropped(w);
    CHECK(w.client.counts().messages_received == received_before);
    co_await short_exchange(w);
}

/// All receives are canceled first, with several records at a time.
template <class World>
task<> answers_after_all_gave_up(World& w, tag_type count) {
    std::uint64_t value = 0;
    for (tag_type n = 0; n < count; ++n) {
        if (n % 2 == 0) co_await give_up(w.client.recv(bytes_of(value), n, discard_if_canceled));
        if (n % 2 == 1) co_await give_up(w.client.recv_lent(n, discard_if_canceled));
    }
    CHECK(w.box().discarding().posted() == count);
    for (tag_type n = 0; n < count; ++n)
        co_await timeout(w.server.send(bytes_of(n), n), std::chrono::seconds(20));
    co_await all_dropped(w);
    CHECK(value == 0);
    co_await short_exchange(w);
    // The memory of those that have ended is used again, a few at a time.
    const std::size_t before = w.box().discarding().footprint();
    for (tag_type n = 0; n < count; ++n) {
        co_await give_up(w.client.recv(bytes_of(value), 5, discard_if_canceled));
        co_await timeout(w.server.send(bytes_of(n), 5), std::chrono::seconds(20));
        co_await all_dropped(w);
    }
    CHECK(w.box().discarding().footprint() < before / 4 + 4096);
}

/// The canceled receive keeps its place: of two messages that it and another could take, it takes the first.
template <class World>
task<> keeps_its_place(World& w, std::size_t bytes) {
    const std::vector<std::byte> first(bytes, std::byte{1});
    const std::vector<std::byte> second(bytes, std::byte{2});
    std::vector<std::byte> into(bytes);
    co_await give_up(w.client.recv(into, 5, discard_if_canceled));
    auto receiving = start(w.client.recv(into, 5));
    auto sending = start(w.server.send(first, 5));
    auto sending_more = start(w.server.send(second, 5));
    const received got = co_await timeout(receiving, std::chrono::seconds(20));
    CHECK(got.bytes == bytes);
    CHECK(into == second);
    co_await sending;
    co_await sending_more;
    co_await all_dropped(w);
}

/// Messages that wait are dropped by the tags asked for, and their credit goes back.
template <class World>
task<> drops_what_waits(World& w, std::size_t bytes, int rounds) {
    const std::vector<std::byte> data(bytes, std::byte{1});
    for (int n = 0; n < rounds; ++n) {
        auto odd = start(w.server.send(data, 1));
        auto even = start(w.server.send(data, 2));
        auto other_odd = start(w.server.send(data, 3));
        co_await timeout(w.client.probe(3), std::chrono::seconds(20));
        CHECK(w.client.discard(4) == 0);
        CHECK(w.client.discard(tag_match(1, 1)) == 2);
        CHECK(w.client.discard(tag_match(1, 1)) == 0);
        CHECK(w.client.discard() == 1);
        co_await timeout(odd, std::chrono::seconds(20));
        co_await timeout(even, std::chrono::seconds(20));
        co_await timeout(other_odd, std::chrono::seconds(20));
        co_await all_dropped(w);
    }
    CHECK(w.client.discard() == 0);
    co_await short_exchange(w);
}

}  // namespace rdmacoro::test
