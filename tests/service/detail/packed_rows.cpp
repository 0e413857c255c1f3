#include <rdmacoro/service/detail/packed_rows.hpp>

#include "support/catch.hpp"

#include <rdmacoro/coro/scheduler.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace test_service_detail_packed_rows {

using namespace rdmacoro;
using detail::call_strides;
using detail::collective_call;
using detail::packed_rows;
using detail::row_stride;
using detail::rows_in_turns;

namespace {

[[nodiscard]] std::vector<std::byte> numbered(std::size_t bytes) {
    std::vector<std::byte> all(bytes);
    for (std::size_t at = 0; at < bytes; ++at) all[at] = static_cast<std::byte>(1 + at % 251);
    return all;
}

/// Memory of the caller's with blocks of 8 bytes, 24 bytes apart, and a call that uses it.
struct strided_call {
    std::vector<std::byte> given = numbered(240);
    std::vector<std::byte> result = std::vector<std::byte>(240);
    call_strides strides{{8, 24, 10}, {8, 24, 10}};
    collective_call call;

    explicit strided_call(collective_kind kind) {
        call.kind = kind;
        call.in = given.data();
        call.out = result.data();
        call.bytes = 80;
        call.element = 8;
    }
};

}  // namespace

TEST_CASE("blocks of any length are copied, and nothing between them") {
    scheduler on;
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{3}, std::size_t{4}, std::size_t{8},
                                    std::size_t{16}, std::size_t{24}, detail::in_one_go + 8}) {
        for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{5}}) {
            INFO(count << " blocks of " << bytes);
            std::vector<std::byte> row = numbered(bytes * count);
            std::vector<std::byte> spread((bytes + 5) * 5);
            on.run([](rows_in_turns::side to, rows_in_turns::side from, std::size_t length,
                      std::size_t blocks) -> task<> {
                co_await rows_in_turns(to, from, length, blocks);
            }({spread.data(), bytes + 5}, {row.data(), bytes}, bytes, count));
            bool right = true;
            for (std::size_t at = 0; at < spread.size(); ++at) {
                const std::size_t block = at / (bytes + 5);
                const std::size_t within = at % (bytes + 5);
                const bool copied = block < count && within < bytes;
                right = right && spread[at] == (copied ? row[block * bytes + within] : std::byte{0});
            }
            CHECK(right);
        }
    }
}

TEST_CASE("a call in a row takes no memory, and one of blocks is given a row for each side") {
    detail::scratch_pool pool;
    strided_call plain(collective_kind::allreduce);
    const packed_rows none(plain.call, {}, 0, pool);
    CHECK_FALSE(none.in_use());
    CHECK(plain.call.in == plain.given.data());
    CHECK(plain.call.out == plain.result.data());

    strided_call of(collective_kind::allreduce);
    const packed_rows rows(of.call, of.strides, 0, pool);
    REQUIRE(rows.in_use());
    CHECK(of.call.in != of.given.data());
    CHECK(of.call.out != of.result.data());
    scheduler on;
    on.run([](const packed_rows& all, strided_call& c) -> task<> {
        co_await all.pack_in();
        co_await all.pack_out();
        for (std::size_t block = 0; block < 10; ++block) {
            CHECK(std::equal(c.call.in + 8 * block, c.call.in + 8 * block + 8, c.given.data() + 24 * block));
        }
        std::copy_n(c.call.in, 80, c.call.out);
        co_await all.put_back();
    }(rows, of));
    for (std::size_t at = 0; at < 240; ++at)
        CHECK(of.result[at] == (at % 24 < 8 ? of.given[at] : std::byte{0}));
}

TEST_CASE("only ranks that have a result get it back, and the root of a broadcast gives it") {
    detail::scratch_pool pool;
    strided_call elsewhere(collective_kind::reduce);
    elsewhere.call.root = 1;
    const packed_rows in_only(elsewhere.call, elsewhere.strides, 0, pool);
    CHECK(elsewhere.call.out == elsewhere.result.data());
    CHECK(elsewhere.call.in != elsewhere.given.data());

    strided_call gives(collective_kind::broadcast);
    gives.call.in = nullptr;
    gives.call.out = gives.given.data();
    const packed_rows rows(gives.call, {{}, {8, 24, 10}}, 0, pool);
    REQUIRE(gives.call.out != gives.given.data());
    const std::vector<std::byte> before = gives.given;
    scheduler on;
    on.run([](const packed_rows& all, strided_call& c) -> task<> {
        co_await all.pack_out();
        CHECK(std::equal(c.call.out + 8, c.call.out + 16, c.given.begin() + 24));
        std::fill_n(c.call.out, 80, std::byte{0});
        co_await all.put_back();
    }(rows, gives));
    CHECK(gives.given == before);
}

}  // namespace test_service_detail_packed_rows
