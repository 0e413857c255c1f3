#include <rdmacoro/transport/sim.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/sim_pair.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace test_transport_sim {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

static_assert(transport<sim>);
static_assert(one_sided_link<sim::link<rdmacoro::detail::sink_archetype>>);
static_assert(in_place_link<sim::link<rdmacoro::detail::sink_archetype>>);

namespace {

constexpr sim_costs round_costs{.latency = 1000ns,
                                .overhead = 100ns,
                                .gap = 30ns,
                                .picoseconds_per_byte = 2000,
                                .registration = 5000ns,
                                .per_page = 10ns};

}  // namespace

TEST_CASE("sim: a message takes o + (k - 1) G + L + o, and the next leaves g after its last byte") {
    sim_options nodes;
    nodes.staged_bytes = 2000;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{1001}}) {
        CAPTURE(bytes);
        pair_of_nodes p(costing(round_costs), nodes);
        std::vector<duration> came;
        p.at_b.on_message = [&](const recorded_message&) { came.push_back(p.world.now()); };
        const auto data = pattern(bytes);
        ended unused(p.world);
        for (std::uint64_t n = 0; n < 3; ++n) CHECK(p.post(n, data, unused) == post_result::done);
        p.settle();
        REQUIRE(came.size() == 3);
        const duration wire = 2ns * (bytes - 1);
        CHECK(came[0] == 100ns + wire + 1000ns + 100ns);
        // Short ones are held up by the processor, long ones by the card.
        const duration apart = bytes == 1 ? 100ns : wire + 30ns;
        CHECK(came[1] - came[0] == apart);
        CHECK(came[2] - came[1] == apart);
    }
}

TEST_CASE("sim: a get and a put take what the model says, and registration delays them") {
    for (const bool registers : {false, true}) {
        CAPTURE(registers);
        sim_options nodes;
        nodes.offered.needs_registration = registers;
        pair_of_nodes p(costing(round_costs), nodes);
        std::vector<std::byte> there = pattern(4096, 3);
        std::vector<std::byte> here(4096);
        const region open = p.b->register_memory(there);
        const duration before = registers ? 5010ns : 0ns;
        const duration begun = p.world.now();
        ended got(p.world);
        CHECK(p.to_b->get(open.remote(), here, got) == post_result::posted);
        p.settle();
        CHECK(got.at - begun == before + 100ns + 1000ns + 4095 * 2ns + 1000ns + 100ns);
        CHECK(here == there);
        const duration begun_again = p.world.now();
        here = pattern(4096, 4);
        ended was_put(p.world);
        CHECK(p.to_b->put(here, open.remote(), was_put) == post_result::posted);
        p.settle();
        CHECK(was_put.at - begun_again == before + 100ns + 4095 * 2ns + 1000ns + 1000ns + 100ns);
        CHECK(here == there);
        CHECK(p.world.counts().registrations == (registers ? 3u : 1u));
        CHECK(p.world.counts().gets == 1);
        CHECK(p.world.counts().puts == 1);
        CHECK(p.world.counts().one_sided_bytes == 8192);
    }
}

TEST_CASE("sim: registrations of local memory go through a cache where a node has one") {
    sim_options nodes;
    nodes.offered.needs_registration = true;
    nodes.caches_registrations = true;
    pair_of_nodes p(costing(round_costs), nodes);
    std::vector<std::byte> there = pattern(4096, 3);
    std::vector<std::byte> here(4096);
    const region open = p.b->register_memory(there);
    for (int round = 0; round < 3; ++round) {
        ended got(p.world);
        CHECK(p.to_b->get(open.remote(), here, got) == post_result::posted);
        p.settle();
        CHECK(here == there);
    }
    const registration_cache_statistics seen = p.a->cached();
    CHECK(seen.hits + seen.misses == 3);
    CHECK(p.a->counts().registrations == seen.misses);
    CHECK(seen.misses == (seen.unwatchable == 0 ? 1u : 3u));
}

