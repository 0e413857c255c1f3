#include <rdmacoro/transport/sim/event.hpp>

#include "support/catch.hpp"

#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace test_transport_sim_event {

using namespace rdmacoro;
using namespace rdmacoro::detail::sim;
using rdmacoro::detail::sim::event;

static_assert(event_key::kind(event_key::of(event_kind::put, 9, 12)) == event_kind::put);
static_assert(event_key::whose(event_key::of(event_kind::put, 9, 12)) == 9);
static_assert(event_key::number(event_key::of(event_kind::put, 9, 12)) == 12);
static_assert(independent(1, 2) && !independent(3, 2));

TEST_CASE("every kind of event has a name") {
    for (const auto kind : {event_kind::deliver, event_kind::room, event_kind::transmitted, event_kind::get,
                            event_kind::put, event_kind::step, event_kind::custom}) {
        CHECK(std::string(name_of(kind)) != "?");
    }
}

TEST_CASE("the queue gives the earliest event first, and of one time the one queued first") {
    std::mt19937 random(5);
    std::vector<event> events(200);
    event_queue queue;
    for (event& e : events) {
        e.at = time_point(std::chrono::nanoseconds(random() % 10));
        queue.insert(e);
    }
    // Any of them can be removed, once or twice.
    for (std::size_t n = 0; n < events.size(); n += 7) {
        queue.remove(events[n]);
        CHECK_FALSE(events[n].queued());
        queue.remove(events[n]);
    }
    std::size_t seen = 0;
    const event* before = nullptr;
    while (event* e = queue.front()) {
        if (before != nullptr) {
            const bool in_order = before->at < e->at || (before->at == e->at && before->order < e->order);
            CHECK(in_order);
        }
        before = e;
        queue.remove(*e);
        ++seen;
    }
    CHECK(seen == 200 - 29);
    CHECK(queue.empty());
}

}  // namespace test_transport_sim_event
