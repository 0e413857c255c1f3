#include <rdmacoro/transport/sim/node.hpp>

#include "support/catch.hpp"
#include "support/sim_pair.hpp"

#include <vector>

namespace test_transport_sim_node {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace simulated = rdmacoro::detail::sim;

TEST_CASE("a node's table of regions checks key, bounds and rights, and uses slots again under other keys") {
    sim_world world;
    simulated::regions table(2);
    std::vector<std::byte> memory(100);
    const remote_region first = table.add(memory, access_rights::remote_read, world);
    const remote_region second = table.add(memory, access_rights::all, world);
    REQUIRE(first.key != 0);
    REQUIRE(second.key != 0);
    CHECK(table.registered() == 2);
    CHECK(table.add(memory, access_rights::all, world).key == 0);  // it is full
    CHECK(table.check(first, access_rights::remote_read) == errc::ok);
    CHECK(table.check(first, access_rights::remote_write) == errc::access_denied);
    CHECK(table.check(second, access_rights::remote_write) == errc::ok);
    remote_region asked = first;
    asked.address += 50;
    asked.length = 50;
    CHECK(table.check(asked, access_rights::remote_read) == errc::ok);
    asked.length = 51;
    CHECK(table.check(asked, access_rights::remote_read) == errc::out_of_bounds);
    asked = first;
    --asked.address;
    CHECK(table.check(asked, access_rights::remote_read) == errc::out_of_bounds);
    asked = first;
    asked.length = ~std::uint64_t{0};
    CHECK(table.check(asked, access_rights::remote_read) == errc::out_of_bounds);
    asked.key = 0;
    CHECK(table.check(asked, access_rights::remote_read) == errc::bad_key);
    asked.key = ~std::uint64_t{0};
    CHECK(table.check(asked, access_rights::remote_read) == errc::bad_key);
    table.remove(first.key);
    CHECK(table.registered() == 1);
    CHECK(table.check(first, access_rights::remote_read) == errc::bad_key);
    const remote_region third = table.add(memory, access_rights::all, world);
    CHECK(third.key != first.key);
    CHECK(table.check(first, access_rights::remote_read) == errc::bad_key);
    CHECK(table.check(third, access_rights::remote_read) == errc::ok);
}

TEST_CASE("a node without resources exposes nothing, and does again when it has some") {
    pair_of_nodes p;
    std::vector<std::byte> memory(10);
    p.b->set_exhausted(true);
    CHECK_FALSE(p.to_a->expose(memory, access_rights::all));
    p.b->set_exhausted(false);
    const region open = p.to_a->expose(memory, access_rights::all);
    CHECK(open);
    CHECK(p.b->registered() == 1);
}

TEST_CASE("a silent node hears nothing and says nothing until it speaks again, and no link ends") {
    pair_of_nodes p;
    ended sent(p.world);
    p.b->set_silent(true);
    REQUIRE(p.post(1, {}, sent) == post_result::done);
    p.settle();
    CHECK(p.at_b.count == 0);
    CHECK(p.at_a.downs + p.at_b.downs == 0);
    p.b->set_silent(false);
    p.settle();
    CHECK(p.at_b.count == 1);
}

}  // namespace test_transport_sim_node