namespace {
/// The events of a world with chance in it.
std::uint64_t trace_of(std::uint64_t seed) {
    sim_world_options options = costing({});
    options.seed = seed;
    options.jitter = 3us;
    options.faults.delayed = 100'000;
    options.faults.no_room = 50'000;
    pair_of_nodes p(options);
    const auto data = pattern(700);
    std::vector<std::byte> memory(700);
    const region open = p.b->register_memory(memory);
    std::vector<std::unique_ptr<ended>> all;
    for (std::uint64_t n = 0; n < 60; ++n) {
        all.push_back(std::make_unique<ended>(p.world));
        static_cast<void>(p.post(n, data, *all.back()));
        all.push_back(std::make_unique<ended>(p.world));
        static_cast<void>(p.to_b->put(data, open.remote(), *all.back()));
        p.settle(100ns);
    }
    p.settle();
    for (std::size_t n = 1; n < p.at_b.messages.size(); ++n)
        CHECK(p.at_b.messages[n - 1].number < p.at_b.messages[n].number);
    return p.world.trace_hash();
}
}  // namespace

TEST_CASE("sim: one seed, one course of events; messages stay in order in each") {
    CHECK(trace_of(1) == trace_of(1));
    CHECK(trace_of(7) == trace_of(7));
    CHECK(trace_of(1) != trace_of(7));
}

TEST_CASE("sim: a short payload is staged, a long one is sent from where it lies") {
    pair_of_nodes p;
    const auto little = pattern(512);
    auto much = pattern(513);
    ended first(p.world);
    ended second(p.world);
    CHECK(p.post(1, little, first) == post_result::done);
    CHECK(p.post(2, much, second) == post_result::posted);
    CHECK_FALSE(second.over);
    p.settle();
    CHECK(second.over);
    CHECK_FALSE(second.outcome);
    CHECK_FALSE(first.over);
    CHECK(p.world.counts().staged == 1);
    CHECK(p.world.counts().staged_bytes == 512);
    REQUIRE(p.at_b.messages.size() == 2);
    CHECK(p.at_b.messages[1].payload == much);
    // In place, however short, once prepared.
    CHECK_FALSE(p.to_b->in_place(little));
    CHECK(p.to_b->prepare_in_place(little));
    CHECK(p.to_b->in_place(little));
    ended third(p.world);
    CHECK(p.to_b->post_in_place(header_of(3), const_buffers(little), third) == post_result::posted);
    p.settle();
    CHECK(third.over);
    CHECK(p.world.counts().in_place == 1);
    CHECK(p.world.counts().staged == 1);
    CHECK(p.world.violations().empty());
    ended fourth(p.world);
    CHECK(p.to_b->post_in_place(header_of(4), const_buffers(std::span<const std::byte>(much)), fourth) ==
          post_result::posted);
    CHECK(p.world.violations().size() == 1);
    p.settle();
}

TEST_CASE("sim: a revoked message arrives all the same, and its memory is no longer read") {
    pair_of_nodes p;
    std::vector<std::byte> data = pattern(3000, 5);
    ended c(p.world);
    CHECK(p.post(1, data, c) == post_result::posted);
    CHECK(p.to_b->revoke(c));
    p.world.finished(data);
    std::fill(data.begin(), data.end(), std::byte{0});
    p.settle();
    CHECK_FALSE(c.over);
    REQUIRE(p.at_b.messages.size() == 1);
    CHECK(p.at_b.messages[0].payload == pattern(3000, 5));
    CHECK(p.world.violations().empty());
}

TEST_CASE("sim: memory that its owner has back must not be touched") {
    pair_of_nodes p;
    std::vector<std::byte> data = pattern(3000);
    std::vector<std::byte> memory(3000);
    region open = p.b->register_memory(memory);
    ended c(p.world);
    SECTION("by a message") {
        CHECK(p.post(1, data, c) == post_result::posted);
        p.world.finished(std::span(data).subspan(2999));
        p.settle();
        CHECK(p.world.violations().size() == 1);
    }
    SECTION("by a put, at either side") {
        CHECK(p.to_b->put(data, open.remote(), c) == post_result::posted);
        p.world.finished(data);
        p.world.finished(memory);
        p.settle();
        CHECK(p.world.violations().size() == 2);
    }
    SECTION("but may be once it is lent again") {
        p.world.finished(data);
        p.world.finished(memory);
        p.world.borrowed(data);
        p.world.borrowed(memory);
        CHECK(p.to_b->get(open.remote(), data, c) == post_result::posted);
        p.settle();
        CHECK(p.world.violations().empty());
    }
    SECTION("and is not by a put whose region has ended at once") {
        CHECK(p.to_b->put(data, open.remote(), c) == post_result::posted);
        open.reset();
        p.world.finished(memory);
        p.settle();
        CHECK(p.world.violations().empty());
        CHECK(c.outcome == errc::bad_key);
    }
}

