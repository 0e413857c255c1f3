// meeting_wire: what the ranks of a job and their rendezvous say to each other, over TCP.
#pragma once

#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/service/codec.hpp>
#include <rdmacoro/service/detail/launcher.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rdmacoro::detail {

/// A message is its length without these five bytes, little endian, its kind, and the encoded value.
enum class meeting_kind : std::uint8_t {
    greeting,  ///< of the server, first
    hello,     ///< of a rank, the answer to it
    welcome,   ///< of the server: the rank is known
    refusal,   ///< of the server: a text; the end
    put,       ///< of a rank: its bytes
    missing,   ///< of the server: which ranks have not come
    all,       ///< of the server: the bytes of all
    lost,      ///< of the server: a text; a rank has gone, and what waits will not end
    bye,       ///< of a rank: a `meeting_end`; it needs nothing more
    ask,       ///< of a rank that waits: it wants to hear again which have not come
};

inline constexpr std::uint32_t meeting_mark = 0x6a6f696e;
inline constexpr std::uint16_t meeting_version = 2;
inline constexpr std::size_t meeting_head = 5;
/// Of a message, without its head: of a rank, and of a server before the rank is known.
inline constexpr std::size_t longest_meeting_message = launcher::most_bytes + 256;

/// Why a rank leaves.
enum class meeting_end : std::uint8_t { has_all, limit };

using meeting_nonce = std::array<std::uint8_t, 16>;

struct meeting_greeting {
    std::uint32_t mark = meeting_mark;
    std::uint16_t version = meeting_version;
    meeting_nonce nonce{};
};
struct meeting_hello {
    std::uint32_t mark = meeting_mark;
    std::uint16_t version = meeting_version;
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    meeting_nonce nonce{};
    std::uint64_t proof = 0;  // of the server's nonce, by the key
};
struct meeting_welcome {
    std::uint64_t proof = 0;  // of the rank's nonce
};
struct meeting_put {
    std::uint32_t exchange = 0;
    std::vector<std::byte> bytes{};
};
struct meeting_missing {
    std::uint32_t exchange = 0;
    std::uint32_t count = 0;
    std::vector<std::uint32_t> ranks{};  // the first of them
};
struct meeting_all {
    std::uint32_t exchange = 0;
    std::vector<std::vector<std::byte>> bytes{};  // by rank
};

/// A whole message.
template <class T>
[[nodiscard]] std::vector<std::byte> meeting_message(meeting_kind kind, const T& value) {
    std::vector<std::byte> all = encode(value);
    const auto bytes = static_cast<std::uint32_t>(all.size());
    std::array<std::byte, meeting_head> head{};
    for (std::size_t n = 0; n < 4; ++n) head[n] = static_cast<std::byte>(bytes >> (8 * n));
    head[4] = static_cast<std::byte>(kind);
    all.insert(all.begin(), head.begin(), head.end());
    return all;
}

/// A message that came.
struct meeting_frame {
    meeting_kind kind{};
    std::span<const std::byte> body;
    /// Of it and its head.
    [[nodiscard]] std::size_t bytes() const noexcept { return meeting_head + body.size(); }
    /// The message, or nothing where a byte is wrong.
    template <class T>
    [[nodiscard]] std::optional<T> as() const {
        result<T> read = decode<T>(body, {.bytes = 64 * body.size() + 4096, .depth = 4});
        if (!read) return {};
        return std::move(*read);
    }
};
/// The first message of `from`; none where it is not whole yet. Throws `errc::protocol_violation` for a kind that there is not and for more
/// than `longest` bytes.
[[nodiscard]] RDMACORO_DECL std::optional<meeting_frame> next_meeting_frame(std::span<const std::byte> from,
                                                                            std::size_t longest);

/// The secret of a job, 16 bytes. Without one every stranger that reaches the rendezvous can be a rank.
class job_key {
public:
    job_key() = default;
    /// Of 32 hexadecimal digits; anything else throws `errc::invalid_argument`. nullptr: no key.
    explicit job_key(const std::string* digits);

    /// The proof for a nonce, which only a holder of the key can make. 0 without a key.
    [[nodiscard]] std::uint64_t prove(std::string_view what, const meeting_nonce& nonce,
                                      std::uint32_t rank) const;
    [[nodiscard]] bool given() const noexcept { return given_; }

private:
    bool given_ = false;
    std::array<std::uint64_t, 2> key_{};
};

/// SipHash-2-4 of J.-P. Aumasson and D. J. Bernstein, INDOCRYPT 2012: a message authentication code of 64 bits.
[[nodiscard]] RDMACORO_DECL std::uint64_t siphash(std::array<std::uint64_t, 2> key,
                                                  std::span<const std::byte> of) noexcept;

/// Random bytes of the system.
[[nodiscard]] RDMACORO_DECL meeting_nonce new_meeting_nonce();

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/meeting_wire.ipp>
#endif
