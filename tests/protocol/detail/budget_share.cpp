#include <rdmacoro/protocol/detail/budget_share.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <memory>
#include <vector>

namespace test_protocol_detail_budget_share {

using namespace rdmacoro;
using namespace rdmacoro::test;
using detail::budget_share;
using detail::credit_bytes;
using detail::least_budget;
using detail::least_grant;

namespace {

constexpr std::uint32_t wanted = 65536;  // 4 MiB
constexpr std::uint32_t everything = 0x7fffffff;

}  // namespace

TEST_CASE("a link begins with 256 KiB, and with the least once half of the pool is taken") {
    message_pool pool(8_MiB);
    std::vector<std::unique_ptr<budget_share>> shares;
    while (pool.granted() <= 4_MiB) {
        shares.push_back(std::make_unique<budget_share>(pool.state(), wanted, true));
        REQUIRE(shares.back()->grant() == least_budget);
        REQUIRE(shares.back()->budget() == wanted);
    }
    const budget_share late(pool.state(), wanted, true);
    CHECK(late.grant() == least_grant);
    CHECK(late.budget() == wanted);
    shares.clear();
    CHECK(pool.granted() == 0);
}

TEST_CASE("a grant rises to the budget, and to a quarter of what the pool has free") {
    message_pool pool(64_MiB);
    budget_share one(pool.state(), wanted, true);
    CHECK(one.rise(2 * least_budget) == least_budget);
    CHECK(one.rise(everything) == wanted - 2 * least_budget);
    CHECK(one.rise(everything) == 0);
    CHECK(one.excess() == 0);
    message_pool little(4_MiB);
    budget_share other(little.state(), wanted, true);
    CHECK(other.rise(everything) != 0);
    CHECK((other.grant() - least_grant) * credit_bytes == 1_MiB);
}

TEST_CASE("links that take all they get share a pool evenly in the end, never exceed it, and leave room for "
          "another") {
    message_pool pool(8_MiB);
    std::vector<std::unique_ptr<budget_share>> shares;
    for (int n = 0; n < 50; ++n) {
        shares.push_back(std::make_unique<budget_share>(pool.state(), wanted, true));
        static_cast<void>(shares.back()->rise(everything));
        REQUIRE(pool.granted() <= pool.total());
    }
    for (int round = 0; round < 100; ++round) {
        for (auto& share : shares) {
            if (const std::uint32_t excess = share->excess()) share->shrink(excess);
            static_cast<void>(share->rise(everything));
            REQUIRE(pool.granted() <= pool.total());
        }
    }
    CHECK(pool.granted() > pool.total() * 9 / 10);
    for (const auto& share : shares) {
        CHECK((share->grant() - least_grant) * credit_bytes > pool.total() / 60);
        CHECK((share->grant() - least_grant) * credit_bytes < pool.total() / 45);
    }
    budget_share late(pool.state(), wanted, true);
    CHECK(late.rise(everything) * credit_bytes > 64_KiB);
}

TEST_CASE("a link that is down holds what its stored messages take, and nothing when it is gone") {
    message_pool pool(64_MiB);
    {
        budget_share one(pool.state(), wanted, true);
        static_cast<void>(one.rise(everything));
        one.leave(10000);
        CHECK(pool.granted() == (10000 - least_grant) * credit_bytes);
        one.leave(5);
        CHECK(pool.granted() == 0);
        static_cast<void>(one.rise(everything));
    }
    CHECK(pool.granted() == 0);
}

TEST_CASE("a list whose messages cannot go ahead of their turn has its whole budget at once, as much as the "
          "pool has") {
    message_pool pool(8_MiB);
    std::uint32_t before = wanted;
    std::vector<std::unique_ptr<budget_share>> shares;
    for (int n = 0; n < 50; ++n) {
        shares.push_back(std::make_unique<budget_share>(pool.state(), wanted, false));
        const budget_share& one = *shares.back();
        REQUIRE(one.budget() == one.grant());
        REQUIRE(one.budget() >= least_budget);
        REQUIRE(one.budget() <= before);
        before = one.budget();
    }
    CHECK(shares.front()->budget() > before);
    CHECK(pool.granted() <= pool.total());
}

namespace {

/// A peer of an endpoint that has the usual budget, and `total` for it.
template <class Program>
void with_budget(std::size_t total, Program program) {
    virtual_time world;
    world.run([](scheduler& on, std::size_t bytes, Program what) -> task<> {
        message_pool pool(bytes);
        scripted_peer peer(on, {.pool = &pool});
        peer.send_hello();
        const heard_message first = co_await peer.hear();
        const auto hello = detail::wire_hello::load(first.payload);
        REQUIRE(hello.has_value());
        co_await what(peer, *hello, pool);
    }(world.on, total, program));
}

/// Sends messages that nobody receives, for `units` of credit.
void spend(scripted_peer& peer, std::uint32_t units) {
    const std::vector<std::byte> data(4000);
    for (; units >= detail::message_cost(4000); units -= detail::message_cost(4000))
        peer.say(wire_kind::eager, 1, data);
    for (; units >= detail::message_cost(0); units -= detail::message_cost(0)) peer.say(wire_kind::eager, 1);
}

/// The credits that the endpoint has given, once it has taken everything in.
task<std::uint32_t> credits(scripted_peer& peer) {
    while (peer.self().is_open() && !peer.from_peer().packets.empty()) co_await yield();
    for (int turns = 0; turns < 100; ++turns) co_await yield();
    std::uint32_t sum = 0;
    for (; !peer.heard().empty(); peer.heard().pop_front()) sum += peer.heard().front().header.credits;
    co_return sum;
}

}  // namespace

TEST_CASE("a peer that has used its grant up and starves is granted the rest of its budget") {
    with_budget(64_MiB, [](scripted_peer& peer, detail::wire_hello hello, message_pool& pool) -> task<> {
        CHECK(hello.budget == wanted);
        CHECK(hello.withheld == wanted - least_budget);
        spend(peer, least_budget);
        const std::uint32_t got_1 = co_await credits(peer);
        CHECK(got_1 == 0);
        peer.say(wire_kind::starved);
        const std::uint32_t got_2 = co_await credits(peer);
        CHECK(got_2 == wanted - least_budget);
        spend(peer, wanted - least_budget);
        peer.say(wire_kind::starved);
        const std::uint32_t got_3 = co_await credits(peer);
        CHECK(got_3 == 0);
        CHECK(peer.self().is_open());
        CHECK(pool.granted() == (wanted - least_grant) * credit_bytes);
        CHECK(peer.self().connection().credits().stored() == wanted);
        spend(peer, detail::message_cost(0));
        const std::uint32_t got_4 = co_await credits(peer);
        CHECK(got_4 == 0);
        CHECK(peer.self().connection().reason() == errc::protocol_violation);
    });
}

namespace {
/// Time that passes only while nothing is left to do, and how often it did.
struct counted_time final : clock {
    time_point now() noexcept override { return now_; }
    bool advance_to(time_point deadline) noexcept override {
        ++jumps;
        now_ = deadline;
        return true;
    }
    time_point now_{};
    std::size_t jumps = 0;
};
}  // namespace

TEST_CASE("a peer that starves in vain has others asked for credit ever more seldom") {
    counted_time time;
    scheduler on{impatient{}, time};
    on.run([](scheduler& by, counted_time& passing) -> task<> {
        message_pool pool(4 * least_budget * credit_bytes);
        scripted_peer peer(by, {.pool = &pool});
        peer.send_hello();
        const heard_message first = co_await peer.hear();
        const auto hello = detail::wire_hello::load(first.payload);
        REQUIRE(hello.has_value());
        std::uint32_t has = hello->budget - hello->withheld;
        while (has != 0) {  // until the pool has none left
            spend(peer, has);
            peer.say(wire_kind::starved);
            co_await sleep_for(std::chrono::milliseconds(5));
            has = co_await credits(peer);
        }
        CHECK(peer.self().connection().credits().withheld() != 0);
        const std::size_t before = passing.jumps;
        co_await sleep_for(std::chrono::seconds(10));
        const std::size_t asked = passing.jumps - before;
        CHECK(asked > 10'000 / 320);  // it goes on
        CHECK(asked < 10'000 / 320 + 10);
        CHECK(peer.self().is_open());
    }(on, time));
}

TEST_CASE(
    "a peer that starves in vain gets credit once there is some though a message that was paid for ended "
    "meanwhile") {
    with_budget(4 * least_budget * credit_bytes,
                [](scripted_peer& peer, detail::wire_hello hello, message_pool& pool) -> task<> {
                    auto other =
                        std::make_unique<scripted_peer>(peer.self().owner(), mailbox_options{.pool = &pool});
                    co_await other->open();
                    const std::vector<std::byte> data(10000);
                    std::vector<std::byte> into(data.size());
                    auto receiving = start(peer.self().recv(into, 2));
                    peer.say(wire_kind::announce, 2, announcement(0, 0, data.size()));
                    peer.say(wire_kind::piece, 0, std::span(data).first(5000));
                    std::uint32_t has = hello.budget - hello.withheld - detail::message_cost(data.size());
                    std::uint32_t other_has = least_budget;
                    while (has + other_has != 0) {  // until the pool has none left
                        spend(peer, has);
                        spend(*other, other_has);
                        other->say(wire_kind::starved);
                        co_await sleep_for(std::chrono::milliseconds(5));
                        other_has = co_await credits(*other);
                        peer.say(wire_kind::starved);
                        co_await sleep_for(std::chrono::milliseconds(5));
                        has = co_await credits(peer);
                    }
                    REQUIRE(peer.self().connection().credits().withheld() != 0);
                    REQUIRE(peer.self().counts().messages_received == 0);
                    peer.say(wire_kind::piece, 0, std::span(data).subspan(5000));
                    co_await receiving;
                    CHECK(peer.self().counts().messages_received == 1);
                    co_await sleep_for(std::chrono::milliseconds(50));
                    const std::uint32_t got_in_vain = co_await credits(peer);
                    CHECK(got_in_vain == 0);
                    other.reset();
                    co_await sleep_for(std::chrono::seconds(1));
                    const std::uint32_t got = co_await credits(peer);
                    CHECK(got > 0);
                    CHECK(peer.self().is_open());
                });
}

TEST_CASE("a peer that spends what is withheld breaks the protocol") {
    with_budget(64_MiB, [](scripted_peer& peer, detail::wire_hello, message_pool&) -> task<> {
        spend(peer, least_budget);
        const std::uint32_t got_5 = co_await credits(peer);
        CHECK(got_5 == 0);
        CHECK(peer.self().is_open());
        spend(peer, detail::message_cost(0));
        const std::uint32_t got_6 = co_await credits(peer);
        CHECK(got_6 == 0);
        CHECK(peer.self().connection().reason() == errc::protocol_violation);
    });
}

TEST_CASE("a grant rises while its messages are received, before the peer starves") {
    with_budget(64_MiB, [](scripted_peer& peer, detail::wire_hello hello, message_pool&) -> task<> {
        std::uint32_t has = hello.budget - hello.withheld;
        std::vector<std::byte> into(4000);
        for (int n = 0; n < 2000; ++n) {
            auto receiving = start(peer.self().recv(into));
            spend(peer, detail::message_cost(4000));
            co_await receiving;
            has -= detail::message_cost(4000);
            for (; !peer.heard().empty(); peer.heard().pop_front())
                has += peer.heard().front().header.credits;
            REQUIRE(has > least_budget / 4);
        }
        CHECK(has > wanted / 2);
    });
}

TEST_CASE("a grant above its part shrinks as its messages are received, and others' rise") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        message_pool pool(4_MiB);
        scripted_peer first(on, {.pool = &pool});
        co_await first.open();
        first.say(wire_kind::starved);
        const std::uint32_t had = co_await credits(first);
        CHECK(had * credit_bytes > 700_KiB);
        // Others take the pool.
        std::vector<std::unique_ptr<scripted_peer>> others;
        for (int n = 0; n < 30; ++n) {
            others.push_back(std::make_unique<scripted_peer>(on, mailbox_options{.pool = &pool}));
            co_await others.back()->open();
            others.back()->say(wire_kind::starved);
            static_cast<void>(co_await credits(*others.back()));
        }
        const std::size_t before = pool.granted();
        std::vector<std::byte> into(4000);
        for (int n = 0; n < 500; ++n) {
            auto receiving = start(first.self().recv(into));
            spend(first, detail::message_cost(4000));
            co_await receiving;
            if (n % 20 == 19) {
                first.say(wire_kind::starved);
                static_cast<void>(co_await credits(first));
            }
        }
        CHECK(first.self().is_open());
        CHECK(pool.granted() + 500_KiB < before);
        others.back()->say(wire_kind::starved);
        const std::uint32_t got_7 = co_await credits(*others.back());
        CHECK(got_7 > 0);
    }(world.on));
}

