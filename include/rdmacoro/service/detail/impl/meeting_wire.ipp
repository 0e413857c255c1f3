// Frames, and the proof that a rank holds the job's key.
#pragma once

#include <rdmacoro/service/detail/meeting_wire.hpp>

#include <bit>
#include <cerrno>
#include <charconv>

#include <sys/random.h>

namespace rdmacoro::detail {

RDMACORO_COLD std::optional<meeting_frame> next_meeting_frame(std::span<const std::byte> from,
                                                              std::size_t longest) {
    if (from.size() < meeting_head) return {};
    std::size_t bytes = 0;
    for (std::size_t n = 0; n < 4; ++n) bytes |= std::to_integer<std::size_t>(from[n]) << (8 * n);
    const auto kind = std::to_integer<std::uint8_t>(from[4]);
    if (bytes > longest || kind > static_cast<std::uint8_t>(meeting_kind::ask))
        throw_error(errc::protocol_violation, "what came is no message of a rendezvous");
    if (from.size() < meeting_head + bytes) return {};
    return meeting_frame{static_cast<meeting_kind>(kind), from.subspan(meeting_head, bytes)};
}

RDMACORO_COLD job_key::job_key(const std::string* digits) : given_(digits != nullptr) {
    if (digits == nullptr) return;
    constexpr std::size_t half = 16;
    bool right = digits->size() == 2 * half;
    for (std::size_t n = 0; right && n < key_.size(); ++n) {
        const char* const first = digits->data() + n * half;
        const auto read = std::from_chars(first, first + half, key_[n], 16);
        right = read.ec == std::errc() && read.ptr == first + half;
    }
    // Its value is a secret, and not part of the text.
    if (!right) throw_error(errc::invalid_argument, "RDMACORO_KEY is not of 32 hexadecimal digits");
}
RDMACORO_COLD std::uint64_t job_key::prove(std::string_view what, const meeting_nonce& nonce,
                                           std::uint32_t rank) const {
    if (!given_) return 0;
    encoder text;
    text.write(std::string(what));
    text.write(nonce);
    text.write(rank);
    const std::vector<std::byte> bytes = text.bytes();
    return siphash(key_, bytes);
}

RDMACORO_COLD std::uint64_t siphash(std::array<std::uint64_t, 2> key,
                                    std::span<const std::byte> of) noexcept {
    std::array<std::uint64_t, 4> v = {key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
                                      key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573};
    const auto round = [&v] {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = std::rotl(v[1], 13) ^ v[0];
        v[3] = std::rotl(v[3], 16) ^ v[2];
        v[0] = std::rotl(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = std::rotl(v[1], 17) ^ v[2];
        v[3] = std::rotl(v[3], 21) ^ v[0];
        v[2] = std::rotl(v[2], 32);
    };
    const auto word = [&](std::size_t from, std::size_t bytes) {
        std::uint64_t value = 0;
        for (std::size_t n = 0; n < bytes; ++n)
            value |= std::to_integer<std::uint64_t>(of[from + n]) << (8 * n);
        return value;
    };
    const auto mix = [&](std::uint64_t with) {
        v[3] ^= with;
        round();
        round();
        v[0] ^= with;
    };
    const std::size_t whole = of.size() / 8 * 8;
    for (std::size_t n = 0; n < whole; n += 8) mix(word(n, 8));
    mix(word(whole, of.size() - whole) | static_cast<std::uint64_t>(of.size()) << 56);
    v[2] ^= 0xff;
    for (int n = 0; n < 4; ++n) round();
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

RDMACORO_COLD meeting_nonce new_meeting_nonce() {
    meeting_nonce drawn{};
    while (::getrandom(drawn.data(), drawn.size(), 0) != static_cast<ssize_t>(drawn.size())) {
        if (errno != EINTR) throw error(std::error_code(errno, std::system_category()), "getrandom");
    }
    return drawn;
}

}  // namespace rdmacoro::detail
