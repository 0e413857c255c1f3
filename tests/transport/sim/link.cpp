#include <rdmacoro/transport/sim/link.hpp>

#include "support/catch.hpp"
#include "support/sim_pair.hpp"

#include <vector>

namespace test_transport_sim_link {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("a message that the sink defers comes again, before those behind it") {
    pair_of_nodes p;
    ended sent(p.world);
    p.at_b.refuse = 3;
    for (std::uint64_t n = 0; n < 4; ++n) REQUIRE(p.post(n, {}, sent) == post_result::done);
    p.settle();
    while (p.at_b.count < 4) {
        p.to_a->poll(10);
        p.settle();
    }
    CHECK(p.at_b.offers == 7);
    for (std::uint64_t n = 0; n < 4; ++n) CHECK(p.at_b.messages[n].number == n);
}

TEST_CASE("a payload that is announced comes in pieces, into memory of the sink") {
    sim_options nodes;
    nodes.announces_above = 100;
    nodes.piece_bytes = 64;
    pair_of_nodes p(costing({}), nodes);
    ended sent(p.world);
    const auto data = pattern(1000);
    REQUIRE(p.post(5, data, sent) != post_result::retry);
    p.settle();
    REQUIRE(p.at_b.messages.size() == 1);
    CHECK(p.at_b.messages.front().announced);
    CHECK(p.at_b.messages.front().payload == data);
}

TEST_CASE("a get and a put move the bytes, and a wrong key is refused") {
    pair_of_nodes p;
    auto memory = pattern(300, 1);
    const region open = p.b->register_memory(memory, access_rights::all);
    std::vector<std::byte> here(300);
    ended got(p.world);
    REQUIRE(p.to_b->get(open.remote(), here, got) == post_result::posted);
    p.settle();
    CHECK((got.over && !got.outcome));
    CHECK(here == pattern(300, 1));
    here = pattern(300, 2);
    ended put(p.world);
    REQUIRE(p.to_b->put(here, open.remote(), put) == post_result::posted);
    p.settle();
    CHECK((put.over && !put.outcome));
    CHECK(memory == pattern(300, 2));
    remote_region wrong = open.remote();
    wrong.key ^= std::uint64_t{1} << 40;
    ended refused(p.world);
    REQUIRE(p.to_b->get(wrong, here, refused) == post_result::posted);
    p.settle();
    CHECK(refused.over);
    CHECK(refused.outcome == errc::bad_key);
}

TEST_CASE("closing a link ends its transfers and tells the peer behind what was sent") {
    pair_of_nodes p;
    auto memory = pattern(100);
    const region open = p.b->register_memory(memory, access_rights::all);
    std::vector<std::byte> here(100);
    ended got(p.world);
    ended sent(p.world);
    REQUIRE(p.post(1, {}, sent) == post_result::done);
    REQUIRE(p.to_b->get(open.remote(), here, got) == post_result::posted);
    p.to_b->close(make_error_code(errc::closed));
    CHECK(got.over);
    CHECK(got.outcome == errc::closed);
    CHECK(p.at_a.downs == 1);
    p.settle();
    CHECK(p.at_b.count == 1);
    CHECK(p.at_b.downs == 1);
}

}  // namespace test_transport_sim_link
