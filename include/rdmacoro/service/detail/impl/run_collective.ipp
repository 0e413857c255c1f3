// Bodies of run_collective.hpp.
#pragma once

#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/service/collective_options.hpp>
#include <rdmacoro/service/detail/algorithm_steps.hpp>
#include <rdmacoro/service/detail/own_token.hpp>
#include <rdmacoro/service/detail/packed_rows.hpp>
#include <rdmacoro/service/detail/run_collective.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rdmacoro::detail {

/// In a claim, instead of a kind: both collectives of a `split`.
inline constexpr std::uint64_t part_of_split = collective_kinds;

/// The claims that ranks compare.
struct collective_claim {
    std::uint64_t kind;
    std::uint64_t root;
    std::uint64_t bytes;
    std::uint64_t type;
    std::uint64_t algorithm;  // the name of the one that was chosen, and of its steps
    std::array<char, 120> types_text;
    std::array<char, 80> algorithm_text;
};
/// As much of it as there is room for, and a zero.
template <std::size_t N>
void copy_text(std::string_view from, std::array<char, N>& to) noexcept {
    to.back() = '\0';
    *std::copy_n(from.begin(), std::min(from.size(), N - 1), to.begin()) = '\0';
}
/// Of what a peer sent.
template <std::size_t N>
[[nodiscard]] std::string text_in(const std::array<char, N>& from) {
    std::string text(from.begin(), std::find(from.begin(), from.end(), '\0'));
    std::ranges::replace_if(
        text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
    return text;
}
/// Instead of a length: blocks have several.
inline constexpr std::uint64_t by_counts = ~std::uint64_t{0};

/// What a rank has found about the lengths of blocks, in elements.
struct counts_finding {
    std::uint64_t with;    // the rank that says something else
    std::uint64_t block;   // of that rank
    std::uint64_t theirs;  // as `with` says
    std::uint64_t own;
};
inline constexpr std::uint64_t nobody = ~std::uint64_t{0};

[[nodiscard]] inline std::uint64_t number_of(const algorithm& chosen) noexcept {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const std::string_view name : {chosen.name, chosen.steps[0], chosen.steps[1]}) {
        for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
        hash = (hash ^ 1) * 0x100000001b3u;
    }
    return hash;
}

/// Offsets of blocks from their counts, in scratch memory.
[[nodiscard]] inline block_layout layout_of(std::span<const std::size_t> counts, std::size_t element,
                                            std::size_t* room) noexcept {
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < counts.size(); ++rank) {
        room[rank] = at;
        at += counts[rank] * element;
    }
    room[counts.size()] = at;
    return {0, room};
}

/// What of a rank's contribution is to be where it belongs from the beginning.
struct placed_first {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::size_t bytes = 0;
};

/// What of this rank's contribution is to be copied before the algorithm runs, nothing where it takes all `from_input`. An algorithm of `gather`
/// finds what this rank gives in `out`.
[[nodiscard]] inline placed_first place(collective_call& call, unsigned rank, bool from_input) noexcept {
    switch (call.kind) {
        case collective_kind::barrier:
        case collective_kind::broadcast: break;
        case collective_kind::scatter:
            if (rank == call.root) return {call.out, call.in + call.in_blocks.offset(rank), call.bytes};
            break;
        case collective_kind::gather:
            if (rank == call.root) return {call.out + call.out_blocks.offset(rank), call.in, call.bytes};
            call.out = const_cast<std::byte*>(call.in);  // only read
            break;
        case collective_kind::allgather:
            if (call.in != nullptr) return {call.out + call.out_blocks.offset(rank), call.in, call.bytes};
            break;
        case collective_kind::alltoall:
            if (!from_input && !call.own_placed)
                return {call.out + call.out_blocks.offset(rank), call.in + call.in_blocks.offset(rank),
                        call.in_blocks.bytes(rank)};
            break;
        case collective_kind::reduce_scatter:
            if (!from_input) return {call.out, call.in + call.in_blocks.offset(rank), call.bytes};
            break;
        case collective_kind::reduce:
        case collective_kind::allreduce:
        case collective_kind::scan:
        case collective_kind::exscan:
            if (call.in != nullptr && !from_input) return {call.out, call.in, call.bytes};
            break;
    }
    return {};
}

