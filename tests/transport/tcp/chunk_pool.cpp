#include <rdmacoro/transport/tcp/chunk_pool.hpp>

#include "support/catch.hpp"

#include <span>
#include <vector>

namespace test_transport_tcp_chunk_pool {

using namespace rdmacoro;
using rdmacoro::detail::tcp_chunk;
using rdmacoro::detail::tcp_chunk_pool;

static_assert(tcp_chunk::capacity + tcp_chunk::head_bytes == tcp_chunk::block_bytes);

TEST_CASE("a chunk goes back when its link has dropped it and the last reader has returned it") {
    auto* pool = new tcp_chunk_pool;
    tcp_chunk* chunk = pool->take();
    REQUIRE(chunk != nullptr);
    CHECK(pool->in_use() == 1);
    lent_buffer first = pool->lend(*chunk, std::span(chunk->bytes(), 10));
    lent_buffer second = pool->lend(*chunk, std::span(chunk->bytes() + 10, 10));
    CHECK(pool->lent() == 1);
    pool->drop(*chunk);
    first = {};
    CHECK(pool->in_use() == 1);
    second = {};
    CHECK(pool->in_use() == 0);
    CHECK(pool->lent() == 0);
    pool->abandon();
}

TEST_CASE("only so many chunks are lent at a time") {
    auto* pool = new tcp_chunk_pool;
    std::vector<tcp_chunk*> chunks;
    std::vector<lent_buffer> lent;
    for (std::size_t n = 0; n <= tcp_chunk_pool::most_lent; ++n) {
        chunks.push_back(pool->take());
        REQUIRE(chunks.back() != nullptr);
        lent_buffer one = pool->lend(*chunks.back(), std::span(chunks.back()->bytes(), 1));
        CHECK(static_cast<bool>(one) == (n < tcp_chunk_pool::most_lent));
        if (one) lent.push_back(std::move(one));
    }
    for (tcp_chunk* chunk : chunks) pool->drop(*chunk);
    pool->abandon();  // it lives until the last reader is done
    CHECK(lent.back().bytes().size() == 1);
    CHECK(lent.size() == tcp_chunk_pool::most_lent);
}

}  // namespace test_transport_tcp_chunk_pool
