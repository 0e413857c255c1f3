// Bodies of node_card.hpp.
#pragma once

#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/node_card.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fstream>

#include <sys/random.h>
#include <sys/stat.h>

namespace rdmacoro {

namespace detail {

inline constexpr std::uint32_t card_mark = 0x64726163;  // "card"
inline constexpr std::uint16_t card_version = 1;
/// The limits of decoding a card: a list of texts of one byte each is the worst.
inline constexpr decode_limits card_limits{.bytes = 64 * node_card::most_bytes, .depth = 4};

struct card_on_wire {
    std::uint32_t mark = card_mark;
    std::uint16_t version = card_version;
    node_card card;
};

/// The exact length of an encoded card.
RDMACORO_COLD std::size_t encoded_bytes(const node_card& of) noexcept {
    const auto length_bytes = [](std::size_t count) noexcept -> std::size_t {
        std::size_t bytes = 1;
        for (; count >= 0x80; count >>= 7) ++bytes;
        return bytes;
    };
    std::size_t bytes = sizeof(std::uint32_t) + sizeof(std::uint16_t) + sizeof(node_id) + sizeof(generation) +
                        sizeof(host_identity::boot) + sizeof(host_identity::network) +
                        length_bytes(of.urls.size());
    for (const std::string& url : of.urls) bytes += length_bytes(url.size()) + url.size();
    return bytes;
}

}  // namespace detail

RDMACORO_COLD generation new_generation() {
    std::uint64_t drawn = 0;
    while (drawn == 0) {
        if (::getrandom(&drawn, sizeof drawn, 0) != static_cast<ssize_t>(sizeof drawn) && errno != EINTR)
            throw error(std::error_code(errno, std::system_category()), "getrandom");
    }
    return generation{drawn};
}

RDMACORO_COLD std::string to_string(generation which) {
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(which));
    return text;
}

RDMACORO_COLD std::string host_identity::text() const {
    if (!known()) return "unknown";
    std::string all;
    char two[3];
    for (const std::uint8_t byte : boot) {
        std::snprintf(two, sizeof two, "%02x", byte);
        all += two;
    }
    return all + '/' + std::to_string(network);
}

RDMACORO_COLD host_identity host_identity::own() {
    host_identity here;
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string digits;
    file >> digits;
    std::erase(digits, '-');
    struct stat space{};
    if (digits.size() != 2 * here.boot.size() || ::stat("/proc/self/ns/net", &space) != 0) return {};
    for (std::size_t n = 0; n < here.boot.size(); ++n) {
        unsigned byte = 0;
        if (std::sscanf(digits.c_str() + 2 * n, "%2x", &byte) != 1) return {};
        here.boot[n] = static_cast<std::uint8_t>(byte);
    }
    here.network = static_cast<std::uint64_t>(space.st_ino);
    return here;
}

RDMACORO_COLD const char* node_card::fault() const noexcept {
    if (id == 0) return "0 is no node's id";
    if (detail::encoded_bytes(*this) > most_bytes) return "the card is longer than 1024 bytes";
    for (const std::string& url : urls) {
        const std::size_t end = url.find("://");
        if (end == 0 || end == std::string::npos) return "the card has a URL without a scheme";
        if (std::any_of(url.begin(), url.end(), [](char c) { return c <= ' ' || c > '~'; }))
            return "the card has a URL that is not of printable letters";
    }
    return nullptr;
}

RDMACORO_COLD std::vector<std::byte> encode_card(const node_card& from) {
    if (const char* const why = from.fault()) throw error(errc::invalid_argument, why);
    return encode(detail::card_on_wire{.card = from});
}

RDMACORO_COLD result<node_card> decode_card(std::span<const std::byte> bytes) {
    const auto refused = std::make_error_code(std::errc::bad_message);
    if (bytes.size() > node_card::most_bytes) return refused;
    auto read = decode<detail::card_on_wire>(bytes, detail::card_limits);
    if (!read) return refused;
    if (read->mark != detail::card_mark || read->version != detail::card_version ||
        read->card.fault() != nullptr)
        return refused;
    return std::move(read->card);
}

}  // namespace rdmacoro
