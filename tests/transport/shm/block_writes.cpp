#include <rdmacoro/transport/shm/block_writes.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace test_transport_shm_block_writes {

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;

namespace {

constexpr std::size_t block = 32 * 1024;

/// Two cores: what 4 KiB cost each side, written by ordinary stores and past the caches, in ticks.
struct cores {
    std::uint64_t ordinary_written;
    std::uint64_t ordinary_read;
    std::uint64_t past_written;
    std::uint64_t past_read;
};
// As measured between two cores that share a cache, and two that do not.
constexpr cores near{480, 420, 470, 1200};
constexpr cores far{1800, 1100, 410, 1050};

/// Writes so many blocks, which are read at once; how many of them went past the caches.
unsigned write(write_choice& by, unsigned blocks, const cores& between) {
    unsigned past = 0;
    for (unsigned n = 0; n < blocks; ++n) {
        const bool so = by.past_caches();
        past += so ? 1 : 0;
        by.written(so ? between.past_written : between.ordinary_written);
        by.read(so, so ? between.past_read : between.ordinary_read);
    }
    return past;
}

std::vector<std::byte> numbered(std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    for (std::size_t n = 0; n < bytes; ++n) all[n] = static_cast<std::byte>(n * 7 + n / 251);
    return all;
}

struct aligned_memory {
    alignas(64) std::array<std::byte, block + 128> bytes{};
};

}  // namespace

TEST_CASE("a copy past the caches is the same bytes, from any address and of any length") {
    const std::vector<std::byte> whole = numbered(block + 100);
    const auto room = std::make_unique<aligned_memory>();
    for (const std::size_t from : {0u, 1u, 7u, 8u, 33u, 63u}) {
        for (const std::size_t bytes :
             {0ul, 1ul, 63ul, 64ul, 65ul, 127ul, 4096ul, 4097ul, block - 1, block}) {
            CAPTURE(from, bytes);
            room->bytes.fill(std::byte{0xee});
            copy_past_caches(room->bytes.data(), whole.data() + from, bytes);
            CHECK(std::equal(whole.begin() + static_cast<std::ptrdiff_t>(from),
                             whole.begin() + static_cast<std::ptrdiff_t>(from + bytes), room->bytes.begin()));
            CHECK(std::all_of(room->bytes.begin() + static_cast<std::ptrdiff_t>(bytes), room->bytes.end(),
                              [](std::byte b) { return b == std::byte{0xee}; }));
        }
    }
}

TEST_CASE("a block has the bytes of its payload, whichever way it is written, and of several pieces, too") {
    const std::vector<std::byte> whole = numbered(block);
    const std::span<const std::byte> all = whole;
    const auto room = std::make_unique<aligned_memory>();
    write_choice by;
    write(by, write_choice::first_try, far);
    unsigned past = 0;
    for (unsigned n = 0; n < 2 * write_choice::tries; ++n) {
        room->bytes.fill(std::byte{0});
        const block_write how = write_block(by, room->bytes.data(), whole);
        CHECK(how != block_write::untimed);
        past += how == block_write::past_caches ? 1 : 0;
        if (!std::equal(whole.begin(), whole.end(), room->bytes.begin())) FAIL("block " << n);
    }
    CHECK(past >= write_choice::tries);
    room->bytes.fill(std::byte{0});
    const std::array<std::span<const std::byte>, 3> pieces{all.first(100), all.subspan(100, 20'000),
                                                           all.subspan(20'100)};
    CHECK(write_block(by, room->bytes.data(),
                      const_buffers(std::span<const std::span<const std::byte>>(pieces))) ==
          block_write::untimed);
    CHECK(std::equal(whole.begin(), whole.end(), room->bytes.begin()));
    room->bytes.fill(std::byte{0});
    CHECK(write_block(by, room->bytes.data(), all.first(2000)) == block_write::untimed);
    CHECK(std::equal(whole.begin(), whole.begin() + 2000, room->bytes.begin()));
    CHECK(room->bytes[2000] == std::byte{0});
}

TEST_CASE("between cores that share a cache blocks are written by ordinary stores, but for a few that try") {
    write_choice by;
    const unsigned tried = write(by, 10 * write_choice::ordinary_most_between, near);
    CHECK(tried >= 9 * write_choice::tries);
    CHECK(tried <= 16 * write_choice::tries);
}

TEST_CASE("between cores that share none blocks go past the caches, but for a few that try") {
    write_choice by;
    CHECK(write(by, write_choice::first_try, far) == 0);
    const unsigned blocks = 10 * write_choice::past_between_tries;
    const unsigned past = write(by, blocks, far);
    CHECK(past >= blocks - 11 * write_choice::tries);
    CHECK(past < blocks - 8 * write_choice::tries);
}

TEST_CASE("a process that is moved to another core is noticed within a few blocks, or with the next try") {
    write_choice by;
    write(by, write_choice::first_try + 2 * write_choice::tries, near);
    // Ordinary stores cost more at once: that needs no try.
    CHECK(write(by, 40, far) >= 40 - 17);
    write(by, 3 * write_choice::past_between_tries, far);
    write(by, write_choice::past_between_tries + write_choice::tries, near);
    CHECK(write(by, 100, near) == 0);
}

TEST_CASE("a block in which the processor was taken away changes no choice, on either side") {
    write_choice by;
    write(by, write_choice::first_try + 2 * write_choice::tries, near);
    by.written(40'000'000);
    by.read(false, load_cost(255));
    CHECK_FALSE(by.past_caches());
    CHECK(write(by, 20, near) == 0);

    write_choice apart;
    write(apart, write_choice::first_try + 2 * write_choice::tries, far);
    REQUIRE(apart.past_caches());
    apart.written(40'000'000);
    apart.read(true, load_cost(255));
    CHECK(apart.past_caches());
    CHECK(write(apart, 20, far) == 20);
}

TEST_CASE("blocks that the consumer keeps, or tells nothing of, are written by ordinary stores") {
    write_choice by;
    unsigned past = 0;
    for (unsigned n = 0; n < 4 * write_choice::ordinary_between_tries; ++n) {
        past += by.past_caches() ? 1 : 0;
        by.written(by.past_caches() ? far.past_written : far.ordinary_written);
    }
    CHECK(past <= 5 * write_choice::tries);
}

TEST_CASE("a processor without a counter of ticks writes by ordinary stores") {
    write_choice by;
    const unsigned tried = write(by, 4 * write_choice::ordinary_between_tries, {0, 0, 0, 0});
    CHECK(tried <= 5 * write_choice::tries);
}

TEST_CASE("a cost fits in a byte, is never unknown, and stays at the most that fits") {
    CHECK(store_cost(0) == 1);
    CHECK(load_cost(store_cost(block_cost(9600, block))) == 1184);
    CHECK(store_cost(std::uint64_t{1} << 60) == 255);
}

}  // namespace test_transport_shm_block_writes
