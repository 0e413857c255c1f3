// How payloads are written into blocks: by ordinary stores, or past the caches, whichever takes less time between these two cores.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/buffers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail::shm {

/// How long a side was busy with a block: ticks of the processor's counter for 4 KiB.
[[nodiscard]] constexpr std::uint64_t block_cost(std::uint64_t ticks, std::size_t bytes) noexcept {
    return ticks * 4096 / bytes;
}
/// The same in a byte, as the consumer tells it to the producer; 0: not known.
[[nodiscard]] constexpr std::uint8_t store_cost(std::uint64_t cost) noexcept {
    return static_cast<std::uint8_t>(std::clamp<std::uint64_t>(cost / 32, 1, 255));
}
[[nodiscard]] constexpr std::uint64_t load_cost(std::uint8_t stored) noexcept {
    return std::uint64_t{stored} * 32;
}

/// Chooses how a producer writes its next long block, from how long the last ones took both sides.
///
/// Between cores that share a cache ordinary stores are faster: the consumer finds the payload in that cache. Cores that share none, of
/// two sockets or of two core complexes, take each line from each other, once to write it and once to read it. A core has about a
/// dozen lines under way, each for some 200 ns: 3 GB/s. Stores past the caches take no line away, and the consumer reads from memory.
/// The system moves processes about, so the choice is looked at again and again. What the consumer tells is not checked: it decides
/// about nothing else.
class write_choice {
public:
    static constexpr std::size_t least_bytes = 16 * 1024;  ///< of a block that it is asked about
    static constexpr unsigned first_try = 128;             ///< blocks before the other way is tried
    /// From one try of ordinary stores to the next.
    static constexpr unsigned past_between_tries = 2048;
    /// From one try past the caches to the next: each that fails doubles it.
    static constexpr unsigned ordinary_between_tries = 256;
    static constexpr unsigned ordinary_most_between = 8192;
    /// Blocks of a try. The first of them find lines where the way before has left them.
    static constexpr unsigned tries = 16;

    /// Whether the next block is to be written past the caches.
    [[nodiscard]] bool past_caches() const noexcept { return trying_ != 0 ? !chosen_ : chosen_; }
    /// The producer was busy for so long with the block that was written as `past_caches` said.
    void written(std::uint64_t cost) noexcept {
        ways_[past_caches() ? 1 : 0].write.add(cost);
        const bool tried = trying_ == 1;
        if (trying_ != 0) {
            --trying_;
        } else if (--left_ == 0) {
            trying_ = tries;
        }
        decide();
        if (!tried) return;
        left_ = chosen_ ? past_between_tries : between_;
        between_ = chosen_ ? ordinary_between_tries : std::min(2 * between_, ordinary_most_between);
    }
    /// The consumer was busy for so long with a block that was written that way.
    void read(bool past_caches, std::uint64_t cost) noexcept {
        ways_[past_caches ? 1 : 0].read.add(cost);
        decide();
    }

private:
    /// The least of the last blocks: the processor may be taken away in some, and a payload may be in no cache.
    struct least_of_last {
        static constexpr std::uint32_t unknown = std::uint32_t{1} << 30;
        static constexpr std::uint32_t blocks = 8;
        std::uint32_t costs[blocks];
        std::uint32_t next = 0;

        least_of_last() noexcept { std::fill_n(costs, blocks, unknown); }
        void add(std::uint64_t cost) noexcept {
            costs[next++ % blocks] = static_cast<std::uint32_t>(std::min<std::uint64_t>(cost, unknown - 1));
        }
        [[nodiscard]] std::uint32_t cost() const noexcept { return *std::min_element(costs, costs + blocks); }
    };
    struct way {
        least_of_last write;
        least_of_last read;
        [[nodiscard]] std::uint32_t cost() const noexcept { return write.cost() + read.cost(); }
    };

    void decide() noexcept {
        if (trying_ != 0) return;
        const std::uint32_t ordinary = ways_[0].cost();
        const bool past = ways_[1].cost() < (chosen_ ? ordinary : ordinary / 8 * 7);
        if (past == chosen_) return;
        chosen_ = past;
        left_ = chosen_ ? past_between_tries : between_;
    }

    way ways_[2];  // [1]: past the caches
    std::uint32_t left_ = first_try;
    std::uint32_t trying_ = 0;
    std::uint32_t between_ = ordinary_between_tries;
    bool chosen_ = false;
};

/// How a block was written.
enum class block_write : std::uint8_t { untimed, ordinary, past_caches };

/// Copies `from` to the block at `to`, which is aligned to 64 bytes, and tells `by` how long that took.
block_write write_block(write_choice& by, std::byte* to, const const_buffers& from) noexcept;

/// Copies past the caches, where the processor can. Ordered before any store that follows. `to` is aligned to 64 bytes.
void copy_past_caches(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/block_writes.ipp>
#endif
