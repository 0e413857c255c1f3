// Bodies of block_writes.hpp.
#pragma once

#include <rdmacoro/transport/shm/block_writes.hpp>

#include <rdmacoro/coro/detail/ticks.hpp>

#include <cstring>

namespace rdmacoro::detail::shm {

RDMACORO_DECL void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
    using two_words = long long __attribute__((vector_size(16)));
    constexpr std::size_t line = 64;
    for (; bytes >= line; bytes -= line, to += line, from += line) {
        two_words part[4];
        std::memcpy(part, from, line);
        for (int n = 0; n < 4; ++n) {
#if defined(__clang__)
            __builtin_nontemporal_store(part[n], reinterpret_cast<two_words*>(to) + n);
#else
            __builtin_ia32_movntdq(reinterpret_cast<two_words*>(to) + n, part[n]);
#endif
        }
    }
    __builtin_ia32_sfence();
#endif
    if (bytes != 0) std::memcpy(to, from, bytes);
}

RDMACORO_DECL block_write write_block(write_choice& by, std::byte* to, const const_buffers& from) noexcept {
    const std::size_t bytes = from.size();
    if (bytes < write_choice::least_bytes || !from.contiguous()) {
        copy_out(from, 0, to, bytes);
        return block_write::untimed;
    }
    const bool past = by.past_caches();
    const std::uint64_t began = ticks();
    if (past) {
        copy_past_caches(to, from.front().data(), bytes);
    } else {
        copy_out(from, 0, to, bytes);
    }
    by.written(block_cost(ticks() - began, bytes));
    return past ? block_write::past_caches : block_write::ordinary;
}

}  // namespace rdmacoro::detail::shm
