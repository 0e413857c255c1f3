// Bodies of group.hpp.
#pragma once

#include <rdmacoro/service/group.hpp>

#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/service/detail/own_token.hpp>

#include <algorithm>
#include <exception>
#include <string>

namespace rdmacoro {

RDMACORO_COLD std::string group::explain() const {
    return explain_collectives(size(), state().hosts(), state().choice, state().hosts_in_turn());
}

namespace detail {
struct split_wish {
    std::int64_t color;
    std::int64_t key;
    std::uint64_t context;
};

/// The ranks of the job that gave this color, in the order of their keys.
RDMACORO_COLD std::vector<unsigned> members_of(const std::vector<split_wish>& all, std::int64_t color,
                                               const group& whole) {
    std::vector<unsigned> members;
    for (unsigned rank = 0; rank < all.size(); ++rank) {
        if (all[rank].color == color) members.push_back(rank);
    }
    std::sort(members.begin(), members.end(), [&](unsigned a, unsigned b) {
        return all[a].key != all[b].key ? all[a].key < all[b].key : a < b;
    });
    for (unsigned& member : members) member = whole.rank_in_job(member);
    return members;
}
}  // namespace detail

RDMACORO_COLD task<group> group::split(std::int64_t color, std::int64_t key) const {
    return split_of(*this, color, key);
}
RDMACORO_COLD task<group> group::shrink() const { return shrink_of(*this); }

// These have a copy of the group: a task may outlive the object that it was asked of.
RDMACORO_COLD task<group> group::split_of(group whole, std::int64_t color, std::int64_t key) {
    detail::own_token own{whole.state().links().owner()};
    static_cast<void>(co_await own);
    const detail::rank_links::naming expects_group(whole.state().shared_links());
    // Both of its collectives, before others of this group begin.
    const std::uint32_t number = whole.state().next_number();
    const std::uint32_t number_of_barrier = whole.state().next_number();
    std::uint64_t context = 0;
    group made;
    std::exception_ptr failed;
    try {
        // The first rank names the group.
        const detail::split_wish mine{color, key,
                                      whole.rank() == 0 ? whole.state().links().name_context() : 0};
        std::vector<detail::split_wish> all(whole.size());
        detail::collective_call call =
            detail::call_of<collective_kind::allgather, std::vector<detail::split_wish>>();
        call.named = "split";
        call.number = number;
        call.in = detail::read_from(std::span(&mine, 1));
        call.out = detail::write_to(all);
        call.bytes = call.out_blocks.each = sizeof mine;
        co_await whole.run(call);
        context = all[0].context;
        if (context != 0 && color != no_color)
            made = group(detail::counted_ptr<detail::group_state>(
                new detail::group_state(whole.state().shared_links(), detail::members_of(all, color, whole),
                                        context, whole.state().choice)));
    } catch (...) {
        failed = std::current_exception();
    }
    if (failed) {
        whole.state().end_without_memory("split");  // this rank has the numbers of both collectives
        std::rethrow_exception(failed);
    }
    if (context == 0) throw error(errc::no_resources, "group: rank 0 has named as many groups as it may");
    // No rank has its group before all know its members. A rank that fails here knows them, too, and ends the group for those that have it:
    // they would wait there for this one, which goes on with `shrink`.
    detail::collective_call all_know = detail::call_of<collective_kind::barrier, std::span<std::byte>>();
    all_know.named = "split";
    all_know.number = number_of_barrier;
    try {
        co_await whole.run(all_know);
    } catch (...) {
        failed = std::current_exception();
    }
    if (!failed) co_return made;
    whole.state().end_without_memory("split");
    if (made) {
        made.state().revoke_with(whole.state());
        co_await without_stop(detail::rank_links::words_are_out(&whole.state().links()));
    }
    std::rethrow_exception(failed);
}

RDMACORO_COLD task<group> group::shrink_of(group whole) {
    detail::own_token own{whole.state().links().owner()};
    static_cast<void>(co_await own);
    co_await detail::turn_for_others();  // that of one rank ends at once
    detail::group_state::agreement left = co_await detail::group_state::agree(&whole.state());
    group made(detail::counted_ptr<detail::group_state>(new detail::group_state(
        whole.state().shared_links(), std::move(left.left), left.context, whole.state().choice)));
    whole.state().agreed();
    co_return made;
}

}  // namespace rdmacoro
