// How the value of an answer is read.
#pragma once

#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>

#include <cstddef>
#include <cstring>
#include <ranges>
#include <span>

namespace rdmacoro::detail {

/// The value in an answer to `of`, still as bytes. Throws what the handler has ended with, and `call_errc::malformed_answer`.
[[nodiscard]] inline std::span<const std::byte> value_of_answer(const method_facts& of,
                                                                std::span<const std::byte> answer) {
    answer_head first{};
    if (answer.size() < sizeof first) throw_malformed_answer(of, "an answer without a head");
    std::memcpy(&first, answer.data(), sizeof first);
    if (first.outcome != static_cast<std::uint32_t>(outcome_kind::value)) throw_answer(of, answer);
    return answer.subspan(sizeof first);
}

/// The value that these bytes of an answer to `of` are.
template <class R>
[[nodiscard]] R read_answer(const method_facts& of, std::span<const std::byte> bytes) {
    R value{};
    if constexpr (row_of_values<const R&> && requires { value.resize(bytes.size()); }) {
        constexpr std::size_t each = sizeof(std::ranges::range_value_t<R>);
        if (bytes.size() % each != 0) throw_malformed_answer(of, "a part of an element");
        value.resize(bytes.size() / each);
        if (!bytes.empty()) std::memcpy(std::ranges::data(value), bytes.data(), bytes.size());
    } else {
        decoder from(bytes);
        if (!from.read(value) || from.left() != 0)
            throw_malformed_answer(of, from.why() != nullptr ? from.why() : "more bytes than it has");
    }
    return value;
}

}  // namespace rdmacoro::detail