TEST_CASE("a hello that withholds more than its budget breaks the protocol") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        detail::wire_hello hello;
        hello.budget = least_budget;
        hello.withheld = least_budget + 1;
        hello.fingerprint = protocols<eager<>, segmented<>>::fingerprint;
        peer.say(wire_kind::hello, 0, hello.store());
        static_cast<void>(co_await credits(peer));
        CHECK(peer.self().connection().reason() == errc::protocol_violation);
    }(world.on));
}

TEST_CASE("a send waits for what its peer withholds, and goes when that is granted") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        detail::wire_hello hello;
        hello.budget = wanted;
        hello.withheld = wanted - least_grant;
        hello.fingerprint = protocols<eager<>, segmented<>>::fingerprint;
        peer.say(wire_kind::hello, 0, hello.store());
        const std::vector<std::byte> data(4000);
        for (std::uint32_t spent = 0; spent + detail::message_cost(4000) <= least_grant;
             spent += detail::message_cost(4000))
            co_await peer.self().send(data);
        auto sending = start(peer.self().send(data));
        static_cast<void>(co_await credits(peer));
        CHECK(peer.self().counts().credit_waits == 1);
        peer.say(wire_kind::credit, 0, {}, detail::message_cost(4000));
        co_await sending;
        CHECK(peer.self().is_open());
    }(world.on));
}

