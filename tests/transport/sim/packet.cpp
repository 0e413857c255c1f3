#include <rdmacoro/transport/sim/packet.hpp>

#include "support/catch.hpp"

namespace test_transport_sim_packet {

using namespace rdmacoro::detail::sim;

TEST_CASE("packets leave a queue in order; one that is put back comes first") {
    packet a;
    packet b;
    packet c;
    packet_queue queue;
    CHECK(queue.empty());
    CHECK(queue.pop_front() == nullptr);
    queue.push_back(a);
    queue.push_back(b);
    CHECK(queue.pop_front() == &a);
    queue.push_front(a);
    queue.push_back(c);
    CHECK(queue.pop_front() == &a);
    CHECK(queue.pop_front() == &b);
    CHECK(queue.front() == &c);
    CHECK(queue.pop_front() == &c);
    CHECK(queue.empty());
    queue.push_front(b);
    queue.push_back(a);
    CHECK(queue.pop_front() == &b);
    CHECK(queue.pop_front() == &a);
}

TEST_CASE("a packet is complete when all of its bytes have come") {
    packet p;
    CHECK(p.complete());
    p.bytes = 3;
    CHECK_FALSE(p.complete());
    p.visible = 3;
    CHECK(p.complete());
}

TEST_CASE("what is given back is used again before anything is made") {
    recycled<packet, &packet::next> pool;
    packet& first = pool.take();
    packet& second = pool.take();
    CHECK(&first != &second);
    pool.give_back(first);
    packet& again = pool.take();
    CHECK(&again == &first);
    CHECK(again.next == nullptr);
    pool.give_back(again);
    pool.give_back(second);
}

}  // namespace test_transport_sim_packet
