#include <rdmacoro/service/detail/rank_links.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/ranks.hpp"
#include "support/with_variable.hpp"

#include <rdmacoro/coro/start.hpp>

#include <array>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace test_service_detail_rank_links {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

std::vector<std::byte> revocation(std::uint32_t context, std::uint32_t by) {
    group_word word;
    word.kind = static_cast<std::uint8_t>(word_kind::revoke);
    word.context = context;
    word.by = by;
    word.category = 1;
    word.why = static_cast<int>(group_errc::revoked);
    word.text = "said early";
    return encode_word(word);
}

}  // namespace

TEST_CASE("a word that is none, or of a rank that is not of its group, ends the connection; one of no group "
          "here does not") {
    run_nodes([]() -> task<> {
        ranks<rdmacoro::sim> all(3);
        co_await all.open();
        rank_links& links = all.links(0);
        const std::array<std::byte, 5> garbage{std::byte{9}};
        CHECK(!links.word_arrived(1, garbage));
        CHECK(!links.word_arrived(1, {}));
        CHECK(!links.word_arrived(1, revocation(7, 3)));  // of four ranks or more
        CHECK(links.word_arrived(1, revocation(7, 2)));
        const counted_ptr<group_state> pair(
            new group_state(counted_ptr<rank_links>(&links), {0, 1}, 9, &default_collectives::choose));
        CHECK(!links.word_arrived(2, revocation(9, 0)));
        CHECK(!pair->failure());
        CHECK(links.word_arrived(1, revocation(9, 1)));
        CHECK(pair->failure());
        CHECK(!all.at(0).failure());
    });
}

TEST_CASE("what was said early of a group counts when it begins, if one of its ranks said it") {
    run_nodes([]() -> task<> {
        ranks<rdmacoro::sim> all(3);
        co_await all.open();
        counted_ptr<rank_links> links(&all.links(0));
        CHECK(links->word_arrived(1, revocation(6, 1)));  // nothing is kept: no group is being named
        const rank_links::naming some(links);
        CHECK(links->word_arrived(2, revocation(4, 0)));
        CHECK(links->word_arrived(1, revocation(5, 1)));
        const counted_ptr<group_state> of_others(
            new group_state(links, {0, 1}, 4, &default_collectives::choose));
        CHECK(!of_others->failure());
        const counted_ptr<group_state> revoked(
            new group_state(links, {0, 1}, 5, &default_collectives::choose));
        REQUIRE(revoked->failure());
        CHECK(revoked->failure()->text == "said early");
        const counted_ptr<group_state> unspoken(
            new group_state(links, {0, 1}, 6, &default_collectives::choose));
        CHECK(!unspoken->failure());
        co_return;
    });
}

TEST_CASE("what was said early of a group and names ranks that it does not have is dropped") {
    run_nodes([]() -> task<> {
        ranks<rdmacoro::sim> all(4);
        co_await all.open();
        counted_ptr<rank_links> links(&all.links(0));
        const rank_links::naming some(links);
        const auto said = [&](std::uint64_t context, group_failure why) {
            return links->word_arrived(1, encode_word(word_of(why, context)));
        };
        group_failure why;
        why.why = make_error_code(errc::peer_lost);
        why.lost = {3};
        CHECK(said(4, why));
        why.lost = {1};
        why.absent = {2};
        CHECK(said(5, why));
        why.absent = {};
        why.by = 2;
        CHECK(said(6, why));
        why.by = 1;
        CHECK(said(7, why));
        for (const std::uint64_t context : {4u, 5u, 6u, 7u}) {
            const counted_ptr<group_state> pair(
                new group_state(links, {0, 1}, context, &default_collectives::choose));
            CHECK(pair->failure().has_value() == (context == 7));
        }
        co_return;
    });
}

TEST_CASE(
    "a question about a group that this rank does not have is answered once it is known whether it will") {
    run_nodes([]() -> task<> {
        ranks<rdmacoro::sim> all(2);
        co_await all.open();
        const auto connect = [](group& g) -> task<> { co_await g.barrier(); };
        co_await all.each(connect);
        counted_ptr<rank_links> links(&all.links(0));
        const counted_ptr<group_state> asking(
            new group_state(counted_ptr<rank_links>(&all.links(1)), {0, 1}, 6, &default_collectives::choose));
        const counted_ptr<group_state> alone(
            new group_state(counted_ptr<rank_links>(&all.links(1)), {0, 1}, 7, &default_collectives::choose));
        auto with_other = start(group_state::agree(asking.get()));
        auto without = start(group_state::agree(alone.get()));
        counted_ptr<group_state> entered;
        {
            const rank_links::naming some(links);
            for (int turn = 0; turn < 1000; ++turn) co_await yield();
            CHECK_FALSE(without.done());
            entered =
                counted_ptr<group_state>(new group_state(links, {0, 1}, 6, &default_collectives::choose));
        }
        const std::vector<unsigned> one{1};
        const std::vector<unsigned> both{0, 1};
        const group_state::agreement without_other = co_await timeout(without, 10s);
        CHECK(without_other.left == one);
        CHECK_FALSE(with_other.done());
        auto joining = start(group_state::agree(entered.get()));
        const group_state::agreement there = co_await timeout(with_other, 10s);
        const group_state::agreement here = co_await timeout(joining, 10s);
        CHECK(there.left == both);
        CHECK(here.left == both);
    });
}