TEST_CASE("sim: without revoking at once, the end of exposed memory ends no link") {
    sim_options nodes;
    nodes.offered.revokes_at_once = false;
    nodes.lingering_regions = 2;
    pair_of_nodes p(costing({}), nodes);
    std::vector<std::byte> data = pattern(100);
    std::vector<std::byte> memory(100);
    region open = p.to_a->expose(memory, access_rights::remote_write);
    const remote_region there = open.remote();
    ended c(p.world);
    CHECK(p.to_b->put(data, there, c) == post_result::posted);
    open.reset();
    p.world.finished(memory);
    p.settle();
    CHECK_FALSE(c.outcome);
    CHECK(p.world.violations().size() == 1);
    // Exposed again it has its old key; pushed out by others it ends.
    const region again = p.to_a->expose(memory, access_rights::remote_write);
    CHECK(again.remote().key == there.key);
    std::array<std::array<std::byte, 8>, 4> others{};
    for (auto& o : others) static_cast<void>(p.to_a->expose(o, access_rights::remote_write));
    CHECK(p.b->registered() == 3);
}

TEST_CASE("sim: a get that breaks the alignment is a violation") {
    sim_options nodes;
    nodes.offered.get_alignment = 4;
    pair_of_nodes p(costing({}), nodes);
    alignas(4) std::array<std::byte, 16> there{};
    alignas(4) std::array<std::byte, 16> here{};
    const region open = p.b->register_memory(there);
    struct attempt {
        std::size_t from;
        std::size_t to;
        std::size_t bytes;
        bool good;
    };
    std::size_t bad = 0;
    for (const attempt& t : {attempt{0, 0, 16, true}, attempt{4, 8, 8, true}, attempt{1, 0, 8, false},
                             attempt{0, 2, 8, false}, attempt{0, 0, 7, false}}) {
        CAPTURE(t.from, t.to, t.bytes);
        ended c(p.world);
        CHECK(p.to_b->get(open.remote().part(t.from, t.bytes), std::span(here).subspan(t.to, t.bytes), c) ==
              post_result::posted);
        p.settle();
        bad += t.good ? 0 : 1;
        CHECK(c.outcome == (t.good ? std::error_code() : make_error_code(errc::invalid_argument)));
        CHECK(p.world.violations().size() == bad);
    }
}

TEST_CASE("sim: regions are checked, whatever a peer asks for") {
    pair_of_nodes p;
    std::vector<std::byte> memory(64);
    std::vector<std::byte> here(64);
    const region open = p.b->register_memory(memory, access_rights::remote_read);
    const auto outcome_of = [&](remote_region there, bool read) {
        ended c(p.world);
        std::vector<std::byte> local(there.length);
        CHECK((read ? p.to_b->get(there, local, c) : p.to_b->put(local, there, c)) == post_result::posted);
        p.settle();
        return c.outcome;
    };
    const remote_region good = open.remote();
    CHECK_FALSE(outcome_of(good, true));
    CHECK(outcome_of(good, false) == errc::access_denied);
    CHECK(outcome_of(good.part(1, 64), true) == errc::out_of_bounds);
    CHECK(outcome_of({good.address - 1, 8, good.key}, true) == errc::out_of_bounds);
    CHECK(outcome_of({~std::uint64_t{0}, 8, good.key}, true) == errc::out_of_bounds);
    CHECK(outcome_of({good.address, 8, good.key ^ (1u << 20)}, true) == errc::bad_key);
    CHECK(outcome_of({good.address, 8, good.key | 0xffff}, true) == errc::bad_key);
    CHECK(outcome_of({good.address, 8, 0}, true) == errc::bad_key);
}

TEST_CASE("sim: a link that is dropped ends at both sides, and what was posted with it") {
    pair_of_nodes p;
    std::vector<std::byte> data = pattern(3000);
    std::vector<std::byte> memory(3000);
    const region open = p.b->register_memory(memory);
    ended sent(p.world);
    ended was_put(p.world);
    CHECK(p.post(1, data, sent) == post_result::posted);
    CHECK(p.to_b->put(data, open.remote(), was_put) == post_result::posted);
    p.a->drop_links_to(*p.b);
    p.settle();
    CHECK(p.at_a.downs == 1);
    CHECK(p.at_b.downs == 1);
    CHECK(p.at_a.reason == errc::peer_lost);
    CHECK(p.at_b.reason == errc::peer_lost);
    CHECK(p.at_b.messages.empty());
    CHECK(sent.over);
    CHECK(was_put.outcome == errc::peer_lost);
    CHECK(memory == std::vector<std::byte>(3000));
    CHECK(p.world.counts().drops == 1);
    CHECK(p.post(2, data, sent) == post_result::failed);
}

