// lent_buffer: memory of a transport that its borrower may read and must give back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rdmacoro {

/// Bytes that stay in a transport's or a pool's memory while somebody reads them. Gives them back when it goes. Only for
/// the scheduler's thread; may outlive the link it came from.
class lent_buffer {
public:
    using give_back = void (*)(void* owner, std::uint64_t token) noexcept;

    lent_buffer() noexcept = default;
    lent_buffer(std::span<const std::byte> bytes, give_back function, void* owner,
                std::uint64_t token) noexcept
        : bytes_(bytes), function_(function), owner_(owner), token_(token) {}
    lent_buffer(lent_buffer&& other) noexcept
        : bytes_(std::exchange(other.bytes_, {})),
          function_(std::exchange(other.function_, nullptr)),
          owner_(other.owner_),
          token_(other.token_) {}
    lent_buffer& operator=(lent_buffer&& other) noexcept {
        if (this != &other) {
            reset();
            bytes_ = std::exchange(other.bytes_, {});
            function_ = std::exchange(other.function_, nullptr);
            owner_ = other.owner_;
            token_ = other.token_;
        }
        return *this;
    }
    ~lent_buffer() { reset(); }

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
    [[nodiscard]] explicit operator bool() const noexcept { return function_ != nullptr; }

    /// Gives the memory back now.
    void reset() noexcept {
        if (function_ != nullptr) std::exchange(function_, nullptr)(owner_, token_);
        bytes_ = {};
    }

private:
    std::span<const std::byte> bytes_{};
    give_back function_ = nullptr;
    void* owner_ = nullptr;
    std::uint64_t token_ = 0;
};

}  // namespace rdmacoro
