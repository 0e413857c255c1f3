#include <rdmacoro/transport/detail/connection_table.hpp>

#include "support/catch.hpp"

#include <stdexcept>
#include <vector>

namespace test_transport_detail_connection_table {

using namespace rdmacoro;

namespace {

struct sums {
    int sent = 0;
    sums& operator+=(const sums& other) noexcept {
        sent += other.sent;
        return *this;
    }
};

/// A session that is over when it is told so, or in a hurry.
struct session : detail::list_node<detail::connection_tag>, detail::list_node<detail::leaving_tag> {
    static inline int alive = 0;
    session(std::uint32_t place, int sent) : place_(place), counts_{sent} { ++alive; }
    session(const session&) = delete;
    session& operator=(const session&) = delete;
    ~session() {
        static_cast<detail::list_node<detail::connection_tag>&>(*this).unlink();
        static_cast<detail::list_node<detail::leaving_tag>&>(*this).unlink();
        --alive;
    }
    [[nodiscard]] std::uint32_t place() const noexcept { return place_; }
    [[nodiscard]] const sums& counts() const noexcept { return counts_; }
    [[nodiscard]] bool leave_step(bool in_a_hurry) noexcept {
        ++steps;
        return over || in_a_hurry;
    }
    bool over = false;
    int steps = 0;

private:
    std::uint32_t place_;
    sums counts_;
};

using table = detail::connection_table<session>;

session& make(table& in, int sent = 1) {
    session* made = in.make([&](std::uint32_t place) { return new session(place, sent); });
    REQUIRE(made != nullptr);
    return *made;
}

}  // namespace

TEST_CASE("a connection is found by its place, which another gets when it is destroyed") {
    table of;
    session& a = make(of);
    session& b = make(of);
    CHECK(a.place() != b.place());
    CHECK(of.at(a.place()) == &a);
    CHECK(of.at(b.place()) == &b);
    CHECK(of.at(1000) == nullptr);
    CHECK(of.size() == 2);
    const std::uint32_t place = a.place();
    of.destroy(a);
    CHECK(of.at(place) == nullptr);
    CHECK(of.size() == 1);
    CHECK(make(of).place() == place);
    while (session* s = of.first()) of.destroy(*s);
    CHECK(session::alive == 0);
}

TEST_CASE("a connection that could not be made leaves its place to the next") {
    table of;
    CHECK(of.make([](std::uint32_t) -> session* { throw std::runtime_error("no"); }) == nullptr);
    CHECK(of.size() == 0);
    session& made = make(of);
    CHECK(made.place() == 0);
    of.destroy(made);
}

TEST_CASE("reap goes on with closing connections and destroys the ones that are over") {
    table of;
    session& open = make(of);
    session& slow = make(of);
    session& quick = make(of);
    of.leaves(slow);
    of.leaves(quick);
    CHECK(of.any_leaving());
    CHECK_FALSE(of.reap());
    quick.over = true;
    CHECK(of.reap());
    CHECK(of.size() == 2);
    CHECK(slow.steps == 2);
    CHECK(open.steps == 0);
    CHECK_FALSE(of.any_leaving([](const session& s) noexcept { return s.over; }));
    slow.over = true;
    CHECK(of.any_leaving([](const session& s) noexcept { return s.over; }));
    of.leaves(slow);  // twice is once
    CHECK(of.reap());
    CHECK_FALSE(of.any_leaving());
    of.destroy(open);
    CHECK(session::alive == 0);
}

TEST_CASE("counts of a table are those of its connections, destroyed ones included") {
    table of;
    session& a = make(of, 3);
    make(of, 4);
    CHECK(of.counts().sent == 7);
    of.destroy(a);
    CHECK(of.counts().sent == 7);
    of.closed_totals().sent += 10;
    CHECK(of.counts().sent == 17);
    of.destroy(*of.first());
    CHECK(of.counts().sent == 17);
}

}  // namespace test_transport_detail_connection_table
