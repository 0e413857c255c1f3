// Bodies of detail/piecewise_transfer.hpp.
#pragma once

#include <rdmacoro/protocol/detail/piecewise_transfer.hpp>

#include <rdmacoro/coro/error.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL void piecewise_transfer::begin(std::size_t offset, std::size_t bytes, stepped call) noexcept {
    offset_ = offset;
    left_ = bytes;
    piece_ = 0;
    within_ = 0;
    outcome_ = {};
    call_ = call;
}

RDMACORO_DECL void piecewise_transfer::begin_get(const mutable_buffers& into, std::size_t offset,
                                                 std::size_t bytes, stepped call) noexcept {
    into_ = into;
    gets_ = true;
    begin(offset, bytes, call);
}

RDMACORO_DECL void piecewise_transfer::begin_put(const const_buffers& from, std::size_t offset,
                                                 std::size_t bytes, stepped call) noexcept {
    from_ = from;
    gets_ = false;
    begin(offset, bytes, call);
}

RDMACORO_DECL piecewise_transfer::state piecewise_transfer::pump(one_sided_access& link) noexcept {
    while (left_ != 0 && !outcome_) {
        if (under_way_ == most_under_way) return state::moving;
        hook* free = hooks_;
        while (free->busy) ++free;
        while (within_ == there.at[piece_].length) {
            ++piece_;
            within_ = 0;
        }
        const remote_pieces::piece& p = there.at[piece_];
        std::uint64_t bytes = gets_ ? into_.at_offset(offset_).size() : from_.at_offset(offset_).size();
        if (bytes > left_) bytes = left_;
        if (bytes > p.length - within_) bytes = p.length - within_;
        if (bytes > most_at_once) bytes = most_at_once;
        const auto now = static_cast<std::size_t>(bytes);
        const post_result answer = post(link, now, {p.address + within_, now, p.key}, *free);
        if (answer == post_result::retry) return under_way_ != 0 ? state::moving : state::stalled;
        if (answer == post_result::failed) {
            outcome_ = make_error_code(errc::closed);
            break;
        }
        if (answer == post_result::posted) {
            free->busy = true;
            ++under_way_;
        }
        offset_ += now;
        within_ += bytes;
        left_ -= bytes;
    }
    return under_way_ != 0 ? state::moving : state::over;
}

RDMACORO_DECL post_result piecewise_transfer::post(one_sided_access& link, std::size_t bytes,
                                                   const remote_region& where, hook& h) noexcept {
    h.self = this;
    h.done = [](completion& c, std::error_code outcome) noexcept {
        auto& ended = static_cast<hook&>(c);
        ended.busy = false;
        --ended.self->under_way_;
        if (outcome && !ended.self->outcome_) ended.self->outcome_ = outcome;
        ended.self->call_(*ended.self);
    };
    return gets_ ? link.get(where, into_.at_offset(offset_).first(bytes), h)
                 : link.put(from_.at_offset(offset_).first(bytes), where, h);
}

RDMACORO_COLD void piecewise_transfer::revoke(one_sided_access& link) noexcept {
    for (hook& h : hooks_) {
        if (h.busy) link.revoke(h);
    }
    forget();
}

RDMACORO_COLD void piecewise_transfer::forget() noexcept {
    for (hook& h : hooks_) h.busy = false;
    left_ = under_way_ = 0;
}

template <class Byte>
[[nodiscard]] bool all_aligned(const basic_buffers<Byte>& local, std::size_t bytes,
                               std::size_t alignment) noexcept {
    for (std::size_t i = 0; alignment > 1 && bytes > 0; ++i) {
        const std::span<Byte> piece = local[i];
        const std::size_t now = piece.size() < bytes ? piece.size() : bytes;
        if (reinterpret_cast<std::uintptr_t>(piece.data()) % alignment != 0 || now % alignment != 0)
            return false;
        bytes -= now;
    }
    return true;
}
RDMACORO_DECL bool meets_alignment(const const_buffers& local, std::size_t bytes,
                                   std::size_t alignment) noexcept {
    return all_aligned(local, bytes, alignment);
}
RDMACORO_DECL bool meets_alignment(const mutable_buffers& local, std::size_t bytes,
                                   std::size_t alignment) noexcept {
    return all_aligned(local, bytes, alignment);
}
RDMACORO_DECL bool meets_alignment(const remote_pieces& there, std::size_t alignment) noexcept {
    for (std::uint32_t i = 0; alignment > 1 && i < there.count; ++i) {
        if (there.at[i].address % alignment != 0 || there.at[i].length % alignment != 0) return false;
    }
    return true;
}

}  // namespace rdmacoro::detail
