#include <rdmacoro/transport/detail/session_handle.hpp>

#include "support/catch.hpp"

#include <utility>

namespace test_transport_detail_session_handle {

using namespace rdmacoro;

namespace {

struct session {
    int abandoned = 0;
    void abandon() noexcept { ++abandoned; }
};
using handle = detail::session_handle<session>;

}  // namespace

TEST_CASE("a connection that no link takes is abandoned once") {
    session made;
    {
        handle first(made);
        CHECK(first);
        handle second(std::move(first));
        CHECK_FALSE(first);
        first = std::move(second);
        CHECK(first);
        CHECK(made.abandoned == 0);
    }
    CHECK(made.abandoned == 1);
}

TEST_CASE("a connection that is taken, or reset, is abandoned no more") {
    session taken;
    session closed;
    {
        handle one(taken);
        CHECK(one.release() == &taken);
        CHECK_FALSE(one);
        handle two(closed);
        two.reset();
        CHECK(closed.abandoned == 1);
        two.reset();
    }
    CHECK(taken.abandoned == 0);
    CHECK(closed.abandoned == 1);
}

}  // namespace test_transport_detail_session_handle
