#include <rdmacoro/service/codec.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <algorithm>
#include <array>
#include <complex>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

using namespace rdmacoro;
using rdmacoro::test::raw;
using namespace std::chrono_literals;

namespace {

enum class colour : std::uint16_t { red = 1, green = 2 };
struct point {
    double x, y;
    bool operator==(const point&) const = default;
};
struct padded {
    std::uint8_t a;
    std::uint32_t b;
    bool operator==(const padded&) const = default;
};
struct with_flag {
    std::uint32_t a;
    bool b;
    bool operator==(const with_flag&) const = default;
};
struct tree {
    std::string name;
    std::vector<tree> kids;
    bool operator==(const tree&) const = default;
};
struct everything {
    bool a = false;
    std::optional<std::string> b;
    std::variant<std::monostate, int, std::vector<point>> c;
    std::map<std::string, int> d;
    std::tuple<int, bool> e;
    std::array<float, 3> f{};
    std::chrono::milliseconds g{};
    std::vector<bool> h;
    std::set<int> i;
    std::list<tree> j;
    colour k = colour::red;
    std::pair<std::byte, padded> l{};
    std::unordered_map<int, std::vector<std::string>> m;
    bool operator==(const everything&) const = default;
};

everything an_example() {
    return {true,
            "text",
            std::vector<point>{{1, 2}, {3, 4}},
            {{"a", 1}, {"b", 2}},
            {-7, true},
            {1, 2, 3},
            5ms,
            {true, false, true},
            {3, 1},
            {{"root", {{"kid", {{"grandkid", {}}}}}}},
            colour::green,
            {std::byte{9}, {1, 2}},
            {{1, {"x", "y"}}, {2, {}}}};
}

/// A class with an invariant: even.
class even {
public:
    even() = default;
    explicit even(int n) : n_(n) {}
    [[nodiscard]] int number() const { return n_; }
    bool operator==(const even&) const = default;

private:
    int n_ = 0;
};

struct in_c {
    float v[3];
    std::string names[2];
    char tag[4];
    bool operator==(const in_c&) const = default;
};
class price {
public:
    price() = default;
    explicit price(std::int64_t cents) : cents_(cents) {}
    bool operator==(const price&) const = default;

private:
    std::int64_t cents_ = 0;
};
struct point_above : point {
    double z;
    bool operator==(const point_above&) const = default;
};

template <class T>
std::string refused(std::span<const std::byte> bytes, decode_limits limits = {}) {
    decoder from(bytes, limits);
    T value{};
    if (from.read(value)) return "";
    return from.why();
}

template <class T>
void comes_back(const T& value) {
    const auto bytes = encode(value);
    const auto back = decode<T>(bytes);
    REQUIRE(back);
    CHECK(*back == value);
    // No part of it is enough, and nothing may follow it.
    for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(decode<T>(std::span(bytes).first(n)));
    auto longer = bytes;
    longer.push_back(std::byte{});
    CHECK(decode<T>(longer).error() == std::errc::bad_message);
}

}  // namespace

template <>
struct rdmacoro::codec<even> {
    static constexpr std::string_view name = "even";
    static void write(encoder& to, const even& value) { to.write(value.number()); }
    static bool read(decoder& from, even& into) {
        int number = 0;
        if (!from.read(number)) return false;
        if (number % 2 != 0) return from.refuse("an odd number");
        into = even(number);
        return true;
    }
};

TEST_CASE("values come back from their encoding, and not from a part of it") {
    comes_back(std::uint64_t{1} << 60);
    comes_back(-1.5);
    comes_back(true);
    comes_back(colour::green);
    comes_back(std::string("text"));
    comes_back(std::string());
    comes_back(std::vector<std::uint16_t>{1, 2, 3});
    comes_back(std::vector<std::string>{"a", "", "ccc"});
    comes_back(std::optional<int>());
    comes_back(std::optional<int>(3));
    comes_back(std::variant<int, std::string>("x"));
    comes_back(std::tuple<int, std::string, bool>(1, "x", true));
    comes_back(std::pair<std::string, int>("x", 1));
    comes_back(std::array<std::string, 2>{"x", "y"});
    comes_back(padded{1, 2});
    comes_back(with_flag{1, true});
    comes_back(std::chrono::duration<double>(0.25));
    comes_back(even(4));
    comes_back(std::vector<even>{even(2), even(0)});
    comes_back(tree{"root", {{"kid", {}}, {"other", {{"grandkid", {}}}}}});
    comes_back(an_example());
    comes_back(in_c{{1, 2, 3}, {"x", "yy"}, {'a', 'b', 'c', 'd'}});
    comes_back(price(99));
    comes_back(std::vector<price>{price(1), price(2)});
    comes_back(point_above{{1, 2}, 3});
    comes_back(std::complex<double>(1, -1));
    comes_back(std::vector<std::complex<float>>{{1, -1}, {0, 2}});
    comes_back(std::tuple<char, std::vector<double>, std::string, std::vector<std::uint16_t>>('x', {1, 2},
                                                                                              "y", {3}));
}

