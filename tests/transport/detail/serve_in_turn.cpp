#include <rdmacoro/transport/detail/serve_in_turn.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace test_transport_detail_serve_in_turn {

using rdmacoro::detail::intrusive_list;
using rdmacoro::detail::list_node;
using rdmacoro::detail::messages_of_a_link;
using rdmacoro::detail::messages_of_a_poll;
using rdmacoro::detail::serve_in_turn;

namespace {

struct work_tag;
struct link : list_node<work_tag> {
    unsigned waiting = 0;
    unsigned handed_up = 0;
};

/// Links that hand up what they may, and mark themselves while they have more.
struct links {
    explicit links(std::size_t count) : all(count) {}
    std::vector<link> all;
    intrusive_list<link, work_tag> work;

    void give(link& to, unsigned messages) {
        to.waiting += messages;
        if (!to.list_node<work_tag>::linked()) work.push_back(to);
    }
    bool poll() {
        return serve_in_turn(work, [this](link& one, unsigned budget) noexcept {
            const unsigned now = std::min(one.waiting, budget);
            one.waiting -= now;
            one.handed_up += now;
            if (one.waiting != 0) work.push_back(one);
            return now;
        });
    }
    [[nodiscard]] unsigned handed_up() const {
        unsigned sum = 0;
        for (const link& one : all) sum += one.handed_up;
        return sum;
    }
};

}  // namespace

TEST_CASE("one poll hands up no more messages of a hundred links than of a few, and each link has its turn") {
    links l(100);
    for (link& one : l.all) l.give(one, 1000);
    unsigned before = 0;
    for (unsigned polls = 1; l.handed_up() < 100 * 1000; ++polls) {
        REQUIRE(polls < 1000);
        CHECK(l.poll());
        CHECK(l.handed_up() - before <= messages_of_a_poll + messages_of_a_link);
        before = l.handed_up();
        // None is ahead of another by more than a turn.
        const auto [least, most] =
            std::minmax_element(l.all.begin(), l.all.end(),
                                [](const link& a, const link& b) { return a.handed_up < b.handed_up; });
        CHECK(most->handed_up - least->handed_up <= messages_of_a_link);
    }
    CHECK_FALSE(l.poll());
}

TEST_CASE("links that always have more keep none waiting that has one message") {
    links l(20);
    for (link& one : l.all) l.give(one, 100'000);
    l.all[0].waiting = 0;
    l.poll();
    l.give(l.all[0], 1);
    for (unsigned polls = 0; polls < 6; ++polls) l.poll();
    CHECK(l.all[0].handed_up == 1);
}

TEST_CASE("links with nothing to hand up are all looked at in one poll") {
    links l(1000);
    for (link& one : l.all) l.give(one, 0);
    CHECK_FALSE(l.poll());
    CHECK(l.work.empty());
}

}  // namespace test_transport_detail_serve_in_turn
