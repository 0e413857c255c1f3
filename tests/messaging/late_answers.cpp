// Receives that are canceled for good: their messages are dropped when they come, and what they held goes back.
#include <rdmacoro/rdmacoro.hpp>

#include "support/late_answers.hpp"
#include "support/over/lists.hpp"
#include "support/over/matching_loopback_variants.hpp"
#include "support/over/shm_variants.hpp"
#include "support/over/sim_variants.hpp"

#include <deque>
#include <tuple>

namespace test_messaging_late_answers {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {
using ways = std::tuple<late_answers<shm_as_it_comes>, late_answers<shm_as_it_comes, lists::get>,
                        late_answers<sim_plain>, late_answers<sim_that_announces, lists::speculative_get>,
                        late_answers<matched_with_little_room>>;
using ordered_ways = std::tuple<late_answers<shm_as_it_comes>, late_answers<shm_as_it_comes, lists::get>,
                                late_answers<sim_that_announces, lists::speculative_get>>;
using over_shm_alone = late_answers<shm_as_it_comes>;

template <class World, class Body>
void with_world(Body body, mailbox_options of_client = {}) {
    scheduler on{impatient{}};
    on.run([](scheduler& here, Body& run, mailbox_options options) -> task<> {
        World w(here);
        co_await w.open(options);
        co_await run(w);
    }(on, body, of_client));
}
}  // namespace

TEMPLATE_LIST_TEST_CASE("late answers of 900 KB, one after the other, take nothing from the link", "", ways) {
    with_world<TestType>([](TestType& w) -> task<> { co_await many_late_answers(w, 60, 900'000); });
}

TEST_CASE("late answers by the hundred and by the thousand leave the link as it was") {
    with_world<over_shm_alone>([](over_shm_alone& w) -> task<> {
        co_await many_late_answers(w, 300, 900'000);
        co_await many_late_answers(w, 5000, 100);
    });
}

TEMPLATE_LIST_TEST_CASE("answers may come after all requests were given up", "", ways) {
    with_world<TestType>([](TestType& w) -> task<> { co_await answers_after_all_gave_up(w, 1000); });
}

TEMPLATE_LIST_TEST_CASE("a canceled receive that discards keeps its place in the order", "", ordered_ways) {
    with_world<TestType>([](TestType& w) -> task<> {
        co_await keeps_its_place(w, 100);
        co_await keeps_its_place(w, 300'000);
    });
}

TEMPLATE_LIST_TEST_CASE("discard drops what waits and matches, and nothing else", "", ways) {
    with_world<TestType>([](TestType& w) -> task<> {
        co_await drops_what_waits(w, 100, 3);
        co_await drops_what_waits(w, 300'000, 30);
    });
}

TEST_CASE("a message that was to be discarded when there are too many such receives stays") {
    mailbox_options few;
    few.canceled_receives = 2;
    with_world<over_shm_alone>(
        [](over_shm_alone& w) -> task<> {
            std::uint64_t value = 0;
            for (tag_type n = 0; n < 3; ++n)
                co_await give_up(w.client.recv(bytes_of(value), n, discard_if_canceled));
            CHECK(w.box().discarding().posted() == 2);
            for (tag_type n = 0; n < 3; ++n) co_await w.server.send(bytes_of(n), n);
            co_await w.client.recv(bytes_of(value), 2);
            CHECK(value == 2);
            co_await all_dropped(w);
        },
        few);
}

TEST_CASE("a receive that is canceled without asking for that leaves its message to others") {
    with_world<over_shm_alone>([](over_shm_alone& w) -> task<> {
        std::uint64_t value = 0;
        co_await give_up(w.client.recv(bytes_of(value), 1));
        const std::uint64_t said = 5;
        co_await w.server.send(bytes_of(said), 1);
        co_await timeout(w.client.recv(bytes_of(value), 1), 20s);
        CHECK(value == 5);
    });
}

TEST_CASE("receives that discard end with their link") {
    with_world<over_shm_alone>([](over_shm_alone& w) -> task<> {
        std::uint64_t value = 0;
        for (tag_type n = 0; n < 1000; ++n)
            co_await give_up(w.client.recv(bytes_of(value), n, discard_if_canceled));
        auto closing = start(w.server.close());
        while (w.box().matching().posted() != 0) co_await yield();
        CHECK(w.box().discarding().posted() == 0);
        // A later one leaves nothing behind: no message can come.
        co_await never_begin(w.client.recv(bytes_of(value), 1, discard_if_canceled));
        CHECK(w.box().discarding().posted() == 0);
        w.client.abort();
        co_await closing;
    });
}

TEST_CASE("an endpoint with late answers on their way may be attached, and a mailbox drops them as well") {
    with_world<over_shm_alone>([](over_shm_alone& w) -> task<> {
        const std::vector<std::byte> answer(900'000, std::byte{7});
        std::vector<std::byte> into(900'000);
        co_await give_up(w.client.recv(into, 1, discard_if_canceled));
        mailbox<shm> peers(mailbox_options{});
        const peer_id id = peers.attach(std::move(w.client));
        CHECK(peers.base().discarding().posted() == 1);
        co_await timeout(w.server.send(answer, 1), 20s);
        for (tag_type n = 0; n < 200; ++n) {
            const peer_id source = n % 2 == 0 ? any_source : id;
            if (n % 4 < 2) {
                co_await give_up(peers.recv(into, n, source, discard_if_canceled));
            } else {
                co_await give_up(peers.recv_lent(n, source, discard_if_canceled));
            }
            co_await timeout(w.server.send(answer, n), 20s);
        }
        while (peers.base().matching().posted() != 0) co_await yield();
        CHECK(peers.base().store().live() == 0);
        auto first = start(w.server.send(answer, 8));
        auto second = start(w.server.send(answer, 9));
        co_await timeout(peers.probe(9), 20s);
        CHECK(peers.discard(9, id) == 1);
        CHECK(peers.discard() == 1);
        co_await timeout(first, 20s);
        co_await timeout(second, 20s);
        // What is left behind goes with its peer, or with the mailbox.
        co_await give_up(peers.recv(into, 1, id, discard_if_canceled));
        co_await give_up(peers.recv(into, 1, any_source, discard_if_canceled));
        CHECK(peers.base().discarding().posted() == 2);
        peers.remove(id);
        CHECK(peers.base().discarding().posted() == 1);
    });
}

}  // namespace test_messaging_late_answers
