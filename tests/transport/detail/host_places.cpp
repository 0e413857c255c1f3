#include <rdmacoro/transport/detail/host_places.hpp>

#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include <sys/resource.h>

namespace test_transport_detail_host_places {

using rdmacoro::detail::host_places;
using rdmacoro::detail::intrusive_list;
using rdmacoro::detail::list_node;
using rdmacoro::detail::most_places;

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

TEST_CASE("a host crowds out others with four places, if they are a 64th of all") {
    host_places places;
    for (int n = 0; n < 3; ++n) places.take(1);
    CHECK_FALSE(places.crowds(1, 4));
    places.take(1);
    CHECK(places.crowds(1, 4));
    CHECK(places.crowds(1, 256));
    CHECK_FALSE(places.crowds(1, 257));
    CHECK_FALSE(places.crowds(2, 4));
}

TEST_CASE("places are a quarter of the descriptors of the process at most, and one at least") {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    const auto with = [&](rlim_t descriptors, std::size_t wanted) {
        few.rlim_cur = descriptors;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
        return most_places(wanted);
    };
    const std::size_t all = with(1000, 250);
    const std::size_t quarter = with(1000, 251);
    const std::size_t none = with(3, 1024);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(all == 250);
    CHECK(quarter == 250);
    CHECK(none == 1);
}

}  // namespace test_transport_detail_host_places
