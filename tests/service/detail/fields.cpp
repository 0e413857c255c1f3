#include <rdmacoro/service/detail/fields.hpp>

#include "support/catch.hpp"

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

using namespace rdmacoro::detail;

namespace {
struct none {};
struct one {
    int a;
};
struct text_and_views {
    std::string a;
    std::string_view b;
    std::span<const int> c;
};
struct choices {
    std::optional<int> a;
    std::optional<std::vector<std::optional<int>>> b;
    std::variant<int, std::string> c;
    std::unique_ptr<int> d;
};
struct nested {
    one a;
    std::array<int, 3> b;
    std::map<int, std::string> c;
    std::pair<int, int> d;
    std::tuple<int, std::string> e;
};
struct within_itself {
    std::vector<within_itself> kids;
    int a;
};
struct sixteen {
    int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p;
};
struct seventeen {
    int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q;
};

static_assert(member_count<none>() == 0);
static_assert(member_count<one>() == 1);
static_assert(member_count<text_and_views>() == 3);
static_assert(member_count<choices>() == 4);
static_assert(member_count<nested>() == 5);
static_assert(member_count<within_itself>() == 2);
static_assert(member_count<sixteen>() == 16);
static_assert(has_members<sixteen> && !has_members<seventeen>);
static_assert(!has_members<std::string> && !has_members<int>);
static_assert(has_members<none>);

// Members that hide how many there are, or refer to what is elsewhere: none can be told.
struct greedy {
    long value = 0;
    greedy() = default;
    template <class T>
    greedy(const T& from) : value(static_cast<long>(from)) {}
};
struct with_greedy {
    greedy a;
    int b = 0;
};
struct with_reference {
    const long& a;
};
struct with_references {
    int& a;
    int b;
};
struct with_constant {
    const int a;
};
static_assert(!has_members<with_greedy>);
static_assert(!has_members<with_reference> && !has_members<with_references> && !has_members<with_constant>);
static_assert(std::is_same_v<member_types<const one>, std::tuple<const int&>>);
}  // namespace

TEST_CASE("the members of an aggregate are itself, in order") {
    nested whole{{1}, {2, 3, 4}, {}, {5, 6}, {7, "eight"}};
    const auto members = members_of(whole);
    CHECK(&std::get<0>(members) == &whole.a);
    CHECK(&std::get<3>(members) == &whole.d);
    std::get<1>(std::get<4>(members)) = "nine";
    CHECK(std::get<1>(whole.e) == "nine");
    sixteen many{};
    CHECK(&std::get<15>(members_of(many)) == &many.p);
}
