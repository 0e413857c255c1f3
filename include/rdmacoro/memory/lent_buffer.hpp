// lent_buffer: memory of a transport that its borrower may read and must give back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rdmacoro {

/// Received bytes in memory of a transport or a pool, lent to the user for reading; the destructor returns them. Only for
/// the scheduler's thread; may outlive its link.
class lent_buffer {
public:
    /// Called once, when the memory is not used any more.
    using give_back = void (*)(void* owner, std::uint64_t token) noexcept;

    lent_buffer() noexcept = default;
    /// `function(owner, token)` gives the memory back.
    lent_buffer(std::span<const std::byte> bytes, give_back function, void* owner,
                std::uint64_t token) noexcept
        : bytes_(bytes), function_(function), owner_(owner), token_(token) {}
    lent_buffer(lent_buffer&& other) noexcept
        : bytes_(other.bytes_), function_(other.function_), owner_(other.owner_), token_(other.token_) {
        other.forget();
    }
    [[gnu::noinline]] lent_buffer& operator=(lent_buffer&& other) noexcept {
        if (this != &other) {
            reset();
            bytes_ = other.bytes_;
            function_ = other.function_;
            owner_ = other.owner_;
            token_ = other.token_;
            other.forget();
        }
        return *this;
    }
    ~lent_buffer() { reset(); }

    /// The memory; empty after a move.
    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
    [[nodiscard]] explicit operator bool() const noexcept { return function_ != nullptr; }

    /// Returns the memory now.
    void reset() noexcept {
        const give_back function = function_;
        forget();
        if (function != nullptr) function(owner_, token_);
    }

private:
    void forget() noexcept {
        bytes_ = {};
        function_ = nullptr;
    }

    std::span<const std::byte> bytes_{};
    give_back function_ = nullptr;
    void* owner_ = nullptr;
    std::uint64_t token_ = 0;
};

}  // namespace rdmacoro
