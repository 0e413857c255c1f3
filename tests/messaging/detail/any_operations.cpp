#include <rdmacoro/messaging/detail/any_operations.hpp>

#include "support/catch.hpp"
#include "support/pattern.hpp"
#include "support/scripted_peer.hpp"

#include <type_traits>

namespace test_messaging_detail_any_operations {

using namespace rdmacoro;
using namespace rdmacoro::test;
using rdmacoro::detail::any_connection;
using rdmacoro::detail::any_lent_receive;
using rdmacoro::detail::any_receive;
using rdmacoro::detail::any_send;

static_assert(std::is_nothrow_move_constructible_v<any_send>);
static_assert(std::is_nothrow_move_constructible_v<any_lent_receive>);
static_assert(std::is_nothrow_move_constructible_v<any_receive>);

namespace {
void over_any_connection(task<> (*body)(scripted_peer&, any_connection)) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(scripted_peer&, any_connection)) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        co_await run(peer, any_connection(peer.self().connection()));
    }(world.on, body));
}
}  // namespace

TEST_CASE("operations of any connection are those of its endpoint") {
    over_any_connection([](scripted_peer& peer, any_connection link) -> task<> {
        CHECK(&link.owner() == &peer.self().owner());
        const auto short_one = pattern(10, 1);
        const auto long_one = pattern(30000, 2);
        co_await any_send(link, std::span<const std::byte>(short_one), 1);
        const heard_message said = co_await peer.hear();
        CHECK(said.header.tag == 1);
        CHECK(said.payload == short_one);

        peer.say(wire_kind::eager, 2, short_one);
        const message lent = co_await any_lent_receive(link, 2);
        CHECK(is_pattern(lent.bytes(), 1));
        CHECK(lent.tag() == 2);

        auto stays = any_lent_receive(link, 3);
        auto pending = start(std::move(stays));
        CHECK_FALSE(pending.done());
        peer.say(wire_kind::eager, 3, std::span(long_one).first(2000));
        const message other = co_await pending;
        CHECK(is_pattern(other.bytes(), 2));

        std::vector<std::byte> into(10);
        peer.say(wire_kind::eager, 4, short_one);
        const received got = co_await any_receive(link, 4, mutable_buffers(into));
        CHECK(got.bytes == 10);
        CHECK(into == short_one);
        peer.say(wire_kind::eager, 5, long_one);
        const auto longer = co_await as_result(any_receive(link, 5, mutable_buffers(into)));
        CHECK(longer.error() == errc::truncated);
    });
}

TEST_CASE("a canceled receive of any connection drops its message if it is asked to") {
    over_any_connection([](scripted_peer& peer, any_connection link) -> task<> {
        const auto bytes = pattern(10, 1);
        local_stop_source stop;
        auto pending = start(with_stop(any_lent_receive(link, 7, true), stop.get_token()));
        auto keeps = start(with_stop(any_lent_receive(link, 8), stop.get_token()));
        co_await yield();
        stop.request_stop();
        const auto dropped = co_await as_result(pending);
        CHECK(dropped.error() == errc::canceled);
        const auto kept = co_await as_result(keeps);
        CHECK(kept.error() == errc::canceled);
        // And one that is canceled before it begins.
        const auto unbegun = co_await as_result(with_stop(any_lent_receive(link, 9, true), stop.get_token()));
        CHECK(unbegun.error() == errc::canceled);
        for (const tag_type tag : {7U, 8U, 9U}) peer.say(wire_kind::eager, tag, bytes);
        const received seen = co_await peer.self().probe();
        CHECK(seen.tag == 8);
        CHECK(peer.self().discard() == 1);
    });
}

TEST_CASE("a canceled send of any connection is withdrawn while it waits") {
    over_any_connection([](scripted_peer& peer, any_connection link) -> task<> {
        const auto bytes = pattern(4000, 1);
        local_stop_source stop;
        task_group sends;
        std::error_code last;
        while (peer.self().counts().credit_waits == 0) {  // the peer gives none back
            sends.spawn([&]() -> task<> {
                const auto sent = co_await as_result(
                    with_stop(any_send(link, std::span<const std::byte>(bytes), 1), stop.get_token()));
                last = sent.error();
            });
            co_await yield();
        }
        for (int n = 0; n < 5; ++n) co_await yield();
        CHECK(sends.size() == 1);
        CHECK_FALSE(last);
        stop.request_stop();
        co_await sends.join();
        CHECK(last == errc::canceled);
        peer.self().abort();
        const auto after = co_await as_result(any_send(link, std::span<const std::byte>(bytes), 1));
        CHECK(after.error() == errc::closed);
    });
}

}  // namespace test_messaging_detail_any_operations
