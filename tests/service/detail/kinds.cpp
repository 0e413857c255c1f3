#include <rdmacoro/service/detail/kinds.hpp>

#include "support/catch.hpp"

#include <forward_list>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
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
    STATIC_REQUIRE(kind_of<closed>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<with_reference>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<tagged>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<series>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<pair_like>() == encoding_kind::none);
    STATIC_REQUIRE(kind_of<std::forward_list<int>>() == encoding_kind::none);
}

TEST_CASE("a type has an encoding if all its parts have one") {
    STATIC_REQUIRE(has_encoding<tree>());
    STATIC_REQUIRE(has_encoding<std::map<std::string, std::variant<std::monostate, std::optional<point>>>>());
    STATIC_REQUIRE_FALSE(has_encoding<with_pointer>());
    STATIC_REQUIRE_FALSE(has_encoding<std::vector<with_pointer>>());
    STATIC_REQUIRE_FALSE(has_encoding<std::optional<closed>>());
    STATIC_REQUIRE_FALSE(has_encoding<std::variant<int, std::unique_ptr<int>>>());
    STATIC_REQUIRE_FALSE(has_encoding<std::tuple<int, const int*>>());
}

TEST_CASE("bytes are the value where no pattern is none and there is no padding") {
    STATIC_REQUIRE(bytes_are_value<point>());
    STATIC_REQUIRE(bytes_are_value<std::array<point, 3>>());
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
