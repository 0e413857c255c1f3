#include <rdmacoro/service/detail/rank_link.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"

#include <rdmacoro/coro/start.hpp>

#include <array>
#include <chrono>

namespace test_service_detail_rank_link {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr tag_type tag = detail::group_tag(1, 900, 0);

}  // namespace

TEST_CASE("transfers that begin before the connection is there go over it, in their order") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await open_unchecked(all);
        scheduler& on = detail::running_scheduler();
        detail::rank_peer& other = all.links(0).peer(1);
        detail::rank_peer& first = all.links(1).peer(0);
        CHECK(other.link == nullptr);
        std::array<std::byte, 1> one{std::byte{1}}, two{std::byte{2}}, got_one{}, got_two{};
        auto sends_one = start(detail::rank_send(other, on, one, tag));
        auto sends_two = start(detail::rank_send(other, on, two, tag));
        auto gets_one = start(detail::rank_receive(first, on, got_one, tag));
        auto gets_two = start(detail::rank_receive(first, on, got_two, tag));
        co_await gets_two;
        co_await gets_one;
        co_await sends_one;
        co_await sends_two;
        CHECK(got_one == one);
        CHECK(got_two == two);
        CHECK(other.link != nullptr);
    });
}

TEST_CASE("a transfer that waits for a connection is canceled like any other, and leaves the others in their "
          "order") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await open_unchecked(all);
        scheduler& on = detail::running_scheduler();
        detail::rank_peer& other = all.links(0).peer(1);
        other.connecting = true;  // not yet
        std::array<std::byte, 1> one{std::byte{1}}, two{std::byte{2}}, into{};
        local_stop_source stop;
        auto canceled = start(with_stop(detail::rank_send(other, on, one, tag), stop.get_token()));
        auto goes = start(detail::rank_send(other, on, two, tag));
        auto receive = start(with_stop(detail::rank_receive(other, on, into, tag), stop.get_token()));
        stop.request_stop();
        const auto first = co_await as_result(canceled);
        REQUIRE(!first);
        CHECK(first.error() == errc::canceled);
        const auto third = co_await as_result(receive);
        REQUIRE(!third);
        CHECK(third.error() == errc::canceled);
        other.connecting = false;
        all.links(0).want(other);
        co_await goes;
        const received got = co_await detail::rank_receive(all.links(1).peer(0), on, into, tag);
        CHECK(got.bytes == 1);
        CHECK(into == two);
    });
}

TEST_CASE("transfers with a rank that is lost end at once with the reason") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await open_unchecked(all);
        scheduler& on = detail::running_scheduler();
        detail::rank_peer& other = all.links(0).peer(1);
        std::array<std::byte, 1> memory{};
        auto waits = start(detail::rank_receive(other, on, memory, tag));
        other.connecting = true;
        all.links(0).ended(1, make_error_code(errc::peer_lost));
        const auto ended = co_await as_result(waits);
        REQUIRE(!ended);
        CHECK(ended.error() == errc::peer_lost);
        const auto send = co_await as_result(detail::rank_send(other, on, memory, tag));
        REQUIRE(!send);
        CHECK(send.error() == errc::peer_lost);
        const auto receive = co_await as_result(detail::rank_receive(other, on, memory, tag));
        REQUIRE(!receive);
        CHECK(receive.error() == errc::peer_lost);
    });
}

TEST_CASE("messages of groups that were left are dropped in the time of looking at each once") {
    run_nodes([]() -> task<> {
        constexpr std::uint32_t each = 4000;
        ranks<sim> all(2);
        co_await open_unchecked(all);
        scheduler& on = detail::running_scheduler();
        detail::rank_peer& other = all.links(0).peer(1);
        detail::rank_peer& first = all.links(1).peer(0);
        std::array<std::byte, 1> one{std::byte{1}}, into{};
        for (std::uint32_t n = 0; n < each; ++n)
            co_await detail::rank_send(first, on, one, detail::group_tag(6, n, 0));
        co_await detail::rank_send(first, on, one, tag);  // of a group that is there
        co_await until([&] { return other.link != nullptr && other.link->unread() == each + 1; });
        const auto now = [] { return std::chrono::steady_clock::now(); };
        const auto began = now();
        std::size_t stale = 0;
        for (std::uint32_t n = 0; n < 100 * each; ++n)
            stale += detail::is_stale(all.links(0), detail::group_tag(6, n % each, 0)) ? 1 : 0;
        const auto looked = now();
        all.links(0).drop_stale();
        const auto took = now() - looked;
        CHECK(stale == 100 * each);
        CAPTURE(took.count(), (looked - began).count());
        // From the beginning for each message, it would look at all of them 2,000 times.
        CHECK(took < looked - began);
        CHECK(other.link->unread() == 1);
        co_await detail::rank_receive(other, on, into, tag);
    });
}

}  // namespace test_service_detail_rank_link