/// Whether a call needs memory beside the caller's. A rank that is not the root of a reduction has no memory for what it sums up.
[[nodiscard]] inline bool takes_all_of_out(const collective_call& call) noexcept {
    return call.kind == collective_kind::alltoall && call.in == nullptr;
}
[[nodiscard]] inline bool has_no_out(const collective_call& call, unsigned rank) noexcept {
    return call.kind == collective_kind::reduce && rank != call.root;
}
[[nodiscard]] inline bool needs_memory(const collective_call& call, unsigned rank) noexcept {
    return !call.in_counts.empty() || !call.out_counts.empty() || takes_all_of_out(call) ||
           has_no_out(call, rank);
}

/// As `place`, with the memory that the call needs.
[[nodiscard]] inline placed_first prepare(collective_call& call, unsigned rank, unsigned size,
                                          bool from_input, scratch_pool& pool,
                                          std::optional<scratch>& offsets, std::optional<scratch>& work) {
    if (!call.in_counts.empty() || !call.out_counts.empty()) {
        offsets.emplace(pool, 2 * (std::size_t{size} + 1) * sizeof(std::size_t));
        auto* const room = reinterpret_cast<std::size_t*>(offsets->data());
        if (!call.in_counts.empty()) call.in_blocks = layout_of(call.in_counts, call.element, room);
        if (!call.out_counts.empty())
            call.out_blocks = layout_of(call.out_counts, call.element, room + size + 1);
    }
    if (takes_all_of_out(call)) {
        // What comes takes its place.
        const std::size_t whole = call.out_blocks.offset(size - 1) + call.out_blocks.bytes(size - 1);
        work.emplace(pool, whole);
        call.in = work->data();
        call.own_placed = true;
        return {work->data(), call.out, whole};
    }
    if (has_no_out(call, rank)) {
        work.emplace(pool, call.bytes);
        call.out = work->data();
    }
    return place(call, rank, from_input);
}

[[nodiscard]] inline collective_shape shape_of(const collective_call& call, const group_state& of) noexcept {
    collective_shape shape;
    shape.kind = call.kind;
    shape.bytes = call.bytes;
    shape.elements = call.bytes / call.element;
    shape.ranks = of.size();
    shape.hosts = of.hosts();
    shape.in_turn = of.hosts_in_turn();
    shape.uneven = call.uneven;
    shape.in_order = call.with.apply != nullptr && !(call.with.commutative && call.with.associative);
    shape.left_fold = call.with.apply != nullptr && !call.with.associative;
    shape.reproducible = call.reproducible;
    return shape.for_choice();
}

/// By the environment, the call's own choice, the group's, the default.
[[nodiscard]] inline const algorithm* choose_anew(const collective_shape& shape,
                                                  std::span<const algorithm> asked, const group_state& of) {
    if (const algorithm* const forced = of.forced(shape.kind); forced != nullptr && forced->admits(shape))
        return forced;
    for (const algorithm& one : asked) {
        if (one.admits(shape)) return &one;
    }
    if (const algorithm* const chosen = of.choice(shape)) return chosen;
    return default_collectives::choose(shape);
}
[[nodiscard, gnu::always_inline]] inline const algorithm* choose_algorithm(const collective_call& call,
                                                                           group_state& of) {
    if (!call.asked.empty()) [[unlikely]]
        return choose_anew(shape_of(call, of), call.asked, of);
    group_state::chosen& last = of.last_choice(call.kind);
    const unsigned flags = static_cast<unsigned>(call.element) << 4 | (call.uneven ? 8u : 0u) |
                           (call.reproducible ? 4u : 0u) | (call.with.associative ? 0u : 2u) |
                           (call.with.commutative ? 0u : 1u);
    if (last.how != nullptr && last.bytes == call.bytes && last.flags == flags) return last.how;
    last = {call.bytes, flags, choose_anew(shape_of(call, of), {}, of)};
    return last.how;
}

/// The task that `make` makes for a collective that has its number. Without memory for it the group ends, and the error is thrown: the others
/// wait for this rank.
template <class Make>
[[nodiscard]] task<> made_or_revoked(group_state& of, Make make) {
    try {
        return make();
    } catch (...) {
        of.end_without_memory("no memory");
        throw;
    }
}

[[nodiscard]] RDMACORO_COLD std::string text_of(const std::exception_ptr& failed) {
    try {
        std::rethrow_exception(failed);
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "an exception of an algorithm";
    }
}