TEST_CASE("padding does not travel, and numbers in a row are one copy of their bytes") {
    CHECK(encode(padded{1, 2}).size() == 5);
    CHECK(encode(point{1, 2}).size() == 16);
    CHECK(encode(in_c{}).size() == 3 * 4 + 2 + 4);
    CHECK(encode(std::vector<point>(3)).size() == 8 + 3 * 16);
}

TEST_CASE("rows begin where their elements may be read in place, and are, as views of the message") {
    const std::vector<double> numbers{1, 2, 3};
    encoder to;
    to.write('x');
    to.write(numbers);
    to.write(std::string_view("text"));
    to.write(std::vector<std::uint16_t>{7, 8});
    to.write(std::vector<float>());
    const std::vector<std::byte> all = to.bytes();
    CHECK(all.size() == 8 + 24 + 5 + 1 + 2 * 2 + 1);
    decoder from(all);
    char letter = 0;
    std::span<const double> row;
    std::string_view text;
    std::span<const std::uint16_t> words;
    std::span<const float> nothing;
    CHECK(from.read(letter));
    CHECK(from.read(row));
    CHECK(from.read(text));
    CHECK(from.read(words));
    CHECK(from.read(nothing));
    CHECK(from.left() == 0);
    CHECK(std::ranges::equal(row, numbers));
    CHECK(static_cast<const void*>(row.data()) == all.data() + 8);
    CHECK(text == "text");
    CHECK(words.back() == 8);
    CHECK(nothing.empty());
    CHECK(from.copied() == 0);
    // As a range of any other kind, too.
    CHECK(encode(std::list<double>{1, 2}) == encode(std::vector<double>{1, 2}));
    CHECK(encode(std::vector<std::tuple<double, double>>{{1, 2}}) == encode(std::vector<point>{{1, 2}}));
    CHECK(encode(std::vector<std::pair<std::uint8_t, std::uint32_t>>{{1, 2}}) ==
          encode(std::vector<padded>{{1, 2}}));
}

TEST_CASE(
    "a row whose elements do not lie as they must is copied where there is a place, and refused elsewhere") {
    const auto good = encode(std::vector<std::uint32_t>{1, 2, 3});
    alignas(8) std::array<std::byte, 64> place{};
    std::ranges::copy(good, place.begin() + 1);
    const std::span<const std::byte> bytes = std::span(place).subspan(1, good.size());
    CHECK(refused<std::span<const std::uint32_t>>(bytes) ==
          "a row that does not lie in memory as its elements must");
    copied_rows copies;
    decoder from(bytes, {}, &copies);
    std::span<const std::uint32_t> row;
    REQUIRE(from.read(row));
    CHECK(row[2] == 3);
    CHECK(row.size() == 3);
    CHECK(from.copied() == 12);
    CHECK(copies.bytes() == 12);
    decoder small(bytes, {.bytes = 11}, &copies);
    CHECK_FALSE(small.read(row));
    CHECK(copies.bytes() == 12);
    // A row that owns its elements has no such need.
    const auto owned = decode<std::vector<std::uint32_t>>(bytes);
    REQUIRE(owned);
    CHECK(owned->back() == 3);
}

TEST_CASE("what stands before a row is zero, and is there") {
    auto bytes = encode(std::vector<std::uint32_t>{1});
    REQUIRE(bytes.size() == 8);
    CHECK(refused<std::vector<std::uint32_t>>(std::span(bytes).first(2)) ==
          "a range that goes past the end of the message");
    bytes[2] = std::byte{1};
    CHECK(refused<std::vector<std::uint32_t>>(bytes) == "padding before a range that is not zero");
    CHECK(refused<std::span<const std::uint32_t>>(bytes) == "padding before a range that is not zero");
    CHECK(refused<std::list<std::uint32_t>>(bytes) == "padding before a range that is not zero");
}

