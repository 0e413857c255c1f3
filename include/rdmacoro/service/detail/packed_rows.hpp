// packed_rows: a collective of blocks that do not lie in a row.
#pragma once

#include <rdmacoro/service/collective.hpp>
#include <rdmacoro/service/detail/group_elements.hpp>
#include <rdmacoro/service/detail/in_turns.hpp>
#include <rdmacoro/service/detail/scratch.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

namespace rdmacoro::detail {

/// Copies blocks of one length from and to memory where each begins a step behind the one before it.
class [[nodiscard]] rows_in_turns final : public work_in_turns {
public:
    struct side {
        std::byte* at;
        std::size_t step;
    };
    rows_in_turns(side to, side from, std::size_t bytes, std::size_t count) noexcept
        : to_(to), from_(from), bytes_(bytes), count_(count) {}

    bool await_ready() noexcept { return count_ == 0 || (bytes_ * count_ <= in_one_go && !next_piece()); }

private:
    bool next_piece() noexcept override {
        if (bytes_ > in_one_go) return next_part();
        const std::size_t now = std::min(count_, in_one_go / std::max<std::size_t>(1, bytes_));
        switch (bytes_) {
            case 4: copy_alike<4>(now); break;
            case 8: copy_alike<8>(now); break;
            case 16: copy_alike<16>(now); break;
            default:
                for (std::size_t i = 0; i < now; ++i)
                    copy_long(to_.at + i * to_.step, from_.at + i * from_.step, bytes_);
        }
        return go_on(now);
    }
    /// Of a block that is longer than a piece.
    bool next_part() noexcept {
        const std::size_t now = std::min(bytes_ - done_, in_one_go);
        copy_long(to_.at + done_, from_.at + done_, now);
        done_ += now;
        if (done_ != bytes_) return true;
        done_ = 0;
        return go_on(1);
    }
    bool go_on(std::size_t blocks) noexcept {
        to_.at += blocks * to_.step;
        from_.at += blocks * from_.step;
        count_ -= blocks;
        return count_ != 0;
    }
    template <std::size_t Bytes>
    void copy_alike(std::size_t now) noexcept {
        for (std::size_t i = 0; i < now; ++i)
            std::memcpy(to_.at + i * to_.step, from_.at + i * from_.step, Bytes);
    }

    side to_;
    side from_;
    std::size_t bytes_;
    std::size_t count_;
    std::size_t done_ = 0;  // of the block
};

/// Memory in a row instead of the caller's blocks.
class packed_rows {
public:
    /// Takes it, and has `call` use it. Throws `std::bad_alloc`.
    packed_rows(collective_call& call, const call_strides& strides, unsigned rank, scratch_pool& pool)
        : back_(call.kind == collective_kind::broadcast && rank == call.root ? row_stride{} : strides.out),
          into_(call.out) {
        const bool only_root = call.kind == collective_kind::gather || call.kind == collective_kind::reduce;
        if (only_root && rank != call.root) back_ = {};
        const bool reads_in =
            call.in != nullptr && (call.kind != collective_kind::scatter || rank == call.root);
        const bool root_sends = call.kind == collective_kind::broadcast && rank == call.root;
        if (reads_in) in_ = strides.in;
        const row_stride to = root_sends ? strides.out : back_;
        const std::size_t room_of_in = (in_.block * in_.count + scratch_pool::alignment - 1) /
                                       scratch_pool::alignment * scratch_pool::alignment;
        if (in_.count == 0 && to.count == 0) return;
        memory_.emplace(pool, room_of_in + to.block * to.count);
        if (in_.count != 0) {
            from_ = const_cast<std::byte*>(call.in);  // only read
            call.in = memory_->data();
        }
        if (to.count == 0) return;
        row_ = memory_->data() + room_of_in;
        if (root_sends || call.in == nullptr) out_ = to;
        call.out = row_;
    }

    [[nodiscard]] bool in_use() const noexcept { return memory_.has_value(); }
    /// Before the algorithm: copies what the caller gives.
    [[nodiscard]] rows_in_turns pack_in() const noexcept {
        return {{memory_->data(), in_.block}, {from_, in_.step}, in_.block, in_.count};
    }
    /// The same of what the caller gives where the result will be.
    [[nodiscard]] rows_in_turns pack_out() const noexcept {
        return {{row_, out_.block}, {into_, out_.step}, out_.block, out_.count};
    }
    /// The result is complete.
    [[nodiscard]] rows_in_turns put_back() const noexcept {
        return {{into_, back_.step}, {row_, back_.block}, back_.block, back_.count};
    }

private:
    std::optional<scratch> memory_;
    row_stride in_{};
    row_stride out_{};  // what is packed of the memory for the result
    row_stride back_;
    std::byte* from_ = nullptr;
    std::byte* into_;
    std::byte* row_ = nullptr;
};

}  // namespace rdmacoro::detail