/// A collective has failed here: finds out what the others are to be told, tells them, and throws.
RDMACORO_COLD task<> tell_and_throw(group_state* of, collective& c, std::exception_ptr failed) {
    bool unknown = c.has_failed() && !of->failure();
    if (c.has_wrong_message()) {
        if (unknown) c.tell_wrong_message();
    } else if (c.was_canceled() && unknown) {
        group_failure why;
        why.why = make_error_code(errc::canceled);
        why.by = of->rank();
        try {
            group_state::absence found =
                co_await without_stop(group_state::find_absent(of, c.number(), c.title()));
            why.absent = std::move(found.ranks);
            why.text = std::string(found.title) + " number " + std::to_string(found.number);
            if (!found.silent.empty())
                why.text += "; did not answer in time, and may have: " + rank_list(found.silent);
        } catch (const std::exception&) {}  // no memory to find out more: the others are told all the same
        of->revoke(std::move(why));
        unknown = false;
    } else if (!c.has_failed()) {
        // The algorithm has thrown by itself: memory is short, or it is the user's.
        group_failure why;
        why.why = make_error_code(errc::no_resources);
        why.by = of->rank();
        try {
            why.text = text_of(failed);
        } catch (const std::bad_alloc&) {}
        of->revoke(std::move(why));
    }
    try {
        if (!of->failure()) co_await without_stop(group_state::find_failure(of, c.left()));
        of->tell_again();
        co_await without_stop(rank_links::words_are_out(&of->links()));
    } catch (const std::exception&) {
        of->end_without_memory("no memory");
    }
    // The reason may have come from another rank between the exception and this.
    if (unknown || c.has_thrown_early()) c.check();
    std::rethrow_exception(failed);
}
[[nodiscard]] RDMACORO_COLD task<> give_up(group_state* of, collective& c, std::exception_ptr failed) {
    return made_or_revoked(*of, [&] { return tell_and_throw(of, c, std::move(failed)); });
}

RDMACORO_COLD std::string claim_text(const collective_claim& claim) {
    if (claim.kind == part_of_split) return "split";
    std::string text =
        claim.kind < collective_kinds
            ? std::string(function_name(static_cast<collective_kind>(claim.kind), claim.bytes == by_counts))
            : "an unknown collective";
    if (claim.bytes != by_counts) text += " of " + std::to_string(claim.bytes) + " bytes";
    return text + ", root " + std::to_string(claim.root);
}

/// Whether every rank gives the lengths of all blocks.
[[nodiscard]] inline bool all_know_counts(collective_kind kind) noexcept {
    return kind == collective_kind::allgather || kind == collective_kind::reduce_scatter;
}

/// What this rank finds of the lengths of blocks. Where every rank gives all of them they are compared with rank 0's; else with what the rank says that a
/// block goes to or comes from, which is the root's word of a gather and a scatter.
RDMACORO_COLD task<counts_finding> compare_with_one(collective* c, const collective_call* of) {
    const unsigned size = c->size();
    counts_finding found{nobody, 0, 0, 0};
    std::vector<std::uint64_t> heard(size);
    collective_call call;
    call.out = reinterpret_cast<std::byte*>(heard.data());
    if (all_know_counts(of->kind)) {
        const auto counts = of->kind == collective_kind::allgather ? of->out_counts : of->in_counts;
        if (c->rank() == 0) heard.assign(counts.begin(), counts.end());
        call.kind = collective_kind::broadcast;
        call.bytes = size * sizeof(std::uint64_t);
        collective step(*c, {}, call);
        co_await binomial_broadcast(step);
        const auto differs = std::mismatch(heard.begin(), heard.end(), counts.begin());
        if (differs.first != heard.end())
            found = {0, static_cast<std::uint64_t>(differs.first - heard.begin()), *differs.first,
                     *differs.second};
        co_return found;
    }
    const bool each_with_each = of->kind == collective_kind::alltoall;
    const auto said = of->kind == collective_kind::gather ? of->out_counts : of->in_counts;
    std::vector<std::uint64_t> says(size, by_counts);
    if (each_with_each || c->rank() == of->root) says.assign(said.begin(), said.end());
    call.kind = collective_kind::alltoall;
    call.in = reinterpret_cast<const std::byte*>(says.data());
    call.in_blocks.each = call.out_blocks.each = sizeof(std::uint64_t);
    collective step(*c, {}, call);
    co_await bruck_alltoall(step);
    for (unsigned from = 0; from < size; ++from) {
        const std::uint64_t own = each_with_each ? of->out_counts[from] : of->bytes / of->element;
        if (heard[from] == by_counts || heard[from] == own) continue;
        found = {from, c->rank(), heard[from], own};
        break;
    }
    co_return found;
}