TEST_CASE(
    "each value of a message may take as much memory as the first, and reading goes on where it ended") {
    const std::string text(100, 'x');
    encoder to;
    to.write(text);
    to.write(text);
    const auto all = to.bytes();
    decoder one(all, {.bytes = 150});
    std::string got;
    CHECK(one.read(got));
    const std::size_t at = one.at();
    one.begin_value();
    CHECK(one.read(got));
    decoder other(all, {.bytes = 150});
    other.skip_to(at);
    CHECK(other.read(got));
    CHECK(other.left() == 0);
    decoder both(all, {.bytes = 150});
    CHECK(both.read(got));
    CHECK_FALSE(both.read(got));
}

TEST_CASE("long rows are borrowed and not copied, in their place among the copied parts") {
    const std::vector<point> many(1000, point{1, 2});
    const std::string before = "before";
    const std::string after = "after";
    encoder to;
    to.write(before);
    to.write(many);
    to.write(after);
    const auto pieces = to.pieces();
    REQUIRE(pieces.size() == 3);
    CHECK(pieces[1].data() == reinterpret_cast<const std::byte*>(many.data()));
    CHECK(pieces[1].size() == many.size() * sizeof(point));
    CHECK(to.copied() == (1 + before.size()) + 2 + 7 + (1 + after.size()));
    CHECK(to.size() == to.copied() + many.size() * sizeof(point));
    const auto all = to.bytes();
    decoder from(all);
    std::string first;
    std::vector<point> middle;
    std::string_view last;
    CHECK(from.read(first));
    CHECK(from.read(middle));
    CHECK(from.read(last));
    CHECK(first == before);
    CHECK(middle == many);
    CHECK(last == after);
    CHECK(last.data() >= reinterpret_cast<const char*>(all.data()));  // a view of the message
    CHECK(from.left() == 0);
}

namespace {
/// Its text is made when it is asked for.
class document {
public:
    document() = default;
    explicit document(std::string text) : text_(std::move(text)) {}
    [[nodiscard]] std::string text() const { return text_; }

private:
    std::string text_;
};
struct picture {
    std::optional<std::array<char, 300'000>> pixels;
    std::vector<picture> within;
};
}  // namespace

template <>
struct rdmacoro::codec<document> {
    static constexpr std::string_view name = "document";
    static void write(encoder& to, const document& value) { to.write(value.text()); }
    static bool read(decoder& from, document& into) {
        std::string text;
        if (!from.read(text)) return false;
        into = document(std::move(text));
        return true;
    }
};

TEST_CASE("nothing of a temporary is borrowed, but what views refer to is") {
    const std::string text(5000, 'x');
    encoder to;
    to.write(document(text));
    CHECK(to.copied() == to.size());
    const std::vector<int> numbers{1, 2, 3};
    const auto made = std::views::transform(numbers, [&](int) { return text; });
    to.write(made);
    CHECK(to.copied() == to.size());
    to.write(std::string(text));
    CHECK(to.copied() == to.size());
    const std::size_t before = to.copied();
    to.write(std::string_view(text));
    CHECK(to.copied() == before + 2);
    const auto all = to.bytes();
    decoder from(all);
    document first;
    std::vector<std::string> second;
    std::string third;
    std::string_view fourth;
    REQUIRE((from.read(first) && from.read(second) && from.read(third) && from.read(fourth)));
    CHECK(first.text() == text);
    CHECK(second == std::vector<std::string>(3, text));
    CHECK(third == text);
    CHECK(fourth == text);
}

