// Steps that several algorithms of collectives share.
#pragma once

#include <rdmacoro/service/collective.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>

namespace rdmacoro::detail {

using out_bytes = std::span<const std::byte>;
using in_bytes = std::span<std::byte>;
// Where both are under way together, the send is begun first: another rank waits for it, but no rank waits for the receive to begin.
using send_step = collective::sending;
using receive_step = collective::receiving;

/// Copies; both may be empty, and the same.
inline void copy_bytes(in_bytes into, out_bytes from) noexcept {
    if (!from.empty() && into.data() != from.data()) std::memcpy(into.data(), from.data(), from.size());
}

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
/// it and waits. What remains are `power` ranks, numbered anew in the same order.
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

}  // namespace rdmacoro::detail