RDMACORO_COLD std::string finding_text(const collective_call& of, unsigned rank,
                                       const counts_finding& found) {
    std::string what = "block " + std::to_string(found.block);
    if (!all_know_counts(of.kind)) {
        const bool comes = of.kind == collective_kind::gather;
        what = "what rank " + std::to_string(comes ? rank : found.with) + " sends to " +
               std::to_string(comes ? found.with : rank);
    }
    return "ranks " + std::to_string(found.with) + " and " + std::to_string(rank) +
           " disagree about the length of " + what + " (" + std::to_string(found.theirs) + " elements; " +
           std::to_string(found.own) + " elements)";
}

/// "int with std::plus<void>" of "Element = int; Op = std::plus<void>]".
RDMACORO_COLD std::string types_text(std::string_view of) {
    constexpr std::string_view before_element = "Element = ";
    constexpr std::string_view before_operation = " Op = ";  // behind a comma or a semicolon
    const std::size_t middle = of.find(before_operation);
    if (middle == std::string_view::npos) return std::string(of);
    const std::string_view element = of.substr(before_element.size(), middle - 1 - before_element.size());
    const std::string_view operation = of.substr(middle + before_operation.size());
    std::string text(element);
    if (operation != "void]") text.append(" with ").append(operation.substr(0, operation.rfind(']')));
    return text;
}
RDMACORO_COLD std::string algorithm_text(const algorithm& chosen) {
    std::string text(chosen.name);
    for (const std::string_view step : chosen.steps) {
        if (!step.empty()) text.append(" ").append(step);
    }
    return text;
}

RDMACORO_COLD std::string differences(const std::vector<collective_claim>& all) {
    std::string text;
    for (unsigned rank = 1; rank < all.size(); ++rank) {
        const collective_claim& a = all[0];
        const collective_claim& b = all[rank];
        const bool alike = a.kind == b.kind && a.root == b.root;
        const bool types = alike && a.type != b.type;
        const bool algorithms = alike && !types && a.bytes == b.bytes && a.algorithm != b.algorithm;
        const char* in = a.kind != b.kind     ? "the operation"
                         : a.root != b.root   ? "the root"
                         : types              ? "the types"
                         : a.bytes != b.bytes ? "the length"
                         : algorithms         ? "the algorithm"
                                              : nullptr;
        if (in == nullptr) continue;
        if (text.size() > 1000) return text + ", ...";
        if (!text.empty()) text += ", ";
        const auto claimed = [&](const collective_claim& one) {
            std::string said = claim_text(one);
            if (types) said += ", of " + text_in(one.types_text);
            if (algorithms) said += ", by " + text_in(one.algorithm_text);
            return said;
        };
        text += "ranks 0 and " + std::to_string(rank) + " disagree about " + in + " (" + claimed(a) + "; " +
                claimed(b) + ")";
    }
    return text;
}
RDMACORO_COLD std::string differences(const collective_call& of, const std::vector<counts_finding>& all) {
    std::string text;
    for (unsigned rank = 0; rank < all.size(); ++rank) {
        if (all[rank].with == nobody) continue;
        if (text.size() > 1000) return text + ", ...";
        if (!text.empty()) text += ", ";
        text += finding_text(of, rank, all[rank]);
    }
    return text;
}

/// This rank's part becomes known to all.
template <class T>
task<> tell_all(collective* c, std::vector<T>* all) {
    collective_call exchange;
    exchange.kind = collective_kind::allgather;
    exchange.out = reinterpret_cast<std::byte*>(all->data());
    exchange.bytes = exchange.out_blocks.each = sizeof(T);
    collective step(*c, {}, exchange);
    co_await bruck_allgather(step);
}

/// Every rank tells every other one what it was asked for; then, of blocks of several lengths, what it finds about these. All come to the same end. Throws
/// where they differ.
RDMACORO_COLD task<> compare_calls(group_state* of, collective_call call, const algorithm* how,
                                   local_stop_token around, std::uint32_t number) {
    const unsigned size = of->size();
    collective_claim mine{call.named.empty() ? static_cast<std::uint64_t>(call.kind) : part_of_split,
                          call.root,
                          call.uneven ? by_counts : call.bytes,
                          call.types != nullptr ? call.types->number : 0,
                          number_of(*how),
                          {},
                          {}};
    if (call.types != nullptr) copy_text(types_text(call.types->text), mine.types_text);
    copy_text(algorithm_text(*how), mine.algorithm_text);
    collective_call exchange;
    exchange.kind = call.kind;
    exchange.named = call.named;
    collective c(*of, exchange, around, number, 1);
    std::string differs;
    std::exception_ptr failed;
    try {
        std::vector<collective_claim> all(size);
        all[of->rank()] = mine;
        co_await tell_all(&c, &all);
        differs = differences(all);
        if (call.uneven && differs.empty()) {
            std::vector<counts_finding> found(size);
            const counts_finding own = co_await compare_with_one(&c, &call);
            found[of->rank()] = own;
            co_await tell_all(&c, &found);
            differs = differences(call, found);
        }
    } catch (...) {
        failed = std::current_exception();
    }
    if (failed) co_await give_up(of, c, std::move(failed));
    if (differs.empty()) co_return;
    group_failure why;
    why.why = make_error_code(group_errc::mismatch);
    why.by = of->rank();
    why.text = differs;
    of->revoke(std::move(why));
    throw error(group_errc::mismatch, "group: " + differs);
}