TEST_CASE("long elements within each other need no stack, and a few bytes no memory above the limit") {
    // 29 pictures within each other, none with pixels.
    std::vector<std::byte> deep;
    for (int n = 0; n < 29; ++n) deep.insert(deep.end(), {std::byte{0}, std::byte{1}});
    deep.insert(deep.end(), {std::byte{0}, std::byte{0}});
    CHECK(refused<picture>(deep) == "");
    CHECK(refused<picture>(deep, {.bytes = std::size_t{1} << 20}) ==
          "a value that takes more memory than is allowed");
    using blocks = std::vector<std::deque<char>>;
    const auto empty_ones = encode(std::vector<std::string>(10'000));
    CHECK(refused<blocks>(empty_ones, {.bytes = std::size_t{1} << 20}) ==
          "a value that takes more memory than is allowed");
    CHECK(refused<blocks>(empty_ones) == "");
}

TEST_CASE("after the first message an encoder of numbers and borrowed rows allocates nothing") {
    const std::vector<point> many(1000);
    encoder to;
    const auto message = [&] {
        to.clear();
        to.write(std::uint64_t{1});
        to.write(many);
        to.write(padded{1, 2});
        return to.pieces().size();
    };
    REQUIRE(message() == 3);
    const std::size_t before = test::allocations();
    for (int n = 0; n < 100; ++n) static_cast<void>(message());
    CHECK(test::allocations() == before);
}

TEST_CASE("what a peer sends is refused where it is no value, and the reason is told") {
    CHECK(refused<bool>(raw({2})) == "a flag that is neither 0 nor 1");
    CHECK(refused<with_flag>(raw({1, 0, 0, 0, 7})) == "a flag that is neither 0 nor 1");
    CHECK(refused<std::optional<int>>(raw({2})) == "a flag that is neither 0 nor 1");
    CHECK(refused<std::variant<int, bool>>(raw({2})) == "an alternative that the variant does not have");
    CHECK(refused<std::variant<int, bool>>(raw({1, 3})) == "a flag that is neither 0 nor 1");
    CHECK(refused<std::string>(raw({5, 'a'})) == "a range that goes past the end of the message");
    CHECK(refused<std::string_view>(raw({5, 'a'})) == "a range that goes past the end of the message");
    CHECK(refused<std::uint32_t>(raw({1, 2, 3})) == "a value that goes past the end of the message");
    CHECK(refused<std::string>(raw({0x80, 0})) == "a length in more bytes than it needs");
    CHECK(refused<std::string>(raw({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2})) ==
          "a length of more than 64 bits");
    CHECK(refused<std::set<int>>(encode(std::vector<int>{1, 1})) ==
          "an element that its set or map has already");
    CHECK(refused<even>(encode(3)) == "an odd number");
    CHECK(refused<std::vector<even>>(raw({2, 2, 0, 0, 0, 3, 0, 0, 0})) == "an odd number");
}

TEST_CASE("after a refusal nothing more is read") {
    const auto bytes = raw({2, 1, 1});
    decoder from(bytes);
    bool flag = false;
    CHECK_FALSE(from.read(flag));
    CHECK_FALSE(from.read(flag));
    std::uint64_t length = 0;
    CHECK_FALSE(from.read_length(length));
    CHECK(std::string(from.why()) == "a flag that is neither 0 nor 1");
}

TEST_CASE("a length that no memory has is refused before memory is taken") {
    const std::size_t before = test::allocations();
    encoder to;
    to.write_length(std::numeric_limits<std::uint64_t>::max());
    const auto bytes = to.bytes();
    const std::size_t made = test::allocations();
    CHECK_FALSE(decode<std::vector<point>>(bytes));
    CHECK_FALSE(decode<std::vector<tree>>(bytes));
    CHECK_FALSE(decode<std::vector<std::tuple<>>>(bytes));
    CHECK_FALSE(decode<std::string>(bytes));
    CHECK(test::allocations() == made);
    if constexpr (test::counts_allocations) CHECK(made > before);
}

TEST_CASE("the size and the depth of what is decoded are bounded") {
    const auto long_text = encode(std::string(1000, 'x'));
    CHECK(refused<std::string>(long_text, {.bytes = 1000}) == "");
    CHECK(refused<std::string>(long_text, {.bytes = 999}) ==
          "a value that takes more memory than is allowed");
    const auto texts = encode(std::vector<std::string>(10, std::string(100, 'x')));
    CHECK(refused<std::vector<std::string>>(texts, {.bytes = 1000}) ==
          "a value that takes more memory than is allowed");
    CHECK(refused<std::vector<std::string>>(texts, {.bytes = 1000 + 10 * sizeof(std::string)}) == "");
    // A hundred trees within each other: 2 bytes each.
    std::vector<std::byte> deep;
    for (int n = 0; n < 100; ++n) deep.insert(deep.end(), {std::byte{0}, std::byte{1}});
    CHECK(refused<tree>(deep) == "a value that is nested too deep");
    tree ten{"", {}};
    for (int n = 0; n < 10; ++n) {
        tree outer{"", {}};
        outer.kids.push_back(std::move(ten));
        ten = std::move(outer);
    }
    CHECK(decode<tree>(encode(ten)));
    CHECK_FALSE(decode<tree>(encode(ten), {.depth = 10}));
}

TEST_CASE("random changes of an encoding are refused or give another value, and nothing else happens") {
    std::mt19937 random(20061);
    const auto good = encode(an_example());
    int refusals = 0;
    int others = 0;
    for (int round = 0; round < 20000; ++round) {
        auto bytes = good;
        for (unsigned n = 0; n <= random() % 3; ++n)
            bytes[random() % bytes.size()] = static_cast<std::byte>(random());
        if (random() % 4 == 0) bytes.resize(random() % bytes.size());
        const auto back = decode<everything>(bytes, {.bytes = std::size_t{1} << 20});
        back ? ++others : ++refusals;
    }
    CHECK(refusals > 1000);
    CHECK(others > 1000);
}
