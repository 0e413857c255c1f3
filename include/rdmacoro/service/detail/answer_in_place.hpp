// answer_in_place: where the answer of `call_into` is received: its head here, its elements in the caller's place, and an error's text in
// whichever has room.
#pragma once

#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/service/detail/call_wire.hpp>
#include <rdmacoro/service/method.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace rdmacoro::detail {

class answer_in_place {
public:
    /// Borrows `place`.
    explicit answer_in_place(std::span<std::byte> place) noexcept
        : place_(place), pieces_{std::span(first_), place, std::span(rest_)} {}
    answer_in_place(const answer_in_place&) = delete;
    answer_in_place& operator=(const answer_in_place&) = delete;
    ~answer_in_place() = default;

    /// For the receive. Long places are followed by nothing: the link may take few pieces.
    [[nodiscard]] mutable_buffers into() noexcept {
        const std::size_t count = place_.size() < longest_error_text ? 3 : 2;
        return mutable_buffers(std::span<const std::span<std::byte>>(pieces_, count));
    }
    /// Of an answer of `bytes` to a call of `of`: how many of them are in the place. Throws its error, and `errc::truncated` for more than
    /// there is room for.
    [[nodiscard]] RDMACORO_DECL std::size_t length(const method_facts& of, std::size_t bytes) const;

private:
    std::span<std::byte> place_;
    std::array<std::byte, sizeof(answer_head)> first_;
    std::array<std::byte, longest_error_text> rest_;
    std::span<std::byte> pieces_[3];
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/answer_in_place.ipp>
#endif
