#include <rdmacoro/service/method.hpp>

#include "support/catch.hpp"

#include <string>
#include <vector>

namespace test_service_method {

using namespace rdmacoro;

namespace {
using get = method<"kv.get", std::string(std::string)>;
using get_of_numbers = method<"kv.get", std::string(std::vector<int>)>;
using put = method<"kv.put", void(std::string, std::string)>;
using other = method<"other.get", std::string(std::string)>;
using plain = method<"kv", std::string(std::string)>;
using items = method<"kv.get", stream<std::string>(std::string)>;
using told = method<"kv.get", one_way(std::string)>;
}  // namespace

TEST_CASE("a method is found by its name, and its service by the part before the dot") {
    STATIC_REQUIRE(get::name == "kv.get");
    STATIC_REQUIRE(get::number == get_of_numbers::number);
    STATIC_REQUIRE(get::number != put::number);
    STATIC_REQUIRE(get::number != other::number);
    STATIC_REQUIRE(get::service == put::service);
    STATIC_REQUIRE(get::service == plain::service);
    STATIC_REQUIRE(get::service != other::service);
    STATIC_REQUIRE(get::service < 0x8000);
}

TEST_CASE("a method's signature changes with each of its types, and with how its result comes") {
    STATIC_REQUIRE(get::signature == other::signature);
    STATIC_REQUIRE(get::signature != get_of_numbers::signature);
    STATIC_REQUIRE(get::signature != put::signature);
    STATIC_REQUIRE(get::signature != items::signature);
    STATIC_REQUIRE(get::signature != told::signature);
    STATIC_REQUIRE(items::signature != told::signature);
}

}  // namespace test_service_method