// ---- grants that are asked back

namespace {

/// A peer that holds much of a small pool, and one that wants more than is left.
struct rich_and_poor {
    message_pool pool{4_MiB};
    scripted_peer rich;
    scripted_peer poor;
    std::uint32_t has = 0;  // the rich one, units

    explicit rich_and_poor(scheduler& on) : rich(on, {.pool = &pool}), poor(on, {.pool = &pool}) {}

    task<> begin() { return begin(*this); }
    /// The poor one starves; what the rich one hears of it.
    task<std::vector<heard_message>> want_more() { return want_more(*this); }

    [[nodiscard]] static std::uint64_t units(std::size_t bytes) { return bytes / credit_bytes; }

private:
    static task<> begin(rich_and_poor& all) {
        co_await all.rich.open();
        all.rich.say(wire_kind::starved);
        const std::uint32_t more = co_await credits(all.rich);
        all.has = least_budget + more;
        co_await all.poor.open();
        co_await sleep_for(std::chrono::milliseconds(100));  // no more idle than that
    }
    static task<std::vector<heard_message>> want_more(rich_and_poor& all) {
        all.poor.say(wire_kind::starved);
        for (int turns = 0; turns < 100; ++turns) co_await yield();
        std::vector<heard_message> heard(all.rich.heard().begin(), all.rich.heard().end());
        all.rich.heard().clear();
        co_return heard;
    }
};

template <class Program>
void with_both(Program program) {
    virtual_time world;
    world.run([](scheduler& on, Program what) -> task<> {
        rich_and_poor both(on);
        co_await both.begin();
        CHECK(both.has * credit_bytes > 900_KiB);
        co_await what(both);
    }(world.on, program));
}

constexpr std::uint8_t given_back = 1;

}  // namespace

