// group_base: how a group checks the buffers of a collective and runs it, for all collectives alike.
#pragma once

#include <rdmacoro/service/collective.hpp>
#include <rdmacoro/service/collective_options.hpp>
#include <rdmacoro/service/detail/group_calls.hpp>
#include <rdmacoro/service/detail/group_elements.hpp>
#include <rdmacoro/service/detail/run_collective.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// Base of `group`: its state, and the steps that collectives share. A buffer of another length than is needed is refused, which revokes the group.
class group_base {
protected:
    group_base() noexcept = default;
    explicit group_base(counted_ptr<group_state> of) noexcept : state_(std::move(of)) {}

    [[nodiscard]] group_state& state() const {
        if (!state_) [[unlikely]]
            throw_error(errc::invalid_argument, "group: it was default-constructed or moved from");
        return *state_;
    }
    [[nodiscard]] task<> run(const collective_call& call) const { return run_collective(state_, call); }
    /// Of memory that may be in blocks.
    template <class In, class Out>
    [[nodiscard]] task<> run(const collective_call& call, const In& in, const Out& out) const {
        if constexpr (strided_row<In> || strided_row<Out>) {
            const call_strides strides{stride_of(in), stride_of(out)};
            if (strides.in.count == 0 && strides.out.count == 0) need_apart(call, in, out);
            return run_strided(state_, call, strides);
        } else {
            need_apart(call, in, out);
            return run_collective(state_, call);
        }
    }
    template <collective_kind K, class Mine, class X, class Op, class... Options>
    [[nodiscard]] task<> prefix(const Mine& mine, X& x, const Op& op, const Options&... options) const {
        collective_call call = call_with<K, X>(op, options...);
        if constexpr (!std::is_same_v<Mine, in_place_t>) {
            need(elements_in(x), elements_in(mine), "scan");
            call.in = read_from(mine);
        }
        call.out = write_to(x);
        call.bytes = bytes_of_row(x);
        return run(call, mine, x);
    }
    template <class Mine, class All, class... Options>
    [[nodiscard]] task<> all_blocks(const Mine& mine, std::size_t each, All& all,
                                    std::span<const std::size_t> counts, const Options&... options) const {
        collective_call call = call_of<collective_kind::allgather, All>(options...);
        if constexpr (!std::is_same_v<Mine, in_place_t>) call.in = read_from(mine);
        call.out = write_to(all);
        call.bytes = each;
        call.out_blocks.each = each;
        call.uneven = !counts.empty();
        call.out_counts = counts;
        return run(call, mine, all);
    }
    /// Rows that overlap, and are not the same. A row that lies in blocks is packed, and may overlap with another one.
    template <class In, class Out>
    void need_apart(const collective_call& call, const In& in, const Out& out) const {
        if constexpr (!std::is_same_v<In, in_place_t>) {
            if (overlap_in_part(read_from(in), bytes_of_row(in), read_from(out), bytes_of_row(out)))
                [[unlikely]]
                refuse_overlap(call);
        }
    }
    /// Not where this rank uses one of the rows alone, and where its block lies where `in_place` has it.
    void refuse_overlap(const collective_call& call) const;
    void need(std::size_t is, std::size_t wanted, const char* what) const;
    /// A block for each rank, where `all` says that it is so.
    template <class X>
    void need_blocks(const X& x, bool all, const char* what) const {
        if (all) need(elements_in(x), elements_in(x) / state().size() * state().size(), what);
    }
    void need_counts(std::span<const std::size_t> counts, std::size_t elements, const char* what) const;

    /// Of one row that is given and gotten.
    void need_same_counts(std::span<const std::size_t> given, std::span<const std::size_t> gotten,
                          const char* what) const;

    counted_ptr<group_state> state_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/group_base.ipp>
#endif
