#include <rdmacoro/transport/sim/wire.hpp>

#include "support/catch.hpp"
#include "support/sim_pair.hpp"

#include <vector>

namespace test_transport_sim_wire {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::vector<std::uint64_t> numbers_of(const recording_sink& sink) {
    std::vector<std::uint64_t> all;
    for (const recorded_message& one : sink.messages) all.push_back(one.number);
    return all;
}

}  // namespace

TEST_CASE("the two directions of a wire keep their order, each its own") {
    pair_of_nodes p;
    ended sent(p.world);
    for (std::uint64_t n = 0; n < 20; ++n) {
        REQUIRE(p.post(n, {}, sent) == post_result::done);
        REQUIRE(p.to_a->post(header_of(100 + n), {}, sent) == post_result::done);
    }
    p.settle();
    std::vector<std::uint64_t> there;
    std::vector<std::uint64_t> here;
    for (std::uint64_t n = 0; n < 20; ++n) {
        there.push_back(n);
        here.push_back(100 + n);
    }
    CHECK(numbers_of(p.at_b) == there);
    CHECK(numbers_of(p.at_a) == here);
}

TEST_CASE("messages of one direction that a test holds wait under way, and those of the other pass") {
    pair_of_nodes p;
    ended sent(p.world);
    p.a->hold_messages_to(*p.b, true);
    REQUIRE(p.post(1, {}, sent) == post_result::done);
    REQUIRE(p.to_a->post(header_of(2), {}, sent) == post_result::done);
    p.settle();
    CHECK(p.at_b.count == 0);
    CHECK(p.at_a.count == 1);
    p.a->hold_messages_to(*p.b, false);
    p.settle();
    CHECK(numbers_of(p.at_b) == std::vector<std::uint64_t>{1});
}

TEST_CASE("an announced message has come as soon as one that comes whole, and its pieces before that") {
    constexpr std::size_t bytes = 1000;
    sim_costs costs;
    costs.picoseconds_per_byte = 2000;
    sim_options nodes;
    for (const bool announced : {false, true}) {
        CAPTURE(announced);
        if (announced) nodes.announces_above = 0;
        nodes.piece_bytes = 300;
        pair_of_nodes p(costing(costs), nodes);
        std::vector<duration> told;
        p.at_b.on_long = [&] { told.push_back(p.world.now()); };
        std::vector<duration> came;
        p.at_b.on_message = [&](const recorded_message&) { came.push_back(p.world.now()); };
        ended sent(p.world);
        const auto data = pattern(bytes);
        const duration begun = p.world.now();
        REQUIRE(p.post(0, data, sent) == post_result::posted);
        REQUIRE(p.post(1, data, sent) == post_result::posted);
        p.settle();
        REQUIRE(came.size() == 2);
        const duration wire = std::chrono::nanoseconds(2 * (bytes - 1));
        CHECK(came[0] - begun == costs.overhead + wire + costs.latency + costs.overhead);
        CHECK(came[1] - came[0] == costs.gap + wire);
        CHECK(told.empty() != announced);
        if (announced) CHECK(told.front() - begun == costs.overhead + costs.latency + costs.overhead);
    }
}

TEST_CASE("a direction without room answers so until there is some, and tells its writer") {
    pair_of_nodes p;
    ended sent(p.world);
    p.a->set_no_room_to(*p.b, true);
    CHECK(p.post(1, {}, sent) == post_result::retry);
    p.settle();
    CHECK(p.at_a.writables == 0);
    p.a->set_no_room_to(*p.b, false);
    p.settle();
    CHECK(p.at_a.writables == 1);
    CHECK(p.post(1, {}, sent) == post_result::done);
    p.settle();
    CHECK(p.at_b.count == 1);
}

TEST_CASE("a wire that breaks loses what has not arrived, and ends both links") {
    pair_of_nodes p;
    ended sent(p.world);
    REQUIRE(p.post(1, {}, sent) == post_result::done);
    p.settle();
    p.a->hold_messages_to(*p.b, true);
    REQUIRE(p.post(2, {}, sent) == post_result::done);
    p.a->drop_links_to(*p.b);
    p.settle();
    CHECK(numbers_of(p.at_b) == std::vector<std::uint64_t>{1});
    CHECK(p.at_a.downs == 1);
    CHECK(p.at_b.downs == 1);
    CHECK(p.at_a.reason == errc::peer_lost);
    CHECK(p.at_b.reason == errc::peer_lost);
    CHECK(p.post(3, {}, sent) == post_result::failed);
}

}  // namespace test_transport_sim_wire
