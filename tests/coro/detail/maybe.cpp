#include <rdmacoro/coro/detail/maybe.hpp>

#include "support/catch.hpp"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace test_coro_detail_maybe {

using rdmacoro::detail::maybe;

static_assert(std::is_trivially_copyable_v<maybe<int>>);
static_assert(std::is_trivially_destructible_v<maybe<int>>);
static_assert(std::is_copy_constructible_v<maybe<std::string>>);
static_assert(!std::is_trivially_copyable_v<maybe<std::string>>);
static_assert(std::is_nothrow_move_constructible_v<maybe<std::unique_ptr<int>>>);
static_assert(!std::is_copy_constructible_v<maybe<std::unique_ptr<int>>>);

TEST_CASE("a maybe is empty until it is given a value, and again after reset") {
    maybe<std::string> text;
    CHECK_FALSE(text.has_value());
    text.emplace(std::size_t{3}, 'x');
    REQUIRE(text.has_value());
    CHECK(*text == "xxx");
    CHECK(text->size() == 3);
    text.emplace("another");
    CHECK(*text == "another");
    text.reset();
    CHECK_FALSE(static_cast<bool>(text));
}

TEST_CASE("a maybe copies and moves its value") {
    maybe<std::string> from(std::string("a text that is too long for a small buffer"));
    maybe<std::string> copy(from);
    CHECK(*copy == *from);
    maybe<std::string> moved(std::move(from));
    CHECK(*moved == *copy);
    maybe<std::string> assigned;
    assigned = copy;
    CHECK(*assigned == *copy);
    assigned = maybe<std::string>();
    CHECK_FALSE(assigned.has_value());
    maybe<std::string>& itself = moved;
    moved = itself;
    CHECK(*moved == *copy);
}

TEST_CASE("a maybe destroys its value once") {
    const auto counted = std::make_shared<int>(1);
    {
        maybe<std::shared_ptr<int>> one(counted);
        maybe<std::shared_ptr<int>> two(std::move(one));
        CHECK(counted.use_count() == 2);
        two.reset();
        CHECK(counted.use_count() == 1);
        two.emplace(counted);
    }
    CHECK(counted.use_count() == 1);
}

}  // namespace test_coro_detail_maybe
