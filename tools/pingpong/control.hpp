// The control messages that the two sides exchange around the measured ones.
//
//   connecting side                    listening side
//     plan  ------------------------------>            once, when connected
//           <------------------------------  answer
//           <------------------------------  place     for each further thread
//     exchange  -------------------------->            for each row, and for each trial that sizes one
//           <------------------------------  ready     memory is there (and how to reach it one-sided)
//           <=========  messages  =========>           as the exchange defines; see measure.hpp
//           <------------------------------  done      findings of the listening side
//     bye  ------------------------------->            once
#pragma once

#include "failure.hpp"
#include "test_kind.hpp"

#include <rdmacoro/memory/region.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace pingpong {

/// Grows with every change of these messages, or of the number of messages that either side sends.
inline constexpr std::uint64_t control_version = 4;

inline constexpr std::uint64_t data_tag = 1;
inline constexpr std::uint64_t ack_tag = 2;
inline constexpr std::uint64_t control_tag = 3;
inline constexpr std::uint64_t never_tag = 4;  ///< no message has it

enum class control_kind : std::uint64_t {
    plan = 1,
    answer,
    exchange,
    ready,
    step,
    stepped,
    done,
    bye,
    place
};

// Each is made of 64-bit fields only, and has its kind.

/// Settings of the whole run.
struct plan_message {
    static constexpr control_kind kind = control_kind::plan;
    std::uint64_t idle;  ///< idle_kind for the listening side, unless its command line sets another
    std::uint64_t timeout_seconds;
    std::uint64_t
        threads;  ///< connections that are measured at a time; each of the further ones sends a plan with 1
};

struct answer_message {
    static constexpr control_kind kind = control_kind::answer;
    std::uint64_t cpu_plus_one;  ///< that the listening side is pinned to; 0: to none
    std::uint64_t idle;          ///< what it idles by
};

/// Where a further thread of the listening side listens: what stands behind the last colon of its address. The client puts it behind
/// that of the address that it knows, as the listening side may not know the name by which it is reached.
struct place_message {
    static constexpr control_kind kind = control_kind::place;
    std::array<std::uint64_t, 13> text;  ///< ends with zeros
};

/// One exchange of messages.
struct exchange_message {
    static constexpr control_kind kind = control_kind::exchange;
    std::uint64_t phase;  ///< its number within the run; makes its patterns its own
    test_kind test;
    std::uint64_t bytes;   ///< of each message
    std::uint64_t count;   ///< messages (each way, where both send), a multiple of `window`
    std::uint64_t window;  ///< messages outstanding
    std::uint64_t
        buffers;  ///< that the messages of a window take turns in, at each side; `window` when verifying
    std::uint64_t ack_every;  ///< windows between two acknowledgements of the receiving side
    std::uint64_t verify;     ///< 1: every payload is a pattern of its own, and is checked
    std::uint64_t spoil;      ///< index of the message that gets a wrong byte, to try the check; or `nothing`

    static constexpr std::uint64_t nothing = ~std::uint64_t{0};
    [[nodiscard]] std::uint64_t windows() const noexcept { return count / window; }
};

struct ready_message {
    static constexpr control_kind kind = control_kind::ready;
    std::array<std::uint64_t, 4> region;  ///< a remote_region

    [[nodiscard]] rdmacoro::remote_region remote() const noexcept {
        return std::bit_cast<rdmacoro::remote_region>(region);
    }
};

/// One-sided tests. When verifying: prepare window `number`, or check it. Now and then: `number` gets or puts are done. And: the exchange is
/// over.
struct step_message {
    static constexpr control_kind kind = control_kind::step;
    enum class what : std::uint64_t { prepare, check, end, progress } ask;
    std::uint64_t number;
};
struct stepped_message {
    static constexpr control_kind kind = control_kind::stepped;
};

/// Wrong payloads that one side found.
struct findings {
    std::uint64_t wrong;    ///< messages
    std::uint64_t message;  ///< the first of them
    std::uint64_t offset;   ///< of its first wrong byte
};

struct done_message {
    static constexpr control_kind kind = control_kind::done;
    findings found;
};

struct bye_message {
    static constexpr control_kind kind = control_kind::bye;
    std::uint64_t failed;  ///< 1: the connecting side gives up
};

/// `address` behind its last colon. Throws `run_error` where that is too long.
[[nodiscard]] place_message place_of(const std::string& address);
/// The address at `place`, of the peer that was reached at `known`.
[[nodiscard]] std::string address_at(const place_message& place, const std::string& known);

/// A message as it travels: little-endian words, the first two of which are magic, version and kind.
using control_bytes = std::array<std::byte, 16 * 8>;

namespace detail {
inline constexpr std::uint64_t magic = 0x676e6f70676e6970;  // "pingpong"

[[nodiscard]] inline std::uint64_t little(std::uint64_t word) noexcept {
    if constexpr (std::endian::native == std::endian::big) return __builtin_bswap64(word);
    return word;
}
inline void put_word(control_bytes& to, std::size_t index, std::uint64_t word) noexcept {
    word = little(word);
    std::memcpy(to.data() + 8 * index, &word, 8);
}
[[nodiscard]] inline std::uint64_t get_word(const control_bytes& from, std::size_t index) noexcept {
    std::uint64_t word = 0;
    std::memcpy(&word, from.data() + 8 * index, 8);
    return little(word);
}
}  // namespace detail

template <class Message>
[[nodiscard]] control_bytes encode(const Message& message) noexcept {
    control_bytes raw{};
    detail::put_word(raw, 0, detail::magic);
    detail::put_word(raw, 1, control_version << 32 | static_cast<std::uint64_t>(Message::kind));
    if constexpr (!std::is_empty_v<Message>) {
        constexpr std::size_t words = sizeof(Message) / 8;
        static_assert(sizeof(Message) % 8 == 0 && words + 2 <= sizeof raw / 8);
        const auto fields = std::bit_cast<std::array<std::uint64_t, words>>(message);
        for (std::size_t i = 0; i < words; ++i) detail::put_word(raw, 2 + i, fields[i]);
    }
    return raw;
}

/// The kind of a message that came. Throws `run_error` when it is none, or of another version.
[[nodiscard]] control_kind kind_of(const control_bytes& raw, std::size_t bytes);

/// Throws as `kind_of`, and when it is another kind.
template <class Message>
[[nodiscard]] Message decode(const control_bytes& raw, std::size_t bytes) {
    if (kind_of(raw, bytes) != Message::kind)
        throw run_error("the peer sent an unexpected message; is it this version of pingpong?");
    if constexpr (std::is_empty_v<Message>) {
        return {};
    } else {
        std::array<std::uint64_t, sizeof(Message) / 8> fields{};
        for (std::size_t i = 0; i < fields.size(); ++i) fields[i] = detail::get_word(raw, 2 + i);
        return std::bit_cast<Message>(fields);
    }
}

}  // namespace pingpong