TEST_CASE("what an idle peer holds is asked back when another wants more, and goes to it") {
    with_both([](rich_and_poor& both) -> task<> {
        const auto asked = co_await both.want_more();
        REQUIRE(asked.size() == 1);
        CHECK(asked[0].header.kind == static_cast<std::uint8_t>(wire_kind::recall));
        CHECK(asked[0].header.flags == 0);
        CHECK(asked[0].header.tag == both.has - least_grant);
        // It is asked once.
        const auto again = co_await both.want_more();
        CHECK(again.empty());
        static_cast<void>(co_await credits(both.poor));
        const std::size_t before = both.pool.granted();
        both.rich.say(wire_kind::recall, both.has - least_grant, {}, 0, given_back);
        static_cast<void>(co_await credits(both.rich));
        CHECK(both.pool.granted() == before - (both.has - least_grant) * credit_bytes);
        both.poor.say(wire_kind::starved);
        const std::uint32_t more = co_await credits(both.poor);
        CHECK(more > 0);
        // What it gave up it does not have any more.
        spend(both.rich, least_grant);
        static_cast<void>(co_await credits(both.rich));
        CHECK(both.rich.self().is_open());
        spend(both.rich, detail::message_cost(0));
        static_cast<void>(co_await credits(both.rich));
        CHECK(both.rich.self().connection().reason() == errc::protocol_violation);
    });
}

