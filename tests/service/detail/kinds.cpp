#include <rdmacoro/service/detail/kinds.hpp>

#include "support/catch.hpp"

#include <coroutine>
#include <forward_list>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

enum class fixed : int {};
enum unfixed {};
enum class flags : bool {};
struct point {
    double x, y;
};
struct padded {
    char a;
    int b;
};
struct with_pointer {
    int a;
    int* b;
};
struct with_reference {
    const long& a;
};
class closed {
public:
    closed() = default;

private:
    [[maybe_unused]] int a_ = 0;
};
class closed_float {
public:
    closed_float() = default;

private:
    [[maybe_unused]] float a_ = 0;
    [[maybe_unused]] float b_ = 0;
};
class closed_padded {
public:
    closed_padded() = default;

private:
    [[maybe_unused]] char a_ = 0;
    [[maybe_unused]] int b_ = 0;
};
class closed_padded_float {
public:
    closed_padded_float() = default;

private:
    [[maybe_unused]] char a_ = 0;
    [[maybe_unused]] double b_ = 0;
};
class never_made {
public:
    explicit never_made(int) {}

private:
    [[maybe_unused]] int a_ = 0;
};
struct with_base : point {
    double z;
};
struct with_bits {
    unsigned a : 8;
    unsigned b : 24;
};
struct with_loose_bits {
    unsigned a : 3;
};
struct array_of_c {
    float v[3];
    char name[4];
};
struct pointers_of_c {
    int* v[3];
};
struct thirty_three {
    int a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, aa, ab, ac, ad, ae, af,
        ag;
};
union either {
    int a;
    float b;
};
/// An aggregate, and a range: which of them its encoding follows is not for the library to say.
struct tagged : std::vector<int> {
    int unit = 0;
};
struct series {
    std::string name;
    std::list<int> values;
    [[nodiscard]] auto begin() const { return values.begin(); }
    [[nodiscard]] auto end() const { return values.end(); }
};
/// An aggregate with a get of its own.
struct pair_like {
    int a, b;
};
struct tree {
    std::vector<tree> kids;
};
struct labelled {
    int number;
    std::optional<std::string_view> label;
};

}  // namespace

template <>
struct std::tuple_size<pair_like> : std::integral_constant<std::size_t, 2> {};

TEST_CASE("each type has one kind of encoding, or none") {
    STATIC_REQUIRE(kind_of<int>() == encoding_kind::number);
    STATIC_REQUIRE(kind_of<fixed>() == encoding_kind::number);
    STATIC_REQUIRE(kind_of<std::byte>() == encoding_kind::number);
    STATIC_REQUIRE(kind_of<bool>() == encoding_kind::flag);
    STATIC_REQUIRE(kind_of<std::string>() == encoding_kind::range);
    STATIC_REQUIRE(kind_of<std::string_view>() == encoding_kind::range);
    STATIC_REQUIRE(kind_of<std::map<int, int>>() == encoding_kind::range);
    STATIC_REQUIRE(kind_of<std::array<int, 2>>() == encoding_kind::array);
    STATIC_REQUIRE(kind_of<std::pair<int, int>>() == encoding_kind::tuple);
    STATIC_REQUIRE(kind_of<point>() == encoding_kind::aggregate);
    STATIC_REQUIRE(kind_of<unfixed>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<flags>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<long double>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<int*>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<std::complex<float>>() == encoding_kind::number);
    STATIC_REQUIRE(kind_of<std::complex<long double>>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<float[3]>() == encoding_kind::array);
    STATIC_REQUIRE(kind_of<array_of_c>() == encoding_kind::aggregate);
    STATIC_REQUIRE(kind_of<with_reference>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<tagged>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<series>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<pair_like>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<std::forward_list<int>>() == encoding_kind::none);
}

TEST_CASE("a class of which the members cannot be told is its bytes, if it has no padding and its name is "
          "not the library's") {
    STATIC_REQUIRE(kind_of<closed>() == encoding_kind::bytes);
    STATIC_REQUIRE(kind_of<closed_float>() == encoding_kind::bytes);
    STATIC_REQUIRE(kind_of<with_base>() == encoding_kind::bytes);
    STATIC_REQUIRE(kind_of<with_bits>() == encoding_kind::bytes);
    STATIC_REQUIRE(kind_of<thirty_three>() == encoding_kind::bytes);
    STATIC_REQUIRE(bytes_are_value<closed>());
    STATIC_REQUIRE(kind_of<closed_padded>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<closed_padded_float>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<with_loose_bits>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<never_made>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<either>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<std::coroutine_handle<>>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<std::reference_wrapper<int>>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<std::error_code>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<std::vector<int>::iterator>() == encoding_kind::none);
}

