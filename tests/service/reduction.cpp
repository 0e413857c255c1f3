#include <rdmacoro/service/reduction.hpp>

#include "support/catch.hpp"

#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace test_service_reduction {

using namespace rdmacoro;

namespace {

struct first_of {
    int operator()(int a, int) const { return a; }
};
struct said_commutative {
    static constexpr bool commutative = true;
    int operator()(int a, int b) const { return a + b; }
};
struct said_grouped {
    static constexpr bool associative = false;
    int operator()(int a, int b) const { return a - b; }
};
struct mean {
    double operator()(double a, double b) const { return (a + b) / 2; }
};

}  // namespace
}  // namespace test_service_reduction

template <>
inline constexpr bool rdmacoro::is_associative<test_service_reduction::mean, double> = false;

namespace test_service_reduction {
namespace {

static_assert(is_associative<std::plus<>, double>, "what floating-point numbers lose is nobody's order");
static_assert(is_associative<first_of, int>);
static_assert(!is_associative<said_grouped, int>);
static_assert(!is_associative<mean, double>);
static_assert(is_associative<mean, float>);

struct amount {
    int of = 0;
    [[maybe_unused]] friend amount operator+(const amount& a, const amount& b) { return {a.of + b.of}; }
};

static_assert(is_commutative<std::plus<>, int>);
static_assert(is_commutative<std::multiplies<double>, double>);
static_assert(is_commutative<minimum, float>);
static_assert(!is_commutative<std::minus<>, int>);
static_assert(!is_commutative<first_of, int>);
static_assert(is_commutative<said_commutative, int>);
static_assert(!is_commutative<std::plus<>, amount>, "a type of the user's may add in an order");
static_assert(reduces<std::plus<>, amount>);
static_assert(!reduces<std::plus<>, std::string>, "strings are not trivially copyable");
static_assert(!reduces<std::bit_and<>, double>);

template <class T, class Op>
std::vector<T> applied(std::vector<T> into, const std::vector<T>& other, Op op, bool other_first) {
    const detail::reduction how = detail::make_reduction<T>(op);
    const auto bytes = [](const std::vector<T>& row) {
        return reinterpret_cast<const std::byte*>(row.data());
    };
    std::vector<T> apart(into.size());
    how.apply(how.op, reinterpret_cast<std::byte*>(apart.data()), other_first ? bytes(other) : bytes(into),
              other_first ? bytes(into) : bytes(other), into.size());
    auto* const to = reinterpret_cast<std::byte*>(into.data());
    how.apply(how.op, to, other_first ? bytes(other) : to, other_first ? to : bytes(other), into.size());
    // Into memory of its own, and into that of one of the two, it is the same.
    if (!into.empty()) CHECK(std::memcmp(apart.data(), into.data(), into.size() * sizeof(T)) == 0);
    return into;
}

}  // namespace

TEST_CASE("an operation without its type knows whether it is commutative and associative") {
    CHECK(detail::make_reduction<int>(std::plus<>{}).associative);
    CHECK(detail::make_reduction<int>(std::plus<>{}).commutative);
    CHECK(!detail::make_reduction<int>(said_grouped{}).associative);
    CHECK(!detail::make_reduction<int>(said_grouped{}).commutative);
    CHECK(detail::make_reduction<int>(first_of{}).associative);
}

TEST_CASE("contributions are combined element by element, in the order that is asked for") {
    using row = std::vector<int>;
    CHECK(applied(row{1, 2, 3}, row{10, 20, 30}, std::plus<>{}, false) == row{11, 22, 33});
    CHECK(applied(row{1, 2}, row{10, 20}, std::minus<>{}, false) == row{-9, -18});
    CHECK(applied(row{1, 2}, row{10, 20}, std::minus<>{}, true) == row{9, 18});
    CHECK(applied(row{1, 2}, row{10, 20}, first_of{}, true) == row{10, 20});
    // The sum of two such is an int.
    using octets = std::vector<std::uint8_t>;
    CHECK(applied(octets{200, 3}, octets{100, 4}, std::plus<>{}, false) == octets{44, 7});
    int offset = 5;
    CHECK(applied(row{1}, row{2}, [offset](int a, int b) { return a + b + offset; }, false) == row{8});
    CHECK(applied(row{4, 9}, row{7, 2}, minimum{}, false) == row{4, 2});
    CHECK(applied(row{4, 9}, row{7, 2}, maximum{}, true) == row{7, 9});
}

TEST_CASE("rows of every length are combined, whatever number of elements is taken at a time") {
    struct wide {
        std::int64_t of[12];
    };
    const auto sum = [](const wide& a, const wide& b) {
        wide all{};
        for (int at = 0; at < 12; ++at) all.of[at] = a.of[at] - b.of[at];
        return all;
    };
    for (std::size_t length = 0; length < 300; ++length) {
        std::vector<std::uint8_t> octets(length, 200), others(length);
        std::vector<double> a(length), b(length);
        std::vector<wide> c(length), d(length);
        for (std::size_t at = 0; at < length; ++at) {
            others[at] = static_cast<std::uint8_t>(at);
            a[at] = static_cast<double>(at);
            b[at] = 0.5;
            c[at].of[11] = static_cast<std::int64_t>(at);
            d[at].of[11] = 7;
        }
        octets = applied(std::move(octets), others, std::plus<>{}, false);
        a = applied(std::move(a), b, std::minus<>{}, true);
        c = applied(std::move(c), d, sum, false);
        for (std::size_t at = 0; at < length; ++at) {
            REQUIRE(octets[at] == static_cast<std::uint8_t>(200 + at));
            REQUIRE(a[at] == 0.5 - static_cast<double>(at));
            REQUIRE(c[at].of[11] == static_cast<std::int64_t>(at) - 7);
        }
    }
}

TEST_CASE("of floating-point numbers that are equal the one of the lower rank is taken, at both ranks") {
    const auto bits = [](double x) {
        std::uint64_t all = 0;
        std::memcpy(&all, &x, sizeof all);
        return all;
    };
    const std::vector<double> low{0.0, std::numeric_limits<double>::quiet_NaN()};
    const std::vector<double> high{-0.0, 1.0};
    const std::vector<double> at_low = applied(low, high, minimum{}, false);
    const std::vector<double> at_high = applied(high, low, minimum{}, true);
    CHECK(bits(at_low[0]) == bits(at_high[0]));
    CHECK(bits(at_low[1]) == bits(at_high[1]));
}

}  // namespace test_service_reduction