namespace {
struct no_link final : rank_link {
    void send(send_request&) noexcept override {}
    void cancel_send(send_request&) noexcept override {}
    void receive(receive_request&) noexcept override {}
    void cancel_receive(receive_request&) noexcept override {}
    void drop_stale(const rank_links&) override {}
    std::size_t unread() noexcept override { return 0; }
    const metrics& counts() const noexcept override { return counted; }
    metrics counted{};
};
}  // namespace

TEST_CASE("the end of a connection whose place another one has taken is no loss of its rank") {
    run_nodes([]() -> task<> {
        ranks<rdmacoro::sim> all(2);
        co_await all.open();
        rank_links& links = all.links(0);
        no_link former;
        no_link newer;
        links.attached(1, former);
        links.attached(1, newer);
        links.link_ended(1, former, make_error_code(errc::peer_lost));
        CHECK(links.peer(1).link == &newer);
        CHECK(!links.peer(1).lost);
        CHECK(!all.at(0).failure());
        links.link_ended(1, newer, make_error_code(errc::peer_lost));
        CHECK(links.peer(1).link == nullptr);
        CHECK(links.peer(1).lost == errc::peer_lost);
        CHECK(all.at(0).failure());
        co_return;
    });
}

TEST_CASE("messages of a group are stale once it is revoked or was left, and never while it may begin") {
    run_nodes([]() -> task<> {
        ranks<rdmacoro::sim> all(2);
        co_await all.open();
        counted_ptr<rank_links> links(&all.links(0));
        CHECK(!links->is_stale(0));
        CHECK(!links->is_stale(1));
        CHECK(links->is_stale(6));  // nothing is being named
        {
            const rank_links::naming some(links);
            CHECK(!links->is_stale(6));
            const counted_ptr<group_state> later(
                new group_state(links, {0, 1}, 6, &default_collectives::choose));
            {
                const rank_links::naming others(links);
                CHECK(!links->is_stale(6));
                CHECK(!links->is_stale(5));
            }
            CHECK(!links->is_stale(5));
            // One that was left is, whatever else may begin.
            static_cast<void>(
                counted_ptr<group_state>(new group_state(links, {0, 1}, 8, &default_collectives::choose)));
            CHECK(links->is_stale(8));
            later->transfer_failed(1, make_error_code(errc::peer_lost));
            CHECK(links->is_stale(6));
        }
        CHECK(links->is_stale(6));
        CHECK(links->is_stale(7));
        CHECK(!links->is_stale(1));
        co_return;
    });
}

namespace {
/// Has some messages that wait, and counts how often they are looked at.
struct counting_link final : rank_link {
    void send(send_request& r) noexcept override { r.finish(make_error_code(errc::peer_lost)); }
    void cancel_send(send_request&) noexcept override {}
    void receive(receive_request&) noexcept override {}
    void cancel_receive(receive_request&) noexcept override {}
    void drop_stale(const rank_links&) override { ++looks; }
    std::size_t unread() noexcept override { return waiting; }
    const metrics& counts() const noexcept override { return counted; }
    std::size_t waiting = 0;
    unsigned looks = 0;
    metrics counted{};
};
}  // namespace

TEST_CASE("messages that wait for groups that live are looked at again once as many have come, or a group is "
          "revoked") {
    counting_link link;
    run_nodes([&link]() -> task<> {
        ranks<rdmacoro::sim> all(3);
        co_await all.open();
        counted_ptr<rank_links> links(&all.links(0));
        links->attached(2, link);
        std::uint64_t context = 100;
        const auto splits = [&] {
            const rank_links::naming some(links);
            static_cast<void>(counted_ptr<group_state>(
                new group_state(links, {0, 2}, ++context, &default_collectives::choose)));
        };
        link.waiting = 5000;
        for (int times = 0; times < 100; ++times) splits();
        CHECK(link.looks == 1);
        link.waiting = 10'000;
        for (int times = 0; times < 100; ++times) splits();
        CHECK(link.looks == 2);
        // Few are looked at when there were none before.
        link.waiting = 0;
        splits();
        CHECK(link.looks == 2);
        link.waiting = 1;
        splits();
        CHECK(link.looks == 3);
        link.waiting = 5000;
        splits();
        CHECK(link.looks == 4);
        {
            const counted_ptr<group_state> pair(
                new group_state(links, {0, 2}, ++context, &default_collectives::choose));
            pair->revoke_alone(make_error_code(group_errc::revoked), "at once");
            CHECK(link.looks == 5);
            splits();  // what was under way
            CHECK(link.looks == 6);
            splits();
            CHECK(link.looks == 6);
        }
        CHECK(link.looks == 6);
    });
}

