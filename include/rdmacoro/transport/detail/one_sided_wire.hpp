// Wire layouts of get and put where the peer's scheduler serves them, the same for every transport that needs it.
//
// Each direction of a link carries requests and the answers to the other side's requests. An operation is named by an
// index that its initiator chose; it stays the operation's until its last frame has come. At most `most_outstanding`
// operations of one side are unanswered at any time; more is a violation.
//
//   get:  get_request ->            <- get_data ... get_data, one_sided_status
//   put:  put_data ... put_data ->  <- one_sided_status
//
// Each operation ends with exactly one status, and only then: data of a get that came before an error is worth nothing.
// After `ok` all bytes that were asked for have come. Bytes of several gets are not mixed.
// Frames of one put follow each other without frames of another put between them. A put that is given up ends early with
// a frame of no data and `remaining` 0; it is answered as well. All numbers are little-endian.
#pragma once

#include <rdmacoro/coro/error.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmacoro::detail {

/// Stores and loads numbers of the wire on machines of any byte order.
template <class Number>
[[nodiscard]] constexpr Number little_endian(Number value) noexcept {
    if constexpr (std::endian::native == std::endian::little) {
        return value;
    } else {
        Number swapped = 0;
        for (std::size_t i = 0; i < sizeof(Number); ++i) {
            swapped = static_cast<Number>((swapped << 8) | ((value >> (8 * i)) & 0xff));
        }
        return swapped;
    }
}
template <class Number>
void store_number(std::byte* to, Number value) noexcept {
    value = little_endian(value);
    std::memcpy(to, &value, sizeof value);
}
template <class Number>
[[nodiscard]] Number load_number(const std::byte* from) noexcept {
    Number value;
    std::memcpy(&value, from, sizeof value);
    return little_endian(value);
}

/// Most unanswered operations of one side of one link; the other side must be ready to remember so many.
inline constexpr std::size_t most_outstanding = 1024;

/// Asks for `length` bytes at `address`.
struct get_request {
    static constexpr std::size_t wire_bytes = 32;

    std::uint64_t key;
    std::uint64_t address;
    std::uint64_t length;
    std::uint32_t operation;

    void store(std::byte* to) const noexcept {
        store_number(to, key);
        store_number(to + 8, address);
        store_number(to + 16, length);
        store_number(to + 24, operation);
        store_number(to + 28, std::uint32_t{0});
    }
    [[nodiscard]] static get_request load(const std::byte* from) noexcept {
        return {load_number<std::uint64_t>(from), load_number<std::uint64_t>(from + 8),
                load_number<std::uint64_t>(from + 16), load_number<std::uint32_t>(from + 24)};
    }
};

/// Stands before the next bytes of a get's answer.
struct get_data {
    static constexpr std::size_t wire_bytes = 8;

    std::uint32_t operation;

    void store(std::byte* to) const noexcept {
        store_number(to, operation);
        store_number(to + 4, std::uint32_t{0});
    }
    [[nodiscard]] static get_data load(const std::byte* from) noexcept {
        return {load_number<std::uint32_t>(from)};
    }
};

/// Stands before the next bytes of a put. `address` is where they go; `remaining` counts from there to the put's end and
/// so includes them: the last frame is the one with as many bytes as remain.
struct put_data {
    static constexpr std::size_t wire_bytes = 32;

    std::uint64_t key;
    std::uint64_t address;
    std::uint64_t remaining;
    std::uint32_t operation;

    void store(std::byte* to) const noexcept {
        store_number(to, key);
        store_number(to + 8, address);
        store_number(to + 16, remaining);
        store_number(to + 24, operation);
        store_number(to + 28, std::uint32_t{0});
    }
    [[nodiscard]] static put_data load(const std::byte* from) noexcept {
        return {load_number<std::uint64_t>(from), load_number<std::uint64_t>(from + 8),
                load_number<std::uint64_t>(from + 16), load_number<std::uint32_t>(from + 24)};
    }
};

/// Ends an operation.
struct one_sided_status {
    static constexpr std::size_t wire_bytes = 8;

    std::uint32_t operation;
    errc outcome;

    void store(std::byte* to) const noexcept {
        store_number(to, operation);
        store_number(to + 4, encode(outcome));
    }
    [[nodiscard]] static one_sided_status load(const std::byte* from) noexcept {
        return {load_number<std::uint32_t>(from), decode(load_number<std::uint32_t>(from + 4))};
    }

private:
    // Numbers of the wire, apart from errc's so that a new error code does not change them.
    static constexpr std::uint32_t encode(errc outcome) noexcept {
        switch (outcome) {
            case errc::ok: return 0;
            case errc::bad_key: return 1;
            case errc::out_of_bounds: return 2;
            case errc::access_denied: return 3;
            case errc::canceled: return 4;
            default: return 5;
        }
    }
    static constexpr errc decode(std::uint32_t number) noexcept {
        switch (number) {
            case 0: return errc::ok;
            case 1: return errc::bad_key;
            case 2: return errc::out_of_bounds;
            case 3: return errc::access_denied;
            case 4: return errc::canceled;
            case 5: return errc::no_resources;
            default: return errc::protocol_violation;
        }
    }
};

}  // namespace rdmacoro::detail
