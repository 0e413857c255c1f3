#include <rdmacoro/service/detail/call_arguments.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace test_service_detail_call_arguments {

using namespace rdmacoro::detail;

namespace {
struct two_doubles {
    double x, y;
};
}  // namespace

TEST_CASE("a variable is borrowed, a temporary is moved in, and text stays a view") {
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<std::string&, std::string>, const std::string&>);
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<const std::string&, std::string>, const std::string&>);
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<std::string, std::string>, std::string>);
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<const char(&)[4], std::string>, std::string_view>);
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<const char*, std::string>, std::string_view>);
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<std::string, std::string_view>, std::string>);
}

TEST_CASE("what has the parameter's encoding is not converted, and what has not is") {
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<std::span<const float>, std::vector<float>>,
                                  std::span<const float>>);
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<int, std::uint64_t>, std::uint64_t>);
    STATIC_REQUIRE(std::is_same_v<stored_argument_t<int&, std::uint64_t>, std::uint64_t>);
    using two = call_arguments<std::tuple<int, double>, int, double&>;
    STATIC_REQUIRE(two::fixed);
    STATIC_REQUIRE(two::bytes == sizeof(int) + sizeof(double));
    STATIC_REQUIRE_FALSE(call_arguments<std::tuple<std::string>, std::string>::fixed);
    STATIC_REQUIRE(call_arguments<std::tuple<>>::fixed);
    // Of the same encoding, but not of the same bytes.
    using tuples = call_arguments<std::tuple<two_doubles>, std::tuple<double, double>>;
    STATIC_REQUIRE(std::is_same_v<tuples::type, std::tuple<std::tuple<double, double>>>);
    STATIC_REQUIRE_FALSE(tuples::fixed);
}

}  // namespace test_service_detail_call_arguments