TEST_CASE("sim: a link is dropped by chance") {
    sim_world_options options = costing({});
    options.faults.dropped = 100'000;
    pair_of_nodes p(options);
    const auto data = pattern(8);
    ended unused(p.world);
    std::uint64_t posted = 0;
    std::uint64_t refused = 0;
    for (std::uint64_t n = 0; n < 1000; ++n) {
        ++(p.post(n, data, unused) == post_result::failed ? refused : posted);
        p.settle(p.world.options().costs.latency);
    }
    p.settle();
    CHECK(p.world.counts().drops == 1);
    CHECK(p.at_a.reason == errc::peer_lost);
    CHECK(p.at_b.reason == errc::peer_lost);
    // The chance was one in ten: some messages arrived, those under way were lost, and later posts fail.
    CHECK(p.at_b.messages.size() > 0);
    CHECK(p.at_b.messages.size() < posted);
    CHECK(refused > 0);
    for (std::size_t n = 0; n < p.at_b.messages.size(); ++n) CHECK(p.at_b.messages[n].number == n);
}

TEST_CASE("sim: no room is answered retry, and the sink hears when there is again") {
    const auto data = pattern(8);
    SECTION("on request") {
        pair_of_nodes p;
        ended unused(p.world);
        p.a->set_no_room_to(*p.b, true);
        CHECK(p.post(1, data, unused) == post_result::retry);
        CHECK(p.to_b->post_copied(header_of(1), {}) == post_result::retry);
        p.settle();
        CHECK(p.at_a.writables == 0);
        p.a->set_no_room_to(*p.b, false);
        p.settle();
        CHECK(p.at_a.writables == 1);
        CHECK(p.post(1, data, unused) == post_result::done);
        CHECK(p.world.counts().retries == 2);
    }
    SECTION("by chance") {
        sim_world_options options = costing({});
        options.faults.no_room = 1'000'000;
        pair_of_nodes p(options);
        ended unused(p.world);
        CHECK(p.post(1, data, unused) == post_result::retry);
        p.world.set_faults({});
        CHECK(p.post(1, data, unused) == post_result::retry);
        p.settle();
        CHECK(p.at_a.writables == 1);
        CHECK(p.post(1, data, unused) == post_result::done);
    }
    SECTION("by what is under way") {
        sim_options nodes;
        nodes.room = 2;
        pair_of_nodes p(costing({}), nodes);
        ended unused(p.world);
        CHECK(p.post(1, data, unused) == post_result::done);
        CHECK(p.post(2, data, unused) == post_result::done);
        CHECK(p.post(3, data, unused) == post_result::retry);
        p.settle();
        CHECK(p.at_a.writables == 1);
        CHECK(p.post(3, data, unused) == post_result::done);
    }
}

TEST_CASE("sim: a node without resources exposes nothing and begins no get or put") {
    pair_of_nodes p;
    std::vector<std::byte> memory(64);
    const region open = p.b->register_memory(memory);
    ended c(p.world);
    p.a->set_exhausted(true);
    CHECK_FALSE(p.to_b->expose(memory, access_rights::all));
    CHECK_FALSE(p.to_b->prepare_in_place(memory));
    CHECK(p.to_b->get(open.remote(), memory, c) == post_result::retry);
    CHECK(p.to_b->put(memory, open.remote(), c) == post_result::retry);
    p.settle();
    CHECK(p.at_a.writables == 0);
    p.a->set_exhausted(false);
    p.settle();
    CHECK(p.at_a.writables == 1);
    CHECK(p.to_b->put(memory, open.remote(), c) == post_result::posted);
    p.settle();
    CHECK_FALSE(c.outcome);
}

