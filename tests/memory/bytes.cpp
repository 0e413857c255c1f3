#include <rdmacoro/memory/bytes.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace test_memory_bytes {

using namespace rdmacoro;

namespace {

struct point {
    std::int32_t x;
    std::int32_t y;
};

template <class T>
concept accepted = requires(T&& x) { bytes_of(static_cast<T&&>(x)); };
template <class T>
using bytes_t = decltype(bytes_of(std::declval<T>()));

using writable = std::span<std::byte>;
using readable = std::span<const std::byte>;

/// Other overloads of a program's own.
namespace program {
struct owner {
    std::vector<int> memory;
};
std::vector<int> bytes_of(const owner& x) { return x.memory; }
int bytes_of(const point& x) { return x.x; }
}  // namespace program

}  // namespace

// What is not const can be written to.
static_assert(std::is_same_v<bytes_t<std::uint64_t&>, writable> &&
              std::is_same_v<bytes_t<const point&>, readable>);
static_assert(std::is_same_v<bytes_t<int (&)[3]>, writable> &&
              std::is_same_v<bytes_t<const std::array<int, 2>&>, readable>);
static_assert(std::is_same_v<bytes_t<std::string&>, writable> &&
              std::is_same_v<bytes_t<const std::string&>, readable>);
static_assert(std::is_same_v<bytes_t<std::span<point>>, writable> &&
              std::is_same_v<bytes_t<std::string_view>, readable>);
static_assert(std::is_same_v<bytes_t<std::initializer_list<int>&>, readable>);

// Not in a row, or not copied bytewise.
static_assert(!accepted<std::list<int>&> && !accepted<std::vector<bool>&> &&
              !accepted<std::vector<std::string>&>);
static_assert(!accepted<std::optional<std::string>&> && accepted<std::optional<int>&>);
// What refers to its value instead of containing it.
static_assert(!accepted<int*&> && !accepted<std::nullptr_t&> && !accepted<int point::*&> &&
              !accepted<void (&)()>);
static_assert(!accepted<std::vector<int*>&> && !accepted<std::vector<int>::iterator&> &&
              !accepted<int* (&)[3]>);
static_assert(!accepted<std::vector<std::string_view>&> && !accepted<std::array<std::span<int>, 2>&>);
// Temporaries, unless they are views.
static_assert(!accepted<int> && !accepted<std::string> && !accepted<std::array<int, 2>> &&
              !accepted<std::vector<int>>);
// A literal; an array of characters is one.
static_assert(!accepted<const char (&)[4]> && accepted<char (&)[4]> && accepted<const unsigned char (&)[4]>);

TEST_CASE("the bytes of a text are its characters, and not the object that holds them") {
    std::string text(100, 'x');
    const auto bytes = bytes_of(text);
    CHECK(bytes.size() == 100);
    CHECK(static_cast<void*>(bytes.data()) == text.data());
    bytes[7] = std::byte{'y'};
    CHECK(text[7] == 'y');
    CHECK(bytes_of(std::string_view("abc")).size() == 3);
    CHECK(bytes_of(std::string_view()).empty());
}

TEST_CASE("the bytes of a value, an array and a range are their memory") {
    const point p{1, 2};
    std::int32_t second = 0;
    REQUIRE(bytes_of(p).size() == 8);
    std::memcpy(&second, bytes_of(p).data() + 4, 4);
    CHECK(second == 2);
    double numbers[3]{};
    CHECK(bytes_of(numbers).size() == 24);
    CHECK(static_cast<void*>(bytes_of(numbers).data()) == numbers);
    std::vector<std::array<std::uint16_t, 3>> rows(5);
    CHECK(bytes_of(rows).size() == 30);
    const std::span<point> none;
    CHECK(bytes_of(none).empty());
    bool flag = true;
    CHECK(bytes_of(flag).size() == 1);
}

TEST_CASE("a program's own bytes_of is preferred") {
    using namespace program;
    program::owner mine{{1, 2}};
    CHECK(bytes_of(mine).size() == 2);
    const point p{5, 6};
    CHECK(bytes_of(p) == 5);
}

}  // namespace test_memory_bytes
