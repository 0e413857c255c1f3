#include <rdmacoro/transport/detail/receive_pool.hpp>

#include "support/catch.hpp"

#include <vector>

namespace test_transport_detail_receive_pool {

using namespace rdmacoro;

namespace {

struct slot {
    slot* next = nullptr;
    std::byte* data = nullptr;
};

/// A source with a fixed number of slots.
struct source {
    using slot_type = slot;
    explicit source(std::size_t count) : all(count) {
        for (slot& s : all) free.push_back(&s);
    }
    slot* take() noexcept {
        if (free.empty()) return nullptr;
        slot* s = free.back();
        free.pop_back();
        return s;
    }
    void give(slot& s) noexcept { free.push_back(&s); }

    std::vector<slot> all;
    std::vector<slot*> free;
};
static_assert(detail::slot_source<source>);

using pool = detail::receive_pool<source>;

std::vector<slot*> post_all(pool& from) {
    std::vector<slot*> posted;
    while (slot* s = from.next_to_post()) posted.push_back(s);
    return posted;
}

}  // namespace

TEST_CASE("as many slots are posted as links want, and consumed ones are posted again") {
    source from(100);
    pool of(from, 4);
    of.add_wanted(8);
    CHECK(of.queued() == 8);
    const std::vector<slot*> posted = post_all(of);
    CHECK(posted.size() == 8);
    CHECK(of.posted() == 8);
    of.arrived();
    CHECK(of.held() == 1);
    CHECK(of.queued() == 0);
    of.recycle(*posted.front());
    CHECK(of.held() == 0);
    CHECK_FALSE(of.surplus());
    CHECK(of.next_to_post() == posted.front());
    CHECK(from.free.size() == 92);
}

TEST_CASE("a slot that the device did not take is the next to be posted") {
    source from(4);
    pool of(from, 0);
    of.add_wanted(4);
    slot* first = of.next_to_post();
    REQUIRE(first != nullptr);
    of.not_posted(*first);
    CHECK(of.posted() == 0);
    CHECK(of.queued() == 4);
    CHECK(of.next_to_post() == first);
}

TEST_CASE("slots of a link that is closed go back to their source when they are recycled") {
    source from(8);
    pool of(from, 0);
    of.add_wanted(4);
    of.add_wanted(4);
    const std::vector<slot*> posted = post_all(of);
    of.remove_wanted(4);
    for (int n = 0; n < 8; ++n) of.arrived();
    for (slot* s : posted) of.recycle(*s);
    CHECK(of.surplus() == false);
    CHECK(of.queued() == 4);
    CHECK(from.free.size() == 4);
}

TEST_CASE("a lent slot is replaced by a spare one, and goes back to the source; too many are not lent") {
    source from(10);
    pool of(from, 2);
    of.add_wanted(4);
    const std::vector<slot*> posted = post_all(of);
    for (int n = 0; n < 3; ++n) of.arrived();
    CHECK(of.lend(*posted[0]));
    CHECK(of.lend(*posted[1]));
    CHECK_FALSE(of.lend(*posted[2]));
    CHECK(of.lent() == 2);
    CHECK(of.held() == 1);
    CHECK(of.queued() == 2);
    of.give_back_lent(*posted[0]);
    CHECK(of.lent() == 1);
    CHECK(of.lend(*posted[2]));
    CHECK(of.held() == 0);
    CHECK(of.posted() + of.queued() == 4);
}

TEST_CASE("without a spare slot nothing is lent") {
    source from(4);
    pool of(from, 2);
    of.add_wanted(4);
    const std::vector<slot*> posted = post_all(of);
    of.arrived();
    CHECK_FALSE(of.lend(*posted[0]));
    CHECK(of.held() == 1);
}

TEST_CASE("where the device takes few slots, a held one is replaced while its reader is slow") {
    source from(20);
    pool of(from, 0);
    of.limit_posted(3);
    of.add_wanted(8);
    std::vector<slot*> posted = post_all(of);
    CHECK(posted.size() == 3);
    for (int n = 0; n < 3; ++n) of.arrived();
    CHECK(of.queued() == 3);
    CHECK(post_all(of).size() == 3);
    for (int n = 0; n < 3; ++n) of.arrived();
    CHECK(post_all(of).size() == 2);  // eight in all: no more than there are credits
    of.recycle(*posted[0]);
    CHECK(of.posted() + of.queued() == 3);
}

}  // namespace test_transport_detail_receive_pool