TEST_CASE("sim: from a silent node nothing comes, and all of it when it speaks again") {
    pair_of_nodes p;
    std::vector<std::byte> memory(64);
    const region open = p.b->register_memory(memory);
    const auto data = pattern(64);
    ended unused(p.world);
    ended was_put(p.world);
    p.b->set_silent(true);
    CHECK(p.post(1, data, unused) == post_result::done);
    CHECK(p.to_b->put(data, open.remote(), was_put) == post_result::posted);
    p.settle();
    CHECK(p.at_b.messages.empty());
    CHECK_FALSE(was_put.over);
    CHECK(p.at_a.downs == 0);
    p.b->set_silent(false);
    p.settle();
    CHECK(p.at_b.messages.size() == 1);
    CHECK(was_put.over);
    CHECK(memory == data);
}

TEST_CASE("sim: messages can be held back while gets and puts go on") {
    pair_of_nodes p;
    std::vector<std::byte> memory(64);
    const region open = p.b->register_memory(memory);
    const auto data = pattern(64);
    ended unused(p.world);
    ended was_put(p.world);
    p.a->hold_messages_to(*p.b, true);
    CHECK(p.post(1, data, unused) == post_result::done);
    CHECK(p.to_b->put(data, open.remote(), was_put) == post_result::posted);
    p.settle();
    CHECK(was_put.over);
    CHECK(p.at_b.messages.empty());
    p.a->hold_messages_to(*p.b, false);
    p.settle();
    CHECK(p.at_b.messages.size() == 1);
}

TEST_CASE("sim: a long payload is announced, and comes in pieces") {
    sim_options nodes;
    nodes.announces_above = 100;
    nodes.piece_bytes = 64;
    pair_of_nodes p(costing({}), nodes);
    const auto data = pattern(1000);
    int pieces = 0;
    p.at_b.on_long = [&] { ++pieces; };
    ended c(p.world);
    CHECK(p.post(1, data, c) == post_result::posted);
    SECTION("all of it") {
        p.settle();
        REQUIRE(p.at_b.messages.size() == 1);
        CHECK(p.at_b.messages[0].announced);
        CHECK(p.at_b.messages[0].payload == data);
        CHECK(pieces == 1 + 2 * 16);
    }
    SECTION("or not, when the link breaks in the middle") {
        while (p.at_b.arrived() < 200) p.settle(10ns);
        p.a->drop_links_to(*p.b);
        p.settle();
        CHECK(p.at_b.messages.empty());
        CHECK(p.at_b.downs == 1);
        CHECK_FALSE(p.at_b.after_down);
    }
}

TEST_CASE("sim: a message after a put comes after its data where that is promised") {
    sim_options nodes;
    nodes.offered.put_before_send = true;
    pair_of_nodes p(costing(round_costs), nodes);
    std::vector<std::byte> memory(4000);
    const region open = p.b->register_memory(memory);
    const auto data = pattern(4000);
    bool in_time = false;
    p.at_b.on_message = [&](const recorded_message&) { in_time = memory == data; };
    ended was_put(p.world);
    CHECK(p.to_b->put(data, open.remote(), was_put) == post_result::posted);
    CHECK(p.to_b->post_copied(header_of(1), {}) == post_result::done);
    p.settle();
    CHECK(in_time);
    CHECK(was_put.over);
}

TEST_CASE("sim: ten thousand nodes run on one core") {
    sim_world world;
    scheduler on{impatient{}, world.time()};
    on.run([](sim_world& in) -> task<> {
        sim_options options;
        options.world = &in;
        auto& here = rdmacoro::detail::running_scheduler();
        sim::domain center(here, options);
        auto listening = co_await center.listen("center");
        constexpr std::size_t count = 10'000;
        std::vector<std::unique_ptr<sim::domain>> nodes;
        recording_sink heard;
        recording_sink ignored;
        std::vector<std::unique_ptr<sim::link<recording_sink>>> links;
        for (std::size_t n = 0; n < count; ++n) {
            nodes.push_back(std::make_unique<sim::domain>(here, options));
            links.push_back(std::make_unique<sim::link<recording_sink>>(
                co_await nodes.back()->connect("center"), ignored));
            links.push_back(std::make_unique<sim::link<recording_sink>>(co_await listening.accept(), heard));
        }
        for (std::size_t n = 0; n < count; ++n)
            CHECK(links[2 * n]->post_copied(header_of(n), {}) == post_result::done);
        co_await sleep_for(1s);
        CHECK(heard.messages.size() == count);
        links.clear();
    }(world));
}

}  // namespace test_transport_sim
