// Steps that several algorithms of collectives share.
#pragma once

#include <rdmacoro/service/collective.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>

namespace rdmacoro::detail {

using out_bytes = std::span<const std::byte>;
using in_bytes = std::span<std::byte>;
// Where both are under way together, the send is begun first: another rank waits for it, but no rank waits for the receive to begin.
using send_step = collective::sending;
using receive_step = collective::receiving;
using combine_step = collective::combining;

/// `into = mine op other`, or with `other_first`, `other op mine`, as `collective::combine`, with turns where they are long.
class [[nodiscard]] combine_in_turns final : public work_in_turns {
public:
    combine_in_turns(collective& c, in_bytes into, out_bytes mine, out_bytes other, bool other_first) noexcept
        : with_(c), into_(into), mine_(mine), other_(other), other_first_(other_first) {}
    combine_in_turns(collective& c, in_bytes into, out_bytes other, bool other_first) noexcept
        : combine_in_turns(c, into, into, other, other_first) {}

    bool await_ready() {
        with_.since_turn() += into_.size();
        if (with_.since_turn() > in_one_go) return false;
        with_.combine(into_, mine_, other_, other_first_);
        return true;
    }

private:
    bool next_piece() override {
        const std::size_t bytes = std::min(into_.size() - done_, whole_elements(with_.element()));
        with_.combine(into_.subspan(done_, bytes), mine_.subspan(done_, bytes), other_.subspan(done_, bytes),
                      other_first_);
        done_ += bytes;
        with_.since_turn() = bytes;
        return done_ != into_.size();
    }

    collective& with_;
    in_bytes into_;
    out_bytes mine_;
    out_bytes other_;
    std::size_t done_ = 0;
    bool other_first_;
};

/// The way of a rank through the halves of a minimum spanning tree: at each level the ranks `left` to `right` are cut into halves, `from`
/// has what the half without it gets by `to`.
struct tree_level {
    unsigned left;
    unsigned middle;  // the last of the left half
    unsigned right;
    unsigned from;
    unsigned to;
};
class tree_path {
public:
    tree_path(unsigned rank, unsigned size, unsigned root) noexcept {
        unsigned left = 0;
        unsigned right = size - 1;
        while (left != right) {
            const unsigned middle = left + (right - left) / 2;
            const unsigned to = root <= middle ? right : left;
            levels_[count_++] = {left, middle, right, root, to};
            const bool in_left = rank <= middle;
            if (in_left != (root <= middle)) root = to;
            if (in_left) {
                right = middle;
            } else {
                left = middle + 1;
            }
        }
    }
    [[nodiscard]] unsigned levels() const noexcept { return count_; }
    [[nodiscard]] const tree_level& operator[](unsigned level) const noexcept { return levels_[level]; }

private:
    std::array<tree_level, 33> levels_;
    unsigned count_ = 0;
};

/// Transfers that are under way together, in memory of the collective's.
template <class Transfer>
class transfer_list {
public:
    transfer_list(collective& c, std::size_t most)
        : memory_(c.take_scratch(most * sizeof(Transfer))),
          first_(reinterpret_cast<Transfer*>(memory_.data())) {}
    transfer_list(const transfer_list&) = delete;
    transfer_list& operator=(const transfer_list&) = delete;
    ~transfer_list() { std::destroy_n(first_, count_); }

    template <class... Args>
    void begin(Args&&... args) {
        ::new (static_cast<void*>(first_ + count_)) Transfer(static_cast<Args&&>(args)...);
        ++count_;
    }
    [[nodiscard]] std::size_t count() const noexcept { return count_; }
    [[nodiscard]] Transfer& operator[](std::size_t at) noexcept { return first_[at]; }

private:
    collective::scratch memory_;
    Transfer* first_;
    std::size_t count_ = 0;
};

/// Block number `which` of blocks of one length.
[[nodiscard]] inline in_bytes block_at(in_bytes all, std::size_t each, std::size_t which,
                                       std::size_t count = 1) noexcept {
    return all.subspan(which * each, count * each);
}

/// Elements cut into as many parts as there are ranks, the first ones one element longer.
struct element_parts {
    std::size_t elements;
    std::size_t element;
    unsigned parts;

