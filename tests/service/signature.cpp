#include <rdmacoro/service/signature.hpp>

#include "support/catch.hpp"

#include <list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

using namespace rdmacoro;

namespace {
enum class colour : std::uint16_t {};
struct point {
    double x, y;
};
struct padded {
    std::uint8_t a;
    std::uint32_t b;
};
struct with_flag {
    std::uint32_t a;
    bool b;
};
struct tree {
    std::string name;
    std::vector<tree> kids;
};
struct everything {
    bool a;
    std::optional<std::string> b;
    std::variant<std::monostate, int, std::vector<point>> c;
    std::map<std::string, tree> d;
    std::list<std::array<colour, 3>> e;
};
class even {
public:
    even() = default;

private:
    [[maybe_unused]] int n_ = 0;
};
}  // namespace

template <>
struct rdmacoro::codec<even> {
    static constexpr std::string_view name = "even";
    static void write(encoder& to, const even& value);
    static bool read(decoder& from, even& into);
};

namespace {
struct same_as_point {
    double latitude, longitude;
};
struct other_order {
    std::uint32_t b;
    std::uint8_t a;
};
struct other_tree {
    std::vector<other_tree> kids;
    std::string name;
};
struct tree_again {
    std::string title;
    std::vector<tree_again> parts;
};
class closed_class {
public:
    closed_class() = default;

private:
    [[maybe_unused]] int n_ = 0;
};
class closed_again {
public:
    closed_again() = default;

private:
    [[maybe_unused]] int n_ = 0;
};
struct three_in_c {
    float v[3];
};
struct three_floats {
    std::array<float, 3> v;
};
}  // namespace

TEST_CASE("types with the same encoding have one signature, others have others") {
    STATIC_REQUIRE(signature_of<point>() == signature_of<same_as_point>());
    STATIC_REQUIRE(signature_of<point>() == signature_of<std::tuple<double, double>>());
    STATIC_REQUIRE(signature_of<three_floats>() == signature_of<three_in_c>());
    STATIC_REQUIRE(signature_of<std::vector<float>>() == signature_of<std::span<const float>>());
    STATIC_REQUIRE(signature_of<const point&>() == signature_of<point>());
    STATIC_REQUIRE(signature_of<std::string>() == signature_of<std::string_view>());
    STATIC_REQUIRE(signature_of<tree>() == signature_of<tree_again>());
    STATIC_REQUIRE(signature_of<std::map<int, bool>>() == signature_of<std::vector<std::pair<int, bool>>>());
    const std::uint64_t all[] = {
        signature_of<int>(),
        signature_of<unsigned>(),
        signature_of<long>(),
        signature_of<float>(),
        signature_of<double>(),
        signature_of<bool>(),
        signature_of<std::byte>(),
        signature_of<colour>(),
        signature_of<point>(),
        signature_of<padded>(),
        signature_of<other_order>(),
        signature_of<with_flag>(),
        signature_of<std::string>(),
        signature_of<std::vector<int>>(),
        signature_of<std::vector<std::vector<int>>>(),
        signature_of<std::array<int, 2>>(),
        signature_of<std::array<int, 3>>(),
        signature_of<std::optional<int>>(),
        signature_of<std::variant<int>>(),
        signature_of<std::variant<int, bool>>(),
        signature_of<std::variant<bool, int>>(),
        signature_of<std::tuple<>>(),
        signature_of<std::tuple<int>>(),
        signature_of<std::chrono::seconds>(),
        signature_of<std::chrono::milliseconds>(),
        signature_of<tree>(),
        signature_of<other_tree>(),
        signature_of<even>(),
        signature_of<closed_class>(),
        signature_of<closed_again>(),
        signature_of<std::complex<float>>(),
        signature_of<std::complex<double>>(),
        signature_of<three_floats>(),
        signature_of<everything>(),
    };
    CHECK(std::set<std::uint64_t>(std::begin(all), std::end(all)).size() == std::size(all));
}