[[nodiscard]] RDMACORO_COLD task<> compare(group_state* of, const collective_call& call, const algorithm* how,
                                           local_stop_token around, std::uint32_t number) {
    return made_or_revoked(*of, [&] { return compare_calls(of, call, how, around, number); });
}

/// With all that a call may need: memory beside the caller's, the comparison between ranks.
RDMACORO_DECL task<> run_carefully(counted_ptr<group_state> of, collective_call call, call_strides strides) {
    if (!of) throw error(errc::invalid_argument, "group: it was default-constructed or moved from");
    const unsigned size = of->size();
    if (size == 1) co_await turn_for_others();  // it waits for no other rank
    if (call.unknown_algorithm) of->refuse(unknown_algorithm_text(call.kind, *call.unknown_algorithm));
    if (call.root >= size)
        of->refuse(std::string(name_of(call.kind)) + ": root " + std::to_string(call.root) + " of " +
                   std::to_string(size) + " ranks");
    own_token own{of->links().owner()};
    const local_stop_token around = co_await own;
    const algorithm* const how = size > 1 ? choose_algorithm(call, *of) : nullptr;
    const std::uint32_t number = call.number != 0 ? call.number : of->next_number();
    if (of->checks && size > 1) co_await compare(of.get(), call, how, around, number);
    call.bind_operation();
    std::optional<packed_rows> packed;
    std::optional<scratch> offsets;
    std::optional<scratch> work;
    std::exception_ptr failed;
    placed_first first;
    try {
        packed.emplace(call, strides, of->rank(), of->links().scratch());
        first = prepare(call, of->rank(), size, how != nullptr && how->from_input, of->links().scratch(),
                        offsets, work);
    } catch (...) {
        failed = std::current_exception();  // entered all the same: the other ranks are told
    }
    collective c(*of, call, around, number, 0);
    try {
        c.check();
        if (!failed && packed->in_use()) {
            co_await packed->pack_in();
            co_await packed->pack_out();
        }
        if (!failed) co_await c.copying({first.to, first.bytes}, {first.from, first.bytes});
        c.check();
        if (how != nullptr && !failed) co_await how->run(c);
        if (!failed && packed->in_use()) co_await packed->put_back();
    } catch (...) {
        failed = std::current_exception();
    }
    if (failed) [[unlikely]]
        co_await give_up(of.get(), c, std::move(failed));
}

/// A call that needs nothing but the caller's memory.
RDMACORO_DECL task<> run_plainly(counted_ptr<group_state> of, collective_call call) {
    const algorithm* const how = choose_algorithm(call, *of);
    const std::uint32_t number = call.number != 0 ? call.number : of->next_number();
    call.bind_operation();
    const placed_first first = place(call, of->rank(), how->from_input);
    own_token own{of->links().owner()};
    collective c(*of, call, co_await own, number, 0);
    std::exception_ptr failed;
    try {
        c.check();
        if (first.bytes != 0) {
            co_await c.copying({first.to, first.bytes}, {first.from, first.bytes});
            c.check();
        }
        co_await how->run(c);
    } catch (...) {
        failed = std::current_exception();
    }
    if (failed) [[unlikely]]
        co_await give_up(of.get(), c, std::move(failed));
}

RDMACORO_DECL task<> run_collective(const counted_ptr<group_state>& of, const collective_call& call) {
    if (of && !of->checks && of->size() > 1 && call.root < of->size() && !call.unknown_algorithm &&
        !needs_memory(call, of->rank())) [[likely]]
        return run_plainly(of, call);
    return run_carefully(of, call, {});
}

RDMACORO_DECL task<> run_strided(const counted_ptr<group_state>& of, const collective_call& call,
                                 const call_strides& strides) {
    return run_carefully(of, call, strides);
}

}  // namespace rdmacoro::detail
