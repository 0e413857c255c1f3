#pragma once

// Values as the bytes of a message, and back.

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/memory/bytes.hpp>

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace rdmacoro::test {

using rdmacoro::bytes_of;

/// The bytes of a text, without the end that a literal has.
[[nodiscard]] inline std::span<const std::byte> bytes_of_text(std::string_view text) noexcept {
    return std::as_bytes(std::span(text.data(), text.size()));
}
/// Bytes given as numbers.
[[nodiscard]] inline std::vector<std::byte> raw(std::initializer_list<int> bytes) {
    std::vector<std::byte> made;
    for (const int b : bytes) made.push_back(static_cast<std::byte>(b));
    return made;
}
/// The bytes of a trivially copyable value, to be received into.
template <class Value>
    requires std::is_trivially_copyable_v<Value>
[[nodiscard]] std::span<std::byte> room_for(Value& value) noexcept {
    return std::as_writable_bytes(std::span(&value, 1));
}

}  // namespace rdmacoro::test