TEST_CASE("a peer is not asked for its grant while it sends, but 100 ms later") {
    with_both([](rich_and_poor& both) -> task<> {
        for (int n = 0; n < 10; ++n) {
            spend(both.rich, detail::message_cost(0));
            static_cast<void>(co_await credits(both.rich));
            const auto asked = co_await both.want_more();
            CHECK(asked.empty());
            co_await sleep_for(std::chrono::milliseconds(99));
        }
        co_await sleep_for(std::chrono::milliseconds(1));
        const auto asked = co_await both.want_more();
        CHECK(asked.size() == 1);
    });
}

TEST_CASE("a peer that gives back what it was not asked for, or has not got, breaks the protocol") {
    struct wrong {
        const char* what;
        bool asked;
        bool spends;
        std::uint64_t units;
    };
    const std::uint32_t has = static_cast<std::uint32_t>(1_MiB / credit_bytes);
    const wrong cases[] = {{"unasked", false, false, 1},
                           {"nothing, unasked", false, false, 0},
                           {"more than asked", true, false, has + 1},
                           {"far more than asked", true, false, std::uint64_t{has} << 32},
                           {"what it has spent", true, true, 1000}};
    for (const wrong& one : cases) {
        CAPTURE(one.what);
        with_both([one](rich_and_poor& both) -> task<> {
            if (one.asked) {
                const auto asked = co_await both.want_more();
                CHECK(asked.size() == 1);
            }
            if (one.spends) spend(both.rich, both.has - 80);
            both.rich.say(wire_kind::recall, one.units, {}, 0, given_back);
            static_cast<void>(co_await credits(both.rich));
            CHECK(both.rich.self().connection().reason() == errc::protocol_violation);
        });
    }
}

TEST_CASE("a side that is asked gives back the credit that it does not use, and sends go on with the rest") {
    virtual_time world;
    world.run([](scheduler& on) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        const std::vector<std::byte> data(4000);
        for (int n = 0; n < 10; ++n) co_await peer.self().send(data);
        static_cast<void>(co_await credits(peer));
        peer.say(wire_kind::recall, least_budget - least_grant);
        const heard_message first = co_await peer.hear();
        CHECK(first.header.kind == static_cast<std::uint8_t>(wire_kind::recall));
        CHECK(first.header.flags == given_back);
        CHECK(first.header.tag == least_budget - 10 * detail::message_cost(4000));
        // There is none left.
        auto sending = start(peer.self().send(data));
        static_cast<void>(co_await credits(peer));
        CHECK(peer.self().counts().credit_waits == 1);
        // A side with sends that wait gives nothing.
        peer.say(wire_kind::recall, 1);
        const heard_message second = co_await peer.hear();
        CHECK(second.header.flags == given_back);
        CHECK(second.header.tag == 0);
        peer.say(wire_kind::credit, 0, {}, detail::message_cost(4000));
        co_await sending;
    }(world.on));
}

TEST_CASE("a question for more than the budget, or for nothing, breaks the protocol") {
    for (const std::uint64_t units : {std::uint64_t{0}, std::uint64_t{least_budget} + 1, ~std::uint64_t{0}}) {
        CAPTURE(units);
        virtual_time world;
        world.run([](scheduler& on, std::uint64_t much) -> task<> {
            scripted_peer peer(on);
            co_await peer.open();
            peer.say(wire_kind::recall, much);
            static_cast<void>(co_await credits(peer));
            CHECK(peer.self().connection().reason() == errc::protocol_violation);
        }(world.on, units));
    }
}

}  // namespace test_protocol_detail_budget_share
