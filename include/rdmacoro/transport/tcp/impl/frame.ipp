// The frames of a tcp link.
#pragma once

#include <rdmacoro/transport/tcp/frame.hpp>

#include <cstring>

namespace rdmacoro::detail {

RDMACORO_DECL tcp_word tcp_word::load(const std::byte* from) noexcept {
    const auto word = load_number<std::uint32_t>(from);
    return {static_cast<tcp_frame>(word >> 28), word & 0x0fff'ffff};
}

RDMACORO_DECL void tcp_word::store(std::byte* to) const noexcept {
    store_number(to, (static_cast<std::uint32_t>(kind) << 28) | bytes);
}

RDMACORO_DECL std::size_t tcp_word::head_bytes() const noexcept {
    switch (kind) {
        case tcp_frame::message: return bytes <= tcp_most_message ? tcp_message_head : 0;
        case tcp_frame::get_request: return bytes == 0 ? tcp_word_bytes + get_request::wire_bytes : 0;
        case tcp_frame::get_data:
            return bytes > 0 && bytes <= tcp_most_part ? tcp_word_bytes + get_data::wire_bytes : 0;
        case tcp_frame::put_data: return bytes <= tcp_most_part ? tcp_word_bytes + put_data::wire_bytes : 0;
        case tcp_frame::one_sided_status:
            return bytes == 0 ? tcp_word_bytes + one_sided_status::wire_bytes : 0;
    }
    return 0;
}

RDMACORO_DECL tcp_greeting::bytes tcp_greeting::store() const noexcept {
    bytes to{};
    std::memcpy(to.data(), magic, magic_bytes);
    store_number(to.data() + 12, version);
    store_number(to.data() + 16, most_message);
    store_number(to.data() + 24, nonce);
    return to;
}

RDMACORO_DECL tcp_greeting tcp_greeting::load(const bytes& from) noexcept {
    return {load_number<std::uint32_t>(from.data() + 12), load_number<std::uint32_t>(from.data() + 16),
            load_number<std::uint64_t>(from.data() + 24)};
}

RDMACORO_DECL bool tcp_greeting::could_be(const bytes& from, std::size_t have) noexcept {
    return std::memcmp(from.data(), magic, std::min(have, magic_bytes)) == 0;
}

}  // namespace rdmacoro::detail
