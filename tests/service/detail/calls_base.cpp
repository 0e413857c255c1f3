#include <rdmacoro/service/detail/calls_base.hpp>

#include "support/calls_pair.hpp"
#include "support/child_process.hpp"
#include "support/death.hpp"

#include <csignal>
#include <optional>

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE(
    "a calls object that is destroyed while a call of it is under way ends the process with a message") {
    const death seen = dies([] {
        run_pair<shm_as_it_comes>([](auto& client, auto&, shop&) -> task<> {
            std::optional<calls<shm>> mine;
            auto& over = client.over();
            mine.emplace(over);
            auto waiting = start(mine->call(kv::wait));
            mine.reset();
            co_await waiting;
        });
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, Catch::Contains("a calls object was destroyed while calls of it were under way"));
}

TEMPLATE_LIST_TEST_CASE("a calls object that ends stops its handlers, and waits for them", "", every_kind) {
    using T = typename TestType::transport_type;
    scheduler on;
    const auto domain = TestType::open(on);
    on.run([](typename T::domain& here, std::string address) -> task<> {
        connected_pair<T> link = co_await connected_ends<T>(here, address);
        shop there;
        calls<T> client(link.a);
        std::optional<calls<T>> server(std::in_place, link.b, there.store);
        auto waiting = start(client.call(kv::wait));
        while (there.waiting == 0) co_await yield();
        CHECK(there.store.running() == 1);
        server.reset();
        CHECK(there.store.running() == 0);
        CHECK(there.stopped == 1);
        link.b.abort();
        const auto ended = co_await as_result(timeout(waiting, 10s));
        CHECK_FALSE(ended);
        CHECK(ended.error() != errc::timed_out);
    }(*domain, TestType::address()));
}

namespace {
/// The client of a server that dies: calls of every kind end with an error, and nothing hangs.
template <class T>
task<> outlives_its_server(typename T::domain& in, std::string where, child_process& child) {
    auto listening = co_await listen<T>(in, where);
    child.tell(listening.address());
    endpoint<T> end = co_await timeout(listening.accept(), 30s);
    {
        calls<T> client(end);
        const std::uint64_t sum = co_await timeout(client.call(kv::add, 1U, 2U), 30s);
        CHECK(sum == 3);
        std::vector<float> row(1 << 20);
        auto waiting = start(client.call(kv::wait));
        auto rows = co_await timeout(client.open(kv::scan, 1000000000U), 30s);
        auto filling = start(client.call(kv::fill, 1U << 22));
        auto summing = start(client.call(kv::sum, row));
        for (int i = 0; i < 10; ++i) {
            const auto one = co_await timeout(rows.next(), 30s);
            CHECK(one);
        }
        child.kill();
        const auto lost = [](const std::error_code& code) {
            return code == errc::peer_lost || code == errc::closed;
        };
        const auto waited = co_await as_result(timeout(waiting, 30s));
        CHECK(lost(waited.error()));
        const auto filled = co_await as_result(timeout(filling, 30s));
        CHECK((filled || lost(filled.error())));
        const auto summed = co_await as_result(timeout(summing, 30s));
        CHECK((summed || lost(summed.error())));
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
template <class Variant>
void serve_until_killed(const std::string& address) {
    using T = typename Variant::transport_type;
    scheduler on{idle::yield{}};
    const auto domain = Variant::open(on);
    on.run([](auto& in, const std::string& where) -> task<> {
        auto end = co_await timeout(connect<T>(in, where), 30s);
        shop there;
        calls<T> server(end, there.store);
        co_await sleep_for(1h);
    }(*domain, address));
}
}  // namespace

TEMPLATE_LIST_TEST_CASE("calls of all kinds end with an error when their server is killed", "",
                        every_real_transport) {
    using T = typename TestType::transport_type;
    child_process child([](const std::string& address) { serve_until_killed<TestType>(address); });
    scheduler on;
    const auto domain = TestType::open(on);
    on.run(outlives_its_server<T>(*domain, TestType::address(), child));
}

TEMPLATE_LIST_TEST_CASE("handlers are asked to stop when their caller goes, and drain ends", "", every_kind) {
    run_pair<TestType>([](auto& client, auto& server, shop& there) -> task<> {
        auto waiting = start(client.call(kv::wait));
        while (there.waiting == 0) co_await yield();
        client.over().abort();
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

TEMPLATE_LIST_TEST_CASE(
    "calls that wait for a full service can all be canceled, before they run and for good", "", every_kind) {
    run_pair<TestType>([](auto& client, auto& server, shop&) -> task<> {
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
        const std::size_t at_client = co_await left_over(client);
        CHECK(at_client == 0);
        const std::size_t at_server = co_await left_over(server);
        CHECK(at_server == 0);
    });
}
