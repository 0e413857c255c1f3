// group_words: what ranks tell each other about a group beside its collectives: that it is revoked, how far they are, and which ranks are left.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/protocol/requests.hpp>
#include <rdmacoro/service/group_failure.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rdmacoro::detail {

enum class word_kind : std::uint8_t {
    revoke,      ///< the group is given up; `why`, `by`, `lost`, `absent`, `text`
    ask,         ///< which collective has this rank entered last?
    entered,     ///< `number`: that one
    shrink_ask,  ///< the sender decides which ranks are left: is the receiver ready?
    shrink_ready,  ///< it is; `lost`: the ranks it has lost, `absent`: those that have left, or let the group go
    shrink_done,    ///< decided; `lost`: all others are left, `number`: the new group's context
    shrink_absent,  ///< the sender has let the group go: it is not left
};
inline constexpr std::uint8_t word_kinds = 7;

/// A word about the group of a context. Ranks are those of the group.
struct group_word {
    std::uint8_t kind = 0;
    std::uint64_t context = 0;
    std::uint64_t number = 0;
    std::uint32_t by = 0;
    std::uint8_t category = 0;  // of `why`
    std::int32_t why = 0;
    std::vector<std::uint32_t> lost{};
    std::vector<std::uint32_t> absent{};
    std::string text{};
};

/// Words have this tag, which is of no context.
inline constexpr tag_type word_tag = 0;
/// Longest word, in bytes.
inline constexpr std::size_t longest_word = std::size_t{1} << 20;

[[nodiscard]] group_word word_of(const group_failure& failure, std::uint64_t context);
[[nodiscard]] group_failure failure_of(const group_word& word);
[[nodiscard]] std::vector<std::byte> encode_word(const group_word& word);
/// Every byte is checked; ranks of `lost` and `absent` are below `ranks`, sorted, and none is there twice.
[[nodiscard]] result<group_word> decode_word(std::span<const std::byte> bytes, unsigned ranks);

// A collective's messages: context, number of the collective in its group, phase within it. Of the number the last bits tell apart what can be on its
// way at a time.
inline constexpr unsigned context_bits = 40;
inline constexpr unsigned phase_bits = 2;
inline constexpr unsigned number_bits = 64 - context_bits - phase_bits;
[[nodiscard]] constexpr tag_type group_tag(std::uint64_t context, std::uint32_t number,
                                           unsigned phase) noexcept {
    const tag_type last = number & ((tag_type{1} << number_bits) - 1);
    return (context << (64 - context_bits)) | (last << phase_bits) | phase;
}
/// All messages of a context.
[[nodiscard]] constexpr tag_match of_context(std::uint64_t context) noexcept {
    return {group_tag(context, 0, 0), ~tag_type{0} << (64 - context_bits)};
}

/// A group is named by one of its ranks, which has not given that name before: no two groups of a job have one context.
inline constexpr unsigned names_bits = 20;
inline constexpr std::uint32_t most_names = (1u << names_bits) - 1;
/// `number`: from 1 to `most_names`. The first one of rank 0 is that of the group of all.
[[nodiscard]] constexpr std::uint64_t context_of(unsigned rank_in_job, std::uint32_t number) noexcept {
    return (std::uint64_t{rank_in_job} << names_bits) | number;
}
inline constexpr std::uint64_t world_context = context_of(0, 1);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/group_words.ipp>
#endif
