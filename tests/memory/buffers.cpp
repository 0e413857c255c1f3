#include <rdmacoro/memory/buffers.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace test_memory_buffers {

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
static_assert(std::is_convertible_v<strided_blocks<const std::byte>, const_buffers>);
static_assert(std::is_convertible_v<strided_blocks<std::byte>, const_buffers>);
static_assert(std::is_convertible_v<strided_blocks<std::byte>, mutable_buffers>);
static_assert(!std::is_convertible_v<strided_blocks<const std::byte>, mutable_buffers>);
static_assert(std::is_convertible_v<strided_elements<const double>, const_buffers>);
static_assert(std::is_convertible_v<strided_elements<double>, mutable_buffers>);
static_assert(!std::is_convertible_v<strided_elements<const double>, mutable_buffers>);
static_assert(sizeof(const_buffers) == 8 * sizeof(void*), "each request holds one");
static_assert(!std::is_constructible_v<const_buffer_cursor, const_buffers>, "it would dangle");

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

// ---- blocks at equal distances

namespace {

/// The bytes that `strided` describes, one by one.
std::vector<std::byte> by_hand(const std::byte* base, std::size_t block, std::size_t stride,
                               std::size_t count) {
    std::vector<std::byte> all;
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t j = 0; j < block; ++j) all.push_back(base[i * stride + j]);
    }
    return all;
}

std::vector<std::byte> walked(const const_buffers& buffers, std::size_t offset, std::size_t step) {
    std::vector<std::byte> all;
    for (const_buffer_cursor at(buffers, offset); !at.at_end();) {
        const std::size_t now = std::min(step, at.here().size());
        all.insert(all.end(), at.here().begin(), at.here().begin() + static_cast<std::ptrdiff_t>(now));
        at.advance(now);
    }
    return all;
}

bool agrees(const const_buffers& buffers, const std::vector<std::byte>& all) {
    bool right = buffers.size() == all.size() && buffers.empty() == all.empty() && flat(buffers) == all;
    for (std::size_t offset = 0; offset <= all.size(); ++offset) {
        const std::span<const std::byte> rest = std::span(all).subspan(offset);
        const auto here = buffers.at_offset(offset);
        right &= here.empty() == rest.empty() && here.size() <= rest.size();
        right &= std::equal(here.begin(), here.end(), rest.begin());
        std::vector<std::byte> out(rest.size());
        detail::copy_out(buffers, offset, out.data(), out.size());
        right &= std::equal(out.begin(), out.end(), rest.begin(), rest.end());
        const auto one_by_one = walked(buffers, offset, 1);
        right &= std::equal(one_by_one.begin(), one_by_one.end(), rest.begin(), rest.end());
    }
    return right;
}

constexpr bool constant_evaluation_works() {
    std::array<std::byte, 20> matrix{};  // 5 rows of 4
    for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<std::byte>(i);
    const const_buffers column = strided(matrix.data() + 1, 2, 4, 5);
    bool right = column.pieces() == 5 && column.size() == 10 && !column.contiguous();
    right &= column[4].front() == std::byte{17} && column.at_offset(3).front() == std::byte{6};
    const const_buffers part = column.slice(3, 6, 4);
    right &= part.pieces() == 4 && part.size() == 6 && part[0].size() == 1 && part[3].size() == 1;
    std::size_t sum = 0;
    for (const_buffer_cursor at(part); !at.at_end(); at.advance(1))
        sum += static_cast<std::size_t>(at.here().front());
    right &= sum == 6 + 9 + 10 + 13 + 14 + 17;
    const const_buffers few = strided(matrix.data(), 1, 4, 3);
    return right && few.pieces() == 3 && few[2].front() == std::byte{8};
}
static_assert(constant_evaluation_works());

}  // namespace

TEST_CASE("blocks of elements know how many elements they have") {
    std::vector<double> matrix(20);
    const strided_elements<double> column = strided(matrix, 1, 2, 5, 4);
    CHECK(column.size() == 8);
    CHECK(const_buffers(column).size() == 64);
    CHECK(strided(std::as_const(matrix), 0, 0, 5, 4).size() == 0);
    CHECK(strided(matrix, 0, 1, 5, 0).size() == 0);
}

