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

namespace test_service_detail_fields {

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
struct most_it_can {
    int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af;
};
struct too_many {
    int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af,
        ag;
};
struct arrays_of_c {
    float a[3];
    std::string b;
    one c[2][2];
    int d[1];
    char e[100];
    std::array<int, 4> f;
    std::vector<int> g[2];
};
struct long_array {
    char a[600];
};

static_assert(member_count<none>() == 0);
static_assert(member_count<one>() == 1);
static_assert(member_count<text_and_views>() == 3);
static_assert(member_count<choices>() == 4);
static_assert(member_count<nested>() == 5);
static_assert(member_count<within_itself>() == 2);
static_assert(member_count<most_it_can>() == 32);
static_assert(has_members<most_it_can> && !has_members<too_many>);
static_assert(element_count<arrays_of_c>() == 3 + 1 + 4 + 1 + 100 + 1 + 2);
static_assert(member_count<arrays_of_c>() == 7 && has_members<arrays_of_c>);
static_assert(std::is_same_v<member_types<arrays_of_c>,
                             std::tuple<float (&)[3], std::string&, one (&)[2][2], int (&)[1], char (&)[100],
                                        std::array<int, 4>&, std::vector<int> (&)[2]>>);
static_assert(!has_members<long_array>);
static_assert(!has_members<std::string> && !has_members<int>);
static_assert(has_members<none>);

// Members that hide how most_it_can there are, or refer to what is elsewhere: none can be told.
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
struct one_reference {
    const long& a;
};
struct with_references {
    int& a;
    int b;
};
struct with_constant {
    const int a;
};
struct behind_greedy {
    int b = 0;
    greedy a;
};
struct derived_from_one : one {
    int b;
};
struct bits_of_unsigned {
    unsigned a : 3;
    unsigned b;
};
union int_or_float {
    int a;
    float b;
};
struct with_union {
    int a;
    int_or_float b;
};
struct with_unnamed_union {
    int a;
    union {
        int b;
        float c;
    };
};
static_assert(!has_members<with_greedy> && !has_members<behind_greedy>);
static_assert(!has_members<derived_from_one> && !has_members<bits_of_unsigned>);
static_assert(!has_members<with_union> && !has_members<with_unnamed_union>);
static_assert(!has_members<one_reference> && !has_members<with_references> && !has_members<with_constant>);
static_assert(std::is_same_v<member_types<const one>, std::tuple<const int&>>);
}  // namespace

TEST_CASE("the members of an aggregate are itself, in order") {
    nested whole{{1}, {2, 3, 4}, {}, {5, 6}, {7, "eight"}};
    const auto members = members_of(whole);
    CHECK(&std::get<0>(members) == &whole.a);
    CHECK(&std::get<3>(members) == &whole.d);
    std::get<1>(std::get<4>(members)) = "nine";
    CHECK(std::get<1>(whole.e) == "nine");
    most_it_can all{};
    CHECK(&std::get<31>(members_of(all)) == &all.af);
    arrays_of_c rows{};
    CHECK(&std::get<2>(members_of(rows)) == &rows.c);
    CHECK(&std::get<6>(members_of(rows)) == &rows.g);
}

}  // namespace test_service_detail_fields
