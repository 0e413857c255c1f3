#include <rdmacoro/transport/detail/host_places.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstdint>

namespace test_transport_detail_host_places {

using rdmacoro::detail::host_places;
using rdmacoro::detail::intrusive_list;
using rdmacoro::detail::list_node;

namespace {

struct stranger : list_node<stranger> {
    std::uint8_t from = 0;
};

/// Strangers of these hosts, oldest first.
template <std::size_t Count>
struct queue {
    explicit queue(const std::array<std::uint8_t, Count>& hosts) {
        for (std::size_t n = 0; n < Count; ++n) {
            all[n].from = hosts[n];
            places.take(hosts[n]);
            waiting.push_back(all[n]);
        }
    }
    ~queue() {
        for (stranger& one : all) one.unlink();
    }

    std::array<stranger, Count> all;
    intrusive_list<stranger> waiting;
    host_places places;
};

}  // namespace

TEST_CASE("the oldest stranger of the host with the most places is the next to be dropped") {
    queue<6> of({3, 250, 7, 7, 250, 7});
    CHECK(of.places.next_to_drop(of.waiting) == &of.all[2]);
    of.all[2].unlink();
    of.places.release(7);
    // Two hosts hold as many: the oldest of both.
    CHECK(of.places.next_to_drop(of.waiting) == &of.all[1]);
}

TEST_CASE("of an empty queue none is dropped") {
    host_places places;
    intrusive_list<stranger> waiting;
    CHECK(places.next_to_drop(waiting) == nullptr);
}

TEST_CASE("a host holds more than a new one's if it would not hold fewer after giving a place") {
    host_places places;
    places.take(1);
    CHECK_FALSE(places.holds_more(1, 2));
    places.take(1);
    CHECK(places.holds_more(1, 2));
    places.take(2);
    CHECK_FALSE(places.holds_more(1, 2));
    places.take(1);
    CHECK(places.holds_more(1, 2));
    CHECK_FALSE(places.holds_more(1, 1));
}

}  // namespace test_transport_detail_host_places