TEST_CASE("the end of a connection has what waits on the others looked at once for all groups") {
    counting_link lost;
    counting_link other;
    run_nodes([&]() -> task<> {
        ranks<rdmacoro::sim> all(3);
        co_await all.open();
        counted_ptr<rank_links> links(&all.links(0));
        links->attached(1, lost);
        links->attached(2, other);
        std::vector<counted_ptr<group_state>> groups;
        for (std::uint64_t context = 100; context < 150; ++context)
            groups.emplace_back(new group_state(links, {0, 1, 2}, context, &default_collectives::choose));
        other.waiting = 5000;
        links->link_ended(1, lost, make_error_code(errc::peer_lost));
        for (const auto& one : groups) CHECK(one->failure());
        CHECK(other.looks == 1);
    });
}

TEST_CASE(
    "the environment says by a number or a word whether ranks compare what they ask for, and nothing else") {
    const auto wants = [](const char* value) {
        const with_variable says("RDMACORO_CHECK_COLLECTIVES", value);
        return rank_links::wants_comparison();
    };
    for (const char* const yes : {"1", "yes", "on", "true"}) {
        CAPTURE(yes);
        CHECK(wants(yes));
    }
    for (const char* const no : {"0", "no", "off", "false"}) {
        CAPTURE(no);
        CHECK(!wants(no));
    }
    CHECK(wants("") == rank_links::wants_comparison());  // as without it
    for (const char* const neither : {"2", "01", "no comparison", " 1"}) {
        CAPTURE(neither);
        std::error_code code;
        std::string text;
        try {
            static_cast<void>(wants(neither));
        } catch (const std::system_error& e) {
            code = e.code();
            text = e.what();
        }
        CHECK(code == errc::invalid_argument);
        CHECK_THAT(text,
                   Catch::Contains(std::string("RDMACORO_CHECK_COLLECTIVES=") + neither + ": say 1 or 0"));
    }
}

TEST_CASE("ranks name groups differently, and a limited number of them") {
    run_nodes([]() -> task<> {
        ranks<rdmacoro::sim> all(2);
        CHECK(all.links(0).name_context() == context_of(0, 2));  // the first is that of all
        CHECK(all.links(1).name_context() == context_of(1, 2));
        CHECK(all.links(1).name_context() == context_of(1, 3));
        std::uint64_t last = 0;
        std::uint32_t named = 1;
        while (const std::uint64_t next = all.links(0).name_context()) {
            last = next;
            ++named;
        }
        CHECK(last == context_of(0, most_names));
        CHECK(named == most_names - 1);
        co_return;
    });
}

TEST_CASE("a transfer to a rank that memory is too short to connect to fails, and a later one connects") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_nodes([]() -> task<> {
        constexpr unsigned size = 8;  // some coroutines find memory that others have left
        ranks<rdmacoro::sim> all(size);
        co_await all.open();
        rank_links& links = all.links(0);
        const std::array<std::byte, 4> memory{};
        std::array<std::error_code, size> ended;
        const auto send_to = [&](unsigned rank) -> task<> {
            rank_send sends(links.peer(rank), running_scheduler(), memory, group_tag(1, 1, 0));
            const result<void> sent = co_await as_result(timeout(std::move(sends), 5s));
            ended[rank] = sent ? std::error_code() : sent.error();
        };
        task_group waiting;
        for (unsigned rank = 1; rank < size; ++rank) {
            links.peer(rank).connecting = true;
            waiting.spawn([&send_to, rank] { return send_to(rank); });
        }
        co_await yield();
        {
            const failing_allocations none(1, ~std::size_t{0});
            for (unsigned rank = 1; rank < size; ++rank) {
                links.peer(rank).connecting = false;
                links.want(links.peer(rank));
            }
        }
        co_await waiting.join();
        unsigned failed = 0;
        for (unsigned rank = 1; rank < size; ++rank) {
            if (!ended[rank]) continue;
            ++failed;
            CHECK(ended[rank] == errc::no_resources);
            CHECK(!links.peer(rank).lost);
            co_await send_to(rank);
            CHECK(!ended[rank]);
        }
        CHECK(failed > 0);
        for (unsigned rank = 1; rank < size; ++rank) CHECK(links.peer(rank).link != nullptr);
    });
}

TEST_CASE("what waits for connections when all ends, ends with them") {
    run_nodes([]() -> task<> {
        ranks<rdmacoro::sim> all(2);
        co_await all.open();
        rank_links& links = all.links(0);
        links.peer(1).connecting = true;
        std::array<std::byte, 4> memory{};
        auto waits = start(rank_send(links.peer(1), running_scheduler(), memory, group_tag(1, 1, 0)));
        group_word word;
        word.context = 1;
        links.send_word(1, word);
        links.stop();
        const auto ended = co_await as_result(waits);
        REQUIRE(!ended);
        CHECK(ended.error() == errc::closed);
        links.send_word(1, word);  // to nowhere
        const failure of = co_await failing(all.at(0).barrier());
        CHECK(of.code);
    });
}

}  // namespace test_service_detail_rank_links