TEST_CASE("the names of types are those that the program gives them") {
    STATIC_REQUIRE(type_name<int>() == "int");
    STATIC_REQUIRE(type_name<std::coroutine_handle<>>().starts_with("std::"));
    STATIC_REQUIRE(type_name<rdmacoro::encoder>() == "rdmacoro::encoder");
}

TEST_CASE("types of one signature begin their rows at the same place") {
    STATIC_REQUIRE(element_alignment<char>() == 1);
    STATIC_REQUIRE(element_alignment<float>() == 4);
    STATIC_REQUIRE(element_alignment<std::complex<double>>() == 8);
    STATIC_REQUIRE(element_alignment<point>() == 8);
    STATIC_REQUIRE(element_alignment<std::tuple<double, double>>() == 8);
    STATIC_REQUIRE(element_alignment<std::pair<std::uint16_t, std::array<std::byte, 2>>>() == 2);
    STATIC_REQUIRE(element_alignment<padded>() == 4);
    STATIC_REQUIRE(element_alignment<bool>() == 0);
    STATIC_REQUIRE(element_alignment<std::string>() == 0);
    STATIC_REQUIRE(element_alignment<std::pair<int, std::string>>() == 0);
    STATIC_REQUIRE(element_alignment<tree>() == 0);
    STATIC_REQUIRE(is_view<std::string_view>);
    STATIC_REQUIRE(is_view<std::span<const std::byte>>);
    STATIC_REQUIRE(is_view<std::span<const point>>);
    STATIC_REQUIRE_FALSE(is_view<std::span<point>>);
    STATIC_REQUIRE_FALSE(is_view<std::span<const padded>>);
    STATIC_REQUIRE_FALSE(is_view<std::vector<int>>);
}

TEST_CASE("a type has an encoding if all its parts have one") {
    STATIC_REQUIRE(has_encoding<tree>());
    STATIC_REQUIRE(has_encoding<std::map<std::string, std::variant<std::monostate, std::optional<point>>>>());
    STATIC_REQUIRE_FALSE(has_encoding<with_pointer>());
    STATIC_REQUIRE_FALSE(has_encoding<std::vector<with_pointer>>());
    STATIC_REQUIRE_FALSE(has_encoding<std::optional<closed_padded>>());
    STATIC_REQUIRE_FALSE(has_encoding<pointers_of_c>());
    STATIC_REQUIRE(has_encoding<array_of_c>());
    STATIC_REQUIRE_FALSE(has_encoding<std::variant<int, std::unique_ptr<int>>>());
    STATIC_REQUIRE_FALSE(has_encoding<std::tuple<int, const int*>>());
}

TEST_CASE("bytes are the value where no pattern is none and there is no padding") {
    STATIC_REQUIRE(bytes_are_value<point>());
    STATIC_REQUIRE(bytes_are_value<std::array<point, 3>>());
    STATIC_REQUIRE(bytes_are_value<array_of_c>());
    STATIC_REQUIRE_FALSE(bytes_are_value<padded>());
    STATIC_REQUIRE_FALSE(bytes_are_value<with_pointer>());
    STATIC_REQUIRE(row_of_values<std::vector<point>&>);
    STATIC_REQUIRE_FALSE(row_of_values<std::list<int>&>);
    STATIC_REQUIRE(least_bytes<std::tuple<int, std::string, padded>>() == 4 + 1 + 5);
}

TEST_CASE("views are found wherever they are a part") {
    STATIC_REQUIRE(has_views<std::string_view>());
    STATIC_REQUIRE(has_views<std::span<const std::byte>>());
    STATIC_REQUIRE(has_views<labelled>());
    STATIC_REQUIRE(has_views<std::map<int, std::vector<std::string_view>>>());
    STATIC_REQUIRE(has_views<std::variant<int, std::tuple<std::array<std::string_view, 2>>>>());
    STATIC_REQUIRE_FALSE(has_views<std::string>());
    STATIC_REQUIRE_FALSE(has_views<tree>());
    STATIC_REQUIRE_FALSE(
        has_views<std::map<std::string, std::variant<std::monostate, std::optional<point>>>>());
    must_not_have_views<void>();
    must_not_have_views<std::vector<std::byte>>();
}
