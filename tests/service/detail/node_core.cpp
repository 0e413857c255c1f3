#include <rdmacoro/service/detail/node_core.hpp>

#include "support/bare_node.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <rdmacoro/coro/coro.hpp>

#include <new>
#include <string>

namespace test_service_detail_node_core {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

node_hello hello_of(node_id from, std::uint64_t attempt = 1) {
    return {.to = 5,
            .to_born = {},
            .attempt = attempt,
            .from = {.id = from, .born = generation{from}, .host = {}, .urls = {}}};
}

using fixture = bare_node;

}  // namespace

TEST_CASE("between two hellos at once the one of the lower id is heard") {
    fixture f;
    const counted_ptr<node_peer> three = f.core->peer(3), seven = f.core->peer(7);
    three->hello_sent = seven->hello_sent = true;
    CHECK(f.core->judge(hello_of(3)) == welcome::accepted);
    CHECK(f.core->judge(hello_of(7)) == welcome::other_attempt);
    seven->hello_sent = false;
    CHECK(f.core->judge(hello_of(7)) == welcome::accepted);
}

TEST_CASE("a hello is compared with this node and with the book") {
    fixture f;
    node_hello hello = hello_of(3);
    hello.to = 6;
    CHECK(f.core->judge(hello) == welcome::other_node);
    CHECK(f.core->judge(hello_of(5)) == welcome::other_node);
    hello = hello_of(3);
    hello.to_born = f.core->self.born;
    CHECK(f.core->judge(hello) == welcome::accepted);
    hello.to_born = generation{static_cast<std::uint64_t>(f.core->self.born) + 1};
    CHECK(f.core->judge(hello) == welcome::other_generation);
    node_card card{.id = 3, .urls = {"tcp://a:1"}};
    card.host.network = 1;
    f.core->add(card);
    CHECK(f.core->judge(hello_of(3)) == welcome::other_host);
}

TEST_CASE("the book gives up what neither it nor a handle needs") {
    fixture f;
    f.core->add({.id = 3, .urls = {"tcp://a:1"}});
    CHECK(f.core->peers.size() == 1);
    CHECK(f.core->remove(3));
    CHECK(!f.core->remove(3));
    CHECK(f.core->peers.empty());
    {
        const counted_ptr<node_peer> handle = f.core->peer(4);
        CHECK(f.core->peers.size() == 1);
    }
    CHECK(f.core->peers.empty());
}

TEST_CASE("a peer for which there is no memory is not known afterwards") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    fixture f;
    {
        const failing_allocations none(sizeof(node_peer), sizeof(node_peer));
        CHECK_THROWS_AS(f.core->peer(3), std::bad_alloc);
    }
    CHECK(f.core->find(3).get() == nullptr);
    CHECK(f.core->peers.empty());
    CHECK(f.core->peer(3)->id == 3);
}

TEST_CASE("pauses get longer up to a limit, and a random part of up to a half less") {
    fixture f;
    duration longest = duration::zero();
    for (unsigned tries = 1; tries < 40; ++tries) {
        const duration pause = f.core->pause_after(tries);
        CHECK(pause >= f.options.first_pause / 2);
        CHECK(pause <= f.options.longest_pause);
        longest = std::max(longest, pause);
    }
    CHECK(longest > f.options.longest_pause / 2);
    CHECK(f.core->pause_after(30) != f.core->pause_after(30));
}

TEST_CASE("pauses that make no sense are some milliseconds") {
    for (const duration odd : {duration(-2), duration::min(), duration::zero(), duration::max()}) {
        fixture f;
        f.core->options.first_pause = odd;
        f.core->options.longest_pause = odd;
        for (unsigned tries = 1; tries < 100; ++tries) {
            const duration pause = f.core->pause_after(tries);
            CHECK(pause >= 500us);
            CHECK(deadline_after(f.core->owner.now(), pause) > f.core->owner.now());
            if (odd <= duration::zero()) CHECK(pause <= 1ms);
        }
    }
}

TEST_CASE("what waits for a connection ends when connecting is given up, with every attempt in the text") {
    fixture f;
    f.core->add({.id = 3, .urls = {"tcp://a:1"}});
    f.world.run([](fixture& all) -> task<> {
        const counted_ptr<node_peer> to = all.core->peer(3);
        auto waiting = start(node_core::connected(to, false, 0));
        CHECK(all.core->connects == 1);
        to->explained = "  tcp://a:1: nobody there\n";
        to->failure = make_error_code(errc::connection_refused);
        ++to->failures;
        to->change();
        std::string text;
        try {
            static_cast<void>(co_await waiting);
        } catch (const error& why) {
            text = why.what();
        }
        CHECK_THAT(text, contains("node 3") && contains("nobody there"));
    }(f));
}

TEST_CASE("what waits for a connection ends at the limit, whatever happens") {
    fixture f;
    f.core->add({.id = 3, .urls = {"tcp://a:1"}});
    f.world.run([](fixture& all) -> task<> {
        const auto got = co_await as_result(node_core::connected(all.core->peer(3), true, 0));
        CHECK(got.error() == errc::timed_out);
        const auto unmet = co_await as_result(node_core::connected(all.core->peer(8), true, 0));
        CHECK(unmet.error() == errc::address_invalid);
    }(f));
    CHECK(f.world.now() >= 2 * f.options.connect_limit);
}

TEST_CASE("a full queue of changes drops the oldest and says how many") {
    node_watcher queue(3);
    for (node_id n = 1; n <= 5; ++n) queue.tell({node_change::came, n, {}, {}, 0});
    CHECK(queue.take()->id == 3);
    queue.tell({node_change::came, 6, {}, {}, 0});
    CHECK(queue.take()->id == 4);
    CHECK(queue.take()->id == 5);
    CHECK(queue.take()->id == 6);
    CHECK(!queue.take());
    for (node_id n = 1; n <= 5; ++n) queue.tell({node_change::came, n, {}, {}, 0});
    const auto first = queue.take();
    CHECK(first->id == 3);
    CHECK(first->missed == 2);
}

TEST_CASE("a queue of changes has room for one at least, and takes no memory for what it will not hold") {
    node_watcher least(0);
    for (node_id n = 1; n <= 3; ++n) least.tell({node_change::came, n, {}, {}, 0});
    const auto only = least.take();
    CHECK(only->id == 3);
    CHECK(only->missed == 2);
    CHECK(!least.take());
    node_watcher most(static_cast<std::size_t>(-1));
    most.tell({node_change::came, 7, {}, {}, 0});
    CHECK(most.take()->id == 7);
}

}  // namespace test_service_detail_node_core
