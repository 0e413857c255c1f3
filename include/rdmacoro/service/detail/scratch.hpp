// scratch: memory for partial results of collectives, kept for the next one.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// Blocks of memory that are used again: a collective of a size seen before allocates nothing. For one thread.
class scratch_pool {
public:
    static constexpr std::size_t alignment = 64;
    /// Kept for later uses at most, all together; what is above goes back to the system.
    static constexpr std::size_t most_kept = std::size_t{64} << 20;

    struct deleter {
        void operator()(std::byte* block) const noexcept {
            ::operator delete[](block, std::align_val_t{alignment});
        }
    };
    struct block {
        std::unique_ptr<std::byte[], deleter> memory{};
        std::size_t bytes = 0;
    };

    /// At least `bytes`. Throws `std::bad_alloc`.
    [[nodiscard]] block take(std::size_t bytes);
    void give_back(block&& of) noexcept;

private:
    std::vector<block> kept_;
    std::size_t bytes_ = 0;
};

/// Memory of a pool, as long as it lives; a few bytes are in the object itself.
class scratch {
public:
    static constexpr std::size_t most_within = 128;

    scratch(scratch_pool& from, std::size_t bytes) : from_(&from), bytes_(bytes) {
        if (bytes > most_within) block_ = from.take(bytes);
    }
    scratch(const scratch&) = delete;
    scratch& operator=(const scratch&) = delete;
    ~scratch() {
        if (block_.memory) from_->give_back(std::move(block_));
    }

    [[nodiscard]] std::byte* data() const noexcept {
        return block_.memory ? block_.memory.get() : const_cast<std::byte*>(within_);
    }
    [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {data(), bytes_}; }

private:
    alignas(std::max_align_t) std::byte within_[most_within];
    scratch_pool* from_;
    scratch_pool::block block_{};
    std::size_t bytes_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/scratch.ipp>
#endif
