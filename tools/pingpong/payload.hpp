// The memory that messages are sent from and received into.
#pragma once

#include "failure.hpp"
#include "sizes.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>

namespace pingpong {

/// Bytes that the system could give to programs now without taking them from others, as it says; else no limit.
[[nodiscard]] std::size_t available_memory();

/// The buffers of a window's messages. One buffer for all of them, as other benchmarks have it, stays in the processor's cache;
/// with several, message number k has buffer k modulo their number. Page-aligned, and touched before use.
class payload {
public:
    /// Limit of the memory that one side gives to the buffers of a window; see `most_slots`.
    static constexpr std::size_t most_bytes = std::size_t{256} << 20;

    /// How many messages of `bytes` bytes can have a buffer of their own.
    [[nodiscard]] static constexpr std::size_t most_slots(std::size_t bytes) noexcept {
        const std::size_t slots = most_bytes / stride_of(bytes);
        return slots == 0 ? 1 : slots;
    }

    /// Throws `run_error` where there is not so much memory.
    void prepare(std::size_t bytes, std::size_t slots) {
        bytes_ = bytes;
        slots_ = slots;
        const std::size_t wanted = stride_of(bytes) * slots;
        if (wanted > capacity_) {
            memory_.reset();
            capacity_ = 0;
            memory_.reset(allocate(bytes, slots));
            capacity_ = wanted;
            std::memset(memory_.get(), 0x5a, wanted);
        }
    }

    [[nodiscard]] std::size_t offset(std::size_t slot) const noexcept {
        return slots_ == 1 ? 0 : slot % slots_ * stride_of(bytes_);
    }
    [[nodiscard]] std::span<std::byte> slot(std::size_t index) noexcept {
        return {memory_.get() + offset(index), bytes_};
    }
    [[nodiscard]] std::span<std::byte> whole() noexcept {
        return {memory_.get(), stride_of(bytes_) * slots_};
    }

private:
    static constexpr std::size_t page = 4096;
    static constexpr std::size_t line = 64;

    [[nodiscard]] static constexpr std::size_t stride_of(std::size_t bytes) noexcept {
        return bytes == 0 ? line : (bytes + line - 1) / line * line;
    }

    /// Throws `run_error`; also for most of the memory that is left, which the system promises, and then ends some process when it is touched. A
    /// client may ask a listener for any length.
    [[nodiscard]] static std::byte* allocate(std::size_t bytes, std::size_t slots) {
        try {
            if (stride_of(bytes) * slots > available_memory() / 4 * 3) throw std::bad_alloc();
            return static_cast<std::byte*>(::operator new(stride_of(bytes) * slots, std::align_val_t{page}));
        } catch (const std::bad_alloc&) {
            throw run_error("there is no memory for " + std::to_string(slots) +
                            (slots == 1 ? " buffer of " : " buffers of ") + size_text(bytes) +
                            "; write smaller --sizes");
        }
    }

    struct unmake {
        void operator()(std::byte* memory) const noexcept {
            ::operator delete(memory, std::align_val_t{page});
        }
    };
    std::unique_ptr<std::byte, unmake> memory_;
    std::size_t capacity_ = 0;
    std::size_t bytes_ = 0;
    std::size_t slots_ = 1;
};

}  // namespace pingpong