TEST_CASE("strided blocks read as the bytes that they describe, wherever they are looked into") {
    const auto data = numbered(120);
    std::size_t wrong = 0;
    for (std::size_t block = 0; block <= 5; ++block) {
        for (std::size_t stride = 0; stride <= 8; ++stride) {  // overlapping blocks can be sent
            for (std::size_t count = 0; count <= 9; ++count) {
                const const_buffers blocks = strided(data.data() + 3, block, stride, count);
                const auto all = by_hand(data.data() + 3, block, stride, count);
                if (!agrees(blocks, all)) ++wrong;
                if (block == stride && !blocks.contiguous()) ++wrong;
                if (block != stride && block > 0 && count > 0 && blocks.pieces() != count) ++wrong;
            }
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("a slice of strided blocks, and a slice of that, has the bytes asked for in no more pieces") {
    const auto data = numbered(120);
    std::size_t wrong = 0;
    std::size_t slices = 0;
    for (std::size_t block = 1; block <= 3; ++block) {
        for (const std::size_t stride : {block, block + 1, block + 4}) {
            for (std::size_t count = 1; count <= 7; ++count) {
                const const_buffers blocks = strided(data.data(), block, stride, count);
                const auto all = by_hand(data.data(), block, stride, count);
                const auto check = [&](const const_buffers& of, std::size_t from, std::size_t offset,
                                       std::size_t most, std::size_t pieces) {
                    const const_buffers part = of.slice(offset, most, pieces);
                    ++slices;
                    const auto got = flat(part);
                    const std::size_t asked = std::min(most, of.size() - offset);
                    bool right = part.size() <= asked && got.size() == part.size();
                    right &= part.pieces() <= std::max<std::size_t>(pieces, 1);
                    right &= asked == 0 || !part.empty();
                    // Less than asked only where the pieces did not suffice.
                    right &= part.size() == asked || part.pieces() == pieces;
                    right &= std::equal(got.begin(), got.end(),
                                        all.begin() + static_cast<std::ptrdiff_t>(from + offset));
                    if (!right) ++wrong;
                    return part;
                };
                for (std::size_t offset = 0; offset <= all.size(); ++offset) {
                    for (std::size_t most = 0; most <= all.size() + 1; ++most) {
                        for (std::size_t pieces = 1; pieces <= 8; ++pieces) {
                            const const_buffers part = check(blocks, 0, offset, most, pieces);
                            if (pieces < 5) continue;
                            if (!agrees(part, flat(part))) ++wrong;
                            for (std::size_t again = 0; again <= part.size(); ++again)
                                check(part, offset, again, part.size() / 2 + 1, pieces - 1);
                        }
                    }
                }
            }
        }
    }
    CHECK(wrong == 0);
    CHECK(slices > 100'000);
}

TEST_CASE("bytes copied into strided blocks leave what is between them alone") {
    std::size_t wrong = 0;
    for (std::size_t block = 1; block <= 4; ++block) {
        for (std::size_t stride = block; stride <= 7; ++stride) {
            for (std::size_t count = 1; count <= 6; ++count) {
                const std::size_t bytes = block * count;
                for (std::size_t offset = 0; offset <= bytes; ++offset) {
                    for (std::size_t length = 0; length <= bytes - offset + 1; ++length) {
                        std::vector<std::byte> memory(stride * count, std::byte{0xff});
                        std::vector<std::byte> expected = memory;
                        const auto data = numbered(length);
                        for (std::size_t i = 0; i < length && offset + i < bytes; ++i)
                            expected[(offset + i) / block * stride + (offset + i) % block] = data[i];
                        detail::copy_in(data, strided(memory.data(), block, stride, count), offset);
                        if (memory != expected) ++wrong;
                    }
                }
            }
        }
    }
    CHECK(wrong == 0);
}

TEST_CASE("strided blocks that can't be are refused") {
    constexpr std::size_t huge = std::numeric_limits<std::size_t>::max();
    std::byte memory[16] = {};
    const auto refused = [](auto&& make) {
        try {
            (void)make();
        } catch (const error& e) {
            return e.code() == errc::invalid_argument;
        }
        return false;
    };
    CHECK(refused([&] { return strided(memory + 0, 4, 3, 2); }));  // each byte is written once
    CHECK_FALSE(refused([&] { return strided(std::as_const(memory) + 0, 4, 3, 2); }));
    CHECK_FALSE(refused([&] { return strided(memory + 0, 4, 0, 1); }));
    CHECK(refused([&] { return strided(memory + 0, 2, huge / 2, 4); }));
    CHECK(refused([&] { return strided(memory + 0, 8, huge - 4, 2); }));
    CHECK(refused([&] { return strided(std::as_const(memory) + 0, huge / 2, 0, 3); }));
    CHECK(const_buffers(strided(memory + 0, huge, huge, 0)).empty());

    std::vector<int> numbers(12);
    CHECK_FALSE(refused([&] { return strided(numbers, 3, 1, 4, 3); }));
    CHECK(refused([&] { return strided(numbers, 4, 1, 4, 3); }));
    CHECK(refused([&] { return strided(numbers, 3, 2, 4, 3); }));
    CHECK(refused([&] { return strided(numbers, 13, 0, 1, 0); }));
    CHECK_FALSE(refused([&] { return strided(numbers, 12, 1, 1, 0); }));
    CHECK(refused([&] { return strided(numbers, 0, 1, huge / 2 + 1, 3); }));
    CHECK(refused([&] { return strided(numbers, 1, huge, 1, 1); }));
    CHECK(refused([&] { return strided(numbers, 0, 2, 1, 3); }));
}

TEST_CASE("a column of a matrix of elements is as long as its elements") {
    constexpr std::size_t rows = 6;
    constexpr std::size_t columns = 5;
    std::vector<double> matrix(rows * columns);
    std::iota(matrix.begin(), matrix.end(), 0.0);
    const const_buffers column = strided(matrix, 2, 1, columns, rows);
    CHECK(column.pieces() == rows);
    std::vector<double> copied(rows);
    REQUIRE(column.size() == copied.size() * sizeof(double));
    detail::copy_out(column, 0, reinterpret_cast<std::byte*>(copied.data()), column.size());
    CHECK(copied == std::vector<double>{2, 7, 12, 17, 22, 27});
    // Two columns at once, from memory that is only read.
    const std::span<const double> read(matrix);
    const const_buffers both = strided(read, 3, 2, columns, rows);
    CHECK(both.size() == 2 * column.size());
    CHECK(both[5].data() == reinterpret_cast<const std::byte*>(&matrix[28]));
    // Back into another column.
    detail::copy_in(std::as_bytes(std::span(copied)), strided(matrix, 0, 1, columns, rows), 0);
    CHECK(matrix[0] == 2);
    CHECK(matrix[25] == 27);
    CHECK(matrix[1] == 1);
}

TEST_CASE("slices of a long list may have many pieces, and agree with the flat bytes") {
    std::mt19937 random(rdmacoro::test::seed() + 2);
    for (int round = 0; round < 200; ++round) {
        const auto data = numbered(random() % 100);
        const auto pieces = cut(std::span<const std::byte>(data), 4 + random() % 12, random);
        const const_buffers whole{std::span<const std::span<const std::byte>>(pieces)};
        REQUIRE(agrees(whole, data));
        for (int cut_again = 0; cut_again < 20; ++cut_again) {
            const std::size_t offset = random() % (data.size() + 1);
            const std::size_t most = random() % 120;
            const std::size_t allowed = 1 + random() % 12;
            const const_buffers part = whole.slice(offset, most, allowed);
            const std::size_t asked = std::min(most, data.size() - offset);
            REQUIRE(part.pieces() <= allowed);
            REQUIRE(part.size() <= asked);
            if (part.pieces() < allowed && allowed >= pieces.size()) REQUIRE(part.size() == asked);
            const std::vector<std::byte> expected(data.begin() + static_cast<std::ptrdiff_t>(offset),
                                                  data.begin() +
                                                      static_cast<std::ptrdiff_t>(offset + part.size()));
            REQUIRE(agrees(part, expected));
            const std::size_t second = random() % (part.size() + 1);
            const const_buffers smaller = part.slice(second, most / 2, allowed);
            const std::vector<std::byte> less(expected.begin() + static_cast<std::ptrdiff_t>(second),
                                              expected.begin() +
                                                  static_cast<std::ptrdiff_t>(second + smaller.size()));
            REQUIRE(agrees(smaller, less));
        }
    }
}

TEST_CASE("a cursor passes each piece once, however long the list") {
    constexpr std::size_t many = 200'000;  // quadratic would be 20 billion steps
    const auto data = numbered(many);
    std::vector<std::span<const std::byte>> pieces;
    for (std::size_t i = 0; i < many; ++i) pieces.push_back(std::span(data).subspan(i, 1));
    const const_buffers buffers{std::span<const std::span<const std::byte>>(pieces)};
    std::vector<std::byte> out(many);
    detail::copy_out(buffers, 0, out.data(), many);
    CHECK(out == data);
    const_buffer_cursor at(buffers, 10);
    at.advance(many - 11);
    REQUIRE(at.here().size() == 1);
    CHECK(at.here().data() == data.data() + many - 1);
    at.advance(1);
    CHECK(at.at_end());
}

TEST_CASE("a long copy is whole wherever source and destination lie in their pages") {
    constexpr std::size_t most = 20'000;
    std::vector<std::byte> source(most + 200);
    for (std::size_t n = 0; n < source.size(); ++n) source[n] = static_cast<std::byte>(n * 11 + n / 256);
    std::vector<std::byte> room(most + 8192);
    for (std::size_t behind = 0; behind < 70; ++behind) {
        // The place in its page that lies so many bytes behind the source's.
        const auto from = reinterpret_cast<std::uintptr_t>(source.data() + 5);
        const auto to = reinterpret_cast<std::uintptr_t>(room.data());
        std::byte* const into = room.data() + (from + behind - to) % 4096;
        for (const std::size_t bytes : {0u, 1u, 2047u, 2048u, 3071u, 4096u, 8193u, 20'000u}) {
            std::fill(room.begin(), room.end(), std::byte{0xee});
            detail::copy_long(into, source.data() + 5, bytes);
            if (!std::equal(into, into + bytes, source.begin() + 5))
                FAIL(behind << ", " << bytes << " bytes");
            if (into[bytes] != std::byte{0xee}) FAIL(behind << ", beyond " << bytes << " bytes");
        }
    }
}

TEST_CASE("a short copy is whole at each length, and writes nothing beside it") {
    std::vector<std::byte> source(100);
    for (std::size_t n = 0; n < source.size(); ++n) source[n] = static_cast<std::byte>(n + 1);
    for (std::size_t bytes = 0; bytes <= 80; ++bytes) {
        std::vector<std::byte> room(100, std::byte{0xee});
        detail::copy_bytes(room.data() + 3, source.data() + 5, bytes);
        std::vector<std::byte> wanted(100, std::byte{0xee});
        std::copy_n(source.begin() + 5, bytes, wanted.begin() + 3);
        if (room != wanted) FAIL(bytes << " bytes");
    }
}

TEST_CASE("a long copy to 16 bytes behind its source's place in a page takes about as long as any other") {
    if (!test::counts_allocations) SKIP_TEST("a sanitizer has memcpy");
#ifndef __OPTIMIZE__
    SKIP_TEST("its instructions are calls without optimization");
#endif
    constexpr std::size_t bytes = 32 * 1024;
    std::vector<std::byte> source(bytes, std::byte{1});
    std::vector<std::byte> room(bytes + 8192);
    const auto place =
        (reinterpret_cast<std::uintptr_t>(source.data()) - reinterpret_cast<std::uintptr_t>(room.data())) %
        4096;
    const auto took = [&](std::size_t behind) {
        auto best = std::chrono::nanoseconds::max();
        for (int n = 0; n < 200; ++n) {
            const auto began = std::chrono::steady_clock::now();
            detail::copy_long(room.data() + place + behind, source.data(), bytes);
            best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - began);
        }
        return best;
    };
    const auto usual = took(256);
    CAPTURE(usual.count());
    CHECK(took(16).count() < 5 * usual.count());
}

}  // namespace test_memory_buffers
