#include <rdmacoro/memory/buffers.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <random>
#include <vector>

using namespace rdmacoro;

static_assert(std::is_convertible_v<std::span<const std::byte>, const_buffers>);
static_assert(std::is_convertible_v<std::span<std::byte>, const_buffers>);
static_assert(std::is_convertible_v<std::span<std::byte>, mutable_buffers>);
static_assert(std::is_convertible_v<std::vector<std::byte>&, mutable_buffers>);
static_assert(std::is_convertible_v<std::array<std::byte, 4>&, mutable_buffers>);
static_assert(std::is_convertible_v<std::byte (&)[4], mutable_buffers>);
static_assert(!std::is_convertible_v<std::span<const std::byte>, mutable_buffers>);
static_assert(!std::is_convertible_v<const std::vector<std::byte>&, mutable_buffers>);
static_assert(!std::is_convertible_v<std::vector<char>&, mutable_buffers>);
static_assert(std::is_trivially_copyable_v<const_buffers>);

namespace {

std::vector<std::byte> numbered(std::size_t bytes) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(i % 251);
    return made;
}

/// `data` cut at random places into `count` pieces, some of them empty.
template <class Byte>
std::vector<std::span<Byte>> cut(std::span<Byte> data, std::size_t count, std::mt19937& random) {
    std::vector<std::size_t> at{0, data.size()};
    while (at.size() < count + 1) at.push_back(random() % (data.size() + 1));
    std::sort(at.begin(), at.end());
    std::vector<std::span<Byte>> pieces;
    for (std::size_t i = 0; i + 1 < at.size(); ++i) pieces.push_back(data.subspan(at[i], at[i + 1] - at[i]));
    return pieces;
}

std::vector<std::byte> flat(const const_buffers& buffers) {
    std::vector<std::byte> all;
    for (std::size_t i = 0; i < buffers.pieces(); ++i)
        all.insert(all.end(), buffers[i].begin(), buffers[i].end());
    return all;
}

}  // namespace

TEST_CASE("no buffers are empty") {
    const const_buffers none;
    CHECK(none.size() == 0);
    CHECK(none.empty());
    CHECK(none.contiguous());
    CHECK(none.at_offset(0).empty());
    CHECK(none.slice(0, 10).empty());
}

TEST_CASE("one piece is found at each offset and cut anywhere") {
    const auto data = numbered(100);
    const const_buffers one(data);
    CHECK(one.size() == 100);
    CHECK(one.pieces() == 1);
    CHECK(one.contiguous());
    CHECK(one[0].data() == data.data());
    CHECK(one.at_offset(40).data() == data.data() + 40);
    CHECK(one.at_offset(40).size() == 60);
    CHECK(one.at_offset(100).empty());
    CHECK(one.slice(10, 20)[0].data() == data.data() + 10);
    CHECK(one.slice(10, 20).size() == 20);
    CHECK(one.slice(90, 20).size() == 10);
    CHECK(one.slice(100, 20).empty());
}

TEST_CASE("gather and scatter keep up to three pieces by value") {
    const auto a = numbered(3);
    const auto b = numbered(0);
    const auto c = numbered(5);
    const const_buffers three = gather(a, b, c);
    CHECK(three.pieces() == 3);
    CHECK(three.size() == 8);
    CHECK_FALSE(three.contiguous());
    CHECK(three[0].data() == a.data());
    CHECK(three[2].data() == c.data());
    CHECK(three.at_offset(3).data() == c.data());  // past the empty piece
    std::vector<std::byte> x(2);
    std::vector<std::byte> y(6);
    const mutable_buffers into = scatter(x, y);
    CHECK(into.size() == 8);
    detail::copy_in(a, into, 0);
    detail::copy_in(c, into, 3);
    CHECK(x[1] == std::byte{1});
    CHECK(y[0] == std::byte{2});
    CHECK(y[5] == std::byte{4});
}

TEST_CASE("random cuts, slices and copies agree with the flat bytes") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    for (int round = 0; round < 300; ++round) {
        const std::size_t bytes = random() % 200;
        const auto data = numbered(bytes);
        const auto pieces = cut(std::span<const std::byte>(data), 1 + random() % 8, random);
        const const_buffers buffers{std::span<const std::span<const std::byte>>(pieces)};
        CHECK(buffers.size() == bytes);
        CHECK(flat(buffers) == data);
        for (std::size_t offset = 0; offset <= bytes; offset += 1 + random() % 20) {
            const auto here = buffers.at_offset(offset);
            CHECK(here.empty() == (offset == bytes));
            if (!here.empty()) CHECK(here.data() == data.data() + offset);
            // A slice is a prefix of what was asked, and not empty unless it must be.
            const std::size_t most = random() % 100;
            const std::size_t allowed = 1 + random() % 3;
            const const_buffers part = buffers.slice(offset, most, allowed);
            CHECK(part.pieces() <= std::max<std::size_t>(allowed, 1));
            CHECK(part.size() <= std::min(most, bytes - offset));
            if (most > 0 && offset < bytes) CHECK_FALSE(part.empty());
            const auto got = flat(part);
            CHECK(std::equal(got.begin(), got.end(), data.begin() + static_cast<std::ptrdiff_t>(offset)));
            // Copied out and in again.
            std::vector<std::byte> out(bytes - offset);
            detail::copy_out(buffers, offset, out.data(), out.size());
            CHECK(std::equal(out.begin(), out.end(), data.begin() + static_cast<std::ptrdiff_t>(offset)));
            std::vector<std::byte> target(bytes, std::byte{0xff});
            const auto holes = cut(std::span<std::byte>(target), 1 + random() % 8, random);
            detail::copy_in(out, mutable_buffers{std::span<const std::span<std::byte>>(holes)}, offset);
            CHECK(std::equal(target.begin() + static_cast<std::ptrdiff_t>(offset), target.end(),
                             data.begin() + static_cast<std::ptrdiff_t>(offset)));
            CHECK(std::count(target.begin(), target.begin() + static_cast<std::ptrdiff_t>(offset),
                             std::byte{0xff}) == static_cast<std::ptrdiff_t>(offset));
        }
    }
}

TEST_CASE("what does not fit is not copied") {
    const auto data = numbered(10);
    std::vector<std::byte> first(3, std::byte{0xff});
    std::vector<std::byte> second(4, std::byte{0xff});
    std::vector<std::byte> beyond(4, std::byte{0xff});
    detail::copy_in(data, scatter(first, second), 2);
    CHECK(first[1] == std::byte{0xff});
    CHECK(first[2] == std::byte{0});
    CHECK(second[3] == std::byte{4});
    CHECK(beyond[0] == std::byte{0xff});
}

TEST_CASE("a long list of pieces stays in the caller's array") {
    const auto data = numbered(40);
    std::vector<std::span<const std::byte>> pieces;
    for (std::size_t i = 0; i < 10; ++i) pieces.push_back(std::span(data).subspan(i * 4, 4));
    const const_buffers buffers{std::span<const std::span<const std::byte>>(pieces)};
    CHECK(buffers.pieces() == 10);
    CHECK(flat(buffers) == data);
    const const_buffers part = buffers.slice(6, 30);
    CHECK(part.pieces() == 3);
    CHECK(part.size() == 10);
    CHECK(part[0].data() == data.data() + 6);
}
