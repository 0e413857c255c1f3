// answer: what a handler's result becomes, and what must live until that is sent.
#pragma once

#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/detail/kept_value.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <ranges>
#include <span>
#include <utility>

namespace rdmacoro::detail {

class calls_base;

/// Room for an answer of fixed length, with its head.
struct short_answer {
    static constexpr std::size_t longest = 64;
    alignas(16) std::byte bytes[longest];
};

/// An answer that is longer, or of a length that depends on the value.
struct long_answer {
    std::unique_ptr<encoder> bytes;
    apart_value result;  // of which parts may be borrowed
};

/// The answer to a call, with the head of one that has a value.
class answer {
public:
    /// Of a call that `of` serves. A short one is made in `here`.
    answer(calls_base& of, short_answer& here) noexcept : of_(of), here_(here) {
        std::memset(here.bytes, 0, sizeof(answer_head));
    }
    answer(const answer&) = delete;
    answer& operator=(const answer&) = delete;
    ~answer() {
        if (long_.bytes) [[unlikely]]
            give_back();
    }

    /// Encodes a result, which lives here until the answer is sent.
    template <class R>
    void give(R&& value) {
        if constexpr (bytes_are_value<R>() && sizeof(R) + sizeof(answer_head) <= short_answer::longest) {
            std::memcpy(here_.bytes + sizeof(answer_head), std::addressof(value), sizeof value);
            size_ = sizeof(answer_head) + sizeof value;
        } else if constexpr (bytes_are_value<R>()) {
            encoder_of_it().row(
                std::as_bytes(std::span(std::addressof(long_.result.keep(std::move(value))), 1)));
        } else {
            encoder& to = encoder_of_it();
            R& here = long_.result.keep(std::move(value));
            if constexpr (row_of_values<const R&>) {
                to.row(std::as_bytes(std::span(std::ranges::data(here), std::ranges::size(here))));
            } else {
                to.write(here);
            }
        }
    }

    [[nodiscard]] bool is_long() const noexcept { return long_.bytes != nullptr; }
    /// Of a short one.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// All of it, to be sent. Throws `std::bad_alloc`.
    [[nodiscard]] const_buffers bytes() {
        if (!is_long()) [[likely]]
            return std::span<const std::byte>(here_.bytes, size_);
        return const_buffers(long_.bytes->pieces());
    }
    /// To be sent by another than its owner, which gives the encoder back.
    [[nodiscard]] long_answer take_long() noexcept { return std::move(long_); }

    /// The arguments of the call, which may refer to `copies`.
    kept_value arguments;
    copied_rows copies;

private:
    encoder& encoder_of_it();
    void give_back() noexcept;

    calls_base& of_;
    short_answer& here_;
    std::size_t size_ = sizeof(answer_head);
    long_answer long_;
};

}  // namespace rdmacoro::detail
