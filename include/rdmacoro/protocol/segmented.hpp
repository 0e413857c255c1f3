// segmented: a long message in pieces, announced first; also a synchronous message of any length.
//
//   sender                               receiver
//     | -- announce (length, flags) -----> |   matched, or stored with room for the pieces before `proceed`
//     | -- piece -- piece -- ... --------> |   up to a quarter of the budget: paid for with credit
//     | <------------------- proceed ----- |   when matched; only for longer or synchronous messages
//     | -- piece -- piece -- ... --------> |   straight to their place
//
//     | <---- taken ---------------------- |   answer to a piece with a flag, which says how many of them are behind
//
//   given up:  | -- abandon -> |  <- gone -- |   after which the stream's number is free again
#pragma once

#include <rdmacoro/protocol/detail/segmented_engine.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rdmacoro {

/// Sends a message of any length as an announcement and pieces of the transport's `segment_bytes`. The pieces that may
/// arrive before a receive is posted, a quarter of the receiver's budget at most, are paid for with credit; the rest
/// waits for the receiver's `proceed` and then goes to the receive's buffer without being stored. Messages take turns, a
/// piece each, and other messages pass them: a link that stores what is sent holds at most 64 KiB of pieces. A synchronous send ends when its message is matched.
template <class Limit = up_to_transport>
struct segmented {
    static constexpr std::string_view name = "segmented";
    static constexpr std::string_view description =
        "announced, then sent in pieces of the transport's best size";
    static constexpr std::uint8_t kinds = 6;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities&) noexcept {
        return Limit::bytes == 0 ? static_cast<std::size_t>(-1) : Limit::bytes;
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return m.bytes <= longest(link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept { return Limit::bytes; }

    /// Streams of one side at a time; more sends wait their turn.
    static constexpr std::uint32_t most_streams = detail::segmented_engine::most_streams;

    template <class Context>
    class engine : public detail::segmented_engine {
    public:
        explicit engine(Context& context) noexcept
            : segmented_engine(context, Context::template first_kind<segmented>(),
                               Context::template index_of<segmented>()) {}
    };
};

}  // namespace rdmacoro
