#include <rdmacoro/messaging/detail/way.hpp>

#include "support/catch.hpp"

#include <rdmacoro/coro/scheduler.hpp>

#include <type_traits>

namespace test_messaging_detail_way {

using namespace rdmacoro;

namespace {

struct state {
    scheduler* on;
    [[nodiscard]] scheduler& owner() const noexcept { return *on; }
};
struct some_link {};
struct some_connection {
    state of;
    some_link to_peer{};
    [[nodiscard]] state& mailbox() noexcept { return of; }
    [[nodiscard]] some_link& link() noexcept { return to_peer; }
};
struct derived_connection : some_connection {};

}  // namespace

TEST_CASE("a way is to a target and its scheduler, the mailbox's where the target has one") {
    scheduler on;
    state box{&on};
    const detail::way<state> to_box(box);
    CHECK(to_box.to() == &box);
    CHECK(to_box.owner() == &on);
    derived_connection connection{{box}};
    const detail::way<derived_connection> to(connection);
    CHECK(to.owner() == &on);
    const detail::way<some_connection> to_base = to;
    CHECK(to_base.to() == &connection);
    CHECK(to_base.owner() == &on);
    const auto to_link = to.link();
    static_assert(std::is_same_v<decltype(to_link), const detail::way<some_link>>);
    CHECK(to_link.to() == &connection.to_peer);
    CHECK(to_link.owner() == &on);
}

TEST_CASE("a way to nothing has no target, and so has the way to its link") {
    const detail::way<some_connection> none;
    CHECK(none.to() == nullptr);
    CHECK(none.owner() == detail::no_scheduler());
    CHECK(none.link().to() == nullptr);
    CHECK(none.link().owner() == detail::no_scheduler());
}

}  // namespace test_messaging_detail_way
