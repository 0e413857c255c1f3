// Bodies of group_words.hpp.
#pragma once

#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/group_words.hpp>

#include <algorithm>
#include <functional>

namespace rdmacoro::detail {

enum word_category : std::uint8_t { of_toolkit, of_group, of_system, word_categories };

RDMACORO_COLD group_word word_of(const group_failure& failure, std::uint64_t context) {
    group_word word;
    word.kind = static_cast<std::uint8_t>(word_kind::revoke);
    word.context = context;
    word.by = failure.by;
    word.category = failure.why.category() == error_category()   ? of_toolkit
                    : failure.why.category() == group_category() ? of_group
                                                                 : of_system;
    word.why = failure.why.value();
    word.lost.assign(failure.lost.begin(), failure.lost.end());
    word.absent.assign(failure.absent.begin(), failure.absent.end());
    word.text = failure.text.substr(0, 4096);
    return word;
}

RDMACORO_COLD group_failure failure_of(const group_word& word) {
    group_failure failure;
    const std::error_category& category = word.category == of_toolkit ? error_category()
                                          : word.category == of_group ? group_category()
                                                                      : std::system_category();
    failure.why = {word.why, category};
    failure.by = word.by;
    failure.lost.assign(word.lost.begin(), word.lost.end());
    failure.absent.assign(word.absent.begin(), word.absent.end());
    failure.text = word.text;
    return failure;
}

RDMACORO_COLD std::vector<std::byte> encode_word(const group_word& word) { return encode(word); }

RDMACORO_COLD result<group_word> decode_word(std::span<const std::byte> bytes, unsigned ranks) {
    constexpr decode_limits limits{.bytes = 4 * longest_word, .depth = 4};
    result<group_word> read = decode<group_word>(bytes, limits);
    if (!read) return std::make_error_code(std::errc::bad_message);
    const auto are_ranks = [ranks](const std::vector<std::uint32_t>& list) {
        return std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end() &&
               (list.empty() || list.back() < ranks);
    };
    if (read->kind >= word_kinds || read->context == 0 || read->context >> context_bits != 0 ||
        read->category >= word_categories || read->by >= ranks || !are_ranks(read->lost) ||
        !are_ranks(read->absent))
        return std::make_error_code(std::errc::bad_message);
    return read;
}

}  // namespace rdmacoro::detail