    [[nodiscard]] std::size_t offset(unsigned part) const noexcept {
        const std::size_t each = elements / parts;
        const std::size_t longer = elements % parts;
        return (part * each + (part < longer ? part : longer)) * element;
    }
    /// The bytes of the parts `first` to `last`, the latter not included.
    template <class Bytes>
    [[nodiscard]] Bytes of(Bytes whole, unsigned first, unsigned last) const noexcept {
        return whole.subspan(offset(first), offset(last) - offset(first));
    }
};
[[nodiscard]] inline element_parts parts_of(const collective& c) noexcept {
    return {c.data().size() / c.element(), c.element(), c.size()};
}

/// For algorithms in powers of two, with any number of ranks: of the first `2 * extra` ranks each even one gives its part to the odd one behind
/// it and waits. There remain `power` ranks, numbered anew in the same order.
struct folded {
    explicit folded(const collective& c) noexcept
        : power(std::bit_floor(c.size())),
          extra(c.size() - power),
          waits(c.rank() < 2 * extra && c.rank() % 2 == 0),
          takes(c.rank() < 2 * extra && c.rank() % 2 == 1),
          number(c.rank() < 2 * extra ? c.rank() / 2 : c.rank() - extra) {}
    /// The rank of a number.
    [[nodiscard]] unsigned rank_of(unsigned which) const noexcept {
        return which < extra ? 2 * which + 1 : which + extra;
    }
    /// The first rank that the number stands for; the last is `rank_of`.
    [[nodiscard]] unsigned first_of(unsigned which) const noexcept {
        return which < extra ? 2 * which : which + extra;
    }
    unsigned power;
    unsigned extra;
    bool waits;  // this rank gives its part to the next one, and gets the result of it
    bool takes;  // this rank has taken the part of the one before it
    unsigned number;
};

/// The call of a step within a collective: the same operation and elements.
[[nodiscard]] inline collective_call step_of(const collective& c, collective_kind kind) noexcept {
    collective_call step;
    step.kind = kind;
    step.element = c.call().element;
    step.with = c.call().with;
    step.reproducible = c.call().reproducible;
    return step;
}

/// The lengths of the blocks of some ranks, as they travel where the root alone knew them.
class block_lengths {
public:
    block_lengths(collective& c, unsigned first, unsigned last)
        : memory_(c.take_scratch((last - first + 1) * sizeof(std::uint64_t))),
          first_(first),
          last_(last),
          bytes_(reinterpret_cast<std::uint64_t*>(memory_.data())) {}

    [[nodiscard]] in_bytes of(unsigned first, unsigned last) const noexcept {
        return memory_.bytes().subspan((first - first_) * sizeof(std::uint64_t),
                                       (last - first + 1) * sizeof(std::uint64_t));
    }
    void set(unsigned rank, std::size_t bytes) const noexcept { bytes_[rank - first_] = bytes; }
    [[nodiscard]] std::size_t bytes(unsigned first, unsigned last) const noexcept {
        std::size_t sum = 0;
        for (unsigned rank = first; rank <= last; ++rank)
            sum += static_cast<std::size_t>(bytes_[rank - first_]);
        return sum;
    }
    /// Whether this rank's is what it should be, and all together are no more than memory can be.
    [[nodiscard]] bool fit(unsigned rank, std::size_t own) const noexcept {
        std::uint64_t left = std::uint64_t{1} << 62;
        for (unsigned at = first_; at <= last_; ++at) {
            if (bytes_[at - first_] > left) return false;
            left -= bytes_[at - first_];
        }
        return bytes_[rank - first_] == own;
    }

private:
    collective::scratch memory_;
    unsigned first_;
    unsigned last_;
    std::uint64_t* bytes_;
};

/// The blocks of some ranks one behind the other, by the lengths that came, or by those that every rank knows.
class block_row {
public:
    block_row(const collective& c, const std::optional<block_lengths>& came) noexcept : of_(c), came_(came) {}
    [[nodiscard]] std::size_t bytes(unsigned first, unsigned last) const noexcept {
        return came_ ? came_->bytes(first, last) : of_.blocks_bytes(first, last);
    }
    /// Where block `which` is, behind block `first`.
    [[nodiscard]] std::size_t offset(unsigned first, unsigned which) const noexcept {
        return which > first ? bytes(first, which - 1) : 0;
    }
    /// The blocks `from` to `to` in memory that begins with block `first`.
    template <class Bytes>
    [[nodiscard]] Bytes part(Bytes held, unsigned first, unsigned from, unsigned to) const noexcept {
        return held.subspan(offset(first, from), bytes(from, to));
    }

private:
    const collective& of_;
    const std::optional<block_lengths>& came_;
};

/// Offsets of blocks of several lengths, in memory of the collective's, for a step of which every rank knows them.
class step_blocks {
public:
    /// Of `count` blocks, the length of each by `bytes_of(number)`.
    template <class BytesOf>
    step_blocks(collective& c, unsigned count, BytesOf bytes_of)
        : memory_(c.take_scratch((std::size_t{count} + 1) * sizeof(std::size_t))),
          offsets_(reinterpret_cast<std::size_t*>(memory_.data())),
          count_(count) {
        offsets_[0] = 0;
        for (unsigned at = 0; at < count; ++at) offsets_[at + 1] = offsets_[at] + bytes_of(at);
    }
    [[nodiscard]] block_layout layout() const noexcept { return {0, offsets_}; }
    [[nodiscard]] std::size_t offset(unsigned block) const noexcept { return offsets_[block]; }
    [[nodiscard]] std::size_t bytes(unsigned block) const noexcept {
        return offsets_[block + 1] - offsets_[block];
    }
    [[nodiscard]] std::size_t total() const noexcept { return offsets_[count_]; }

private:
    collective::scratch memory_;
    std::size_t* offsets_;
    unsigned count_;
};

}  // namespace rdmacoro::detail
