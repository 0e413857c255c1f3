// How the value of an answer is read.
#pragma once

#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>

#include <cstddef>
#include <cstring>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>

namespace rdmacoro::detail {

/// The value in an answer to `of`, still as bytes. Throws what the handler has ended with, and `call_errc::malformed_answer`.
[[nodiscard]] inline std::span<const std::byte> value_of_answer(const method_facts& of,
                                                                std::span<const std::byte> answer) {
    check_answer(of, answer);
    return answer.subspan(sizeof(answer_head));
}

/// The value that these bytes of an answer to `of` are.
template <class R>
[[nodiscard]] R read_answer(const method_facts& of, std::span<const std::byte> bytes) {
    if constexpr (std::is_void_v<R>) {
        if (!bytes.empty()) [[unlikely]]
            throw_malformed_answer(of, "a value of a method without one");
    } else if constexpr (bytes_are_value<R>()) {
        if (bytes.size() != sizeof(R)) [[unlikely]]
            throw_malformed_answer(of, "another length than its type's");
        R value;
        std::memcpy(std::addressof(value), bytes.data(), sizeof value);
        return value;
    } else {
        R value{};
        if constexpr (row_of_values<const R&>) {  // as `answer::give` sends it
            using element = std::ranges::range_value_t<R>;
            constexpr std::size_t each = sizeof(element);
            if (bytes.size() % each != 0) throw_malformed_answer(of, "a part of an element");
            if constexpr (requires { value.resize(bytes.size()); }) {
                value.resize(bytes.size() / each);
                copy_long(reinterpret_cast<std::byte*>(std::ranges::data(value)), bytes.data(), bytes.size());
            } else {
                for (std::size_t at = 0; at < bytes.size(); at += each) {
                    element one;
                    std::memcpy(&one, bytes.data() + at, each);
                    value.insert(value.end(), one);
                }
            }
        } else {
            decoder from(bytes);
            if (!from.read(value) || from.left() != 0)
                throw_malformed_answer(of, from.why() != nullptr ? from.why() : "more bytes than it has");
        }
        return value;
    }
}

}  // namespace rdmacoro::detail
