// The wire format of calls: the tags of their messages and the heads of requests, answers and notes.
//
// Tags. The highest bit is set in all of them; tags without it are the program's.
//   63 | 62..60 kind | 59 first | 58..44 service | 43..0 number of the call, chosen by the caller; its highest bit: the caller writes a
//   stream
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

enum class call_kind : std::uint8_t {
    request,      ///< to the service; an answer comes
    one_way,      ///< to the service; nothing comes
    open,         ///< to the service; items come
    note = 4,     ///< about a call; `note_head`
    answer,       ///< to the caller
    item,         ///< to the caller: an element of a stream, or its end
    caller_item,  ///< to the service: an element of the stream that the caller writes, or its end
};

inline constexpr unsigned call_number_bits = 44;
inline constexpr tag_type call_number_mask = (tag_type{1} << call_number_bits) - 1;
/// Of a call's number: its caller writes a stream. Exactly one end of it comes, whatever becomes of the call.
inline constexpr std::uint64_t caller_writes_bit = std::uint64_t{1} << (call_number_bits - 1);
inline constexpr tag_type first_call_bit = tag_type{1} << 59;
inline constexpr tag_type calls_bit = tag_type{1} << 63;

[[nodiscard]] constexpr tag_type call_tag(call_kind kind, std::uint64_t number,
                                          std::uint16_t service = 0) noexcept {
    return calls_bit | (static_cast<tag_type>(kind) << 60) | (tag_type{service} << call_number_bits) |
           (number & call_number_mask);
}
[[nodiscard]] constexpr std::uint64_t call_number(tag_type tag) noexcept { return tag & call_number_mask; }
[[nodiscard]] constexpr call_kind kind_of_call(tag_type tag) noexcept {
    return static_cast<call_kind>((tag >> 60) & 7);
}
/// A message that belongs to a request: its answer or an item.
[[nodiscard]] constexpr call_kind kind_of_answer(call_kind of) noexcept {
    return of == call_kind::open ? call_kind::item : call_kind::answer;
}

inline constexpr tag_type kind_bits = tag_type{7} << 60;
inline constexpr tag_type request_bits = tag_type{4} << 60;  // 0 in all kinds of requests
inline constexpr tag_type service_bits = tag_type{0x7fff} << call_number_bits;

/// Requests of all kinds to a service, first ones included.
[[nodiscard]] constexpr tag_match requests_to(std::uint16_t service) noexcept {
    return {call_tag(call_kind::request, 0, service), calls_bit | request_bits | service_bits};
}
/// Requests to services of which the peer does not know yet whether they are here.
inline constexpr tag_match first_requests{call_tag(call_kind::request, 0) | first_call_bit,
                                          calls_bit | request_bits | first_call_bit};
/// The request of one call, whatever its service, if it is only known by its number, or of this tag: that is found in constant time.
[[nodiscard]] constexpr tag_match request_of(std::uint64_t number_or_tag) noexcept {
    if ((number_or_tag & (calls_bit | request_bits)) == calls_bit) return number_or_tag;
    return {call_tag(call_kind::request, number_or_tag), calls_bit | request_bits | call_number_mask};
}
/// Requests that are not first ones, to any service.
inline constexpr tag_match later_requests{call_tag(call_kind::request, 0),
                                          calls_bit | request_bits | first_call_bit};
[[nodiscard]] constexpr std::uint16_t service_of(tag_type tag) noexcept {
    return static_cast<std::uint16_t>((tag & service_bits) >> call_number_bits);
}
/// No message has it: a receive of it ends with the link.
inline constexpr tag_type no_message = calls_bit | kind_bits | first_call_bit;
inline constexpr tag_match notes{call_tag(call_kind::note, 0), calls_bit | kind_bits};

/// The first bytes of a request; the arguments' encoding follows.
struct request_head {
    std::uint64_t method;     ///< number of its name
    std::uint32_t signature;  ///< of its types
    std::uint32_t time;       ///< what is left of its time, in microseconds; 0: no limit
};
static_assert(sizeof(request_head) == 16);

/// The first bytes of an answer and of a message with items, whichever side writes it.
struct answer_head {
    std::uint32_t outcome;  ///< `outcome_kind`
    std::int32_t code;      ///< of an error; with items how many they are
};
enum class outcome_kind : std::uint32_t {
    value,  ///< its encoding follows, a row of values without its length; or those of the items, one after the other
    end,            ///< of a stream
    call_error,     ///< a `call_errc`; text follows, as for all errors
    toolkit_error,  ///< an `errc`
    system_error,   ///< of `std::system_category`
    generic_error,  ///< of `std::generic_category`
};
static_assert(sizeof(answer_head) == 8);
inline constexpr std::size_t longest_error_text = 240;

/// A message about a call; its number is in the tag. Those of canceled calls come in rows.
struct note_head {
    std::uint32_t kind;  ///< `note_kind`
    std::uint32_t
        amount;  ///< of credit, in items; the service's number; of a canceled call `kind_of_answer`, with `perhaps_bit`
    std::uint64_t
        method;  ///< that was refused; of credit, in bytes; of a canceled call the tag of its request, or its number
};
/// The request was canceled while it was sent: an answer is sent though it is not here.
inline constexpr std::uint32_t perhaps_bit = 256;
enum class note_kind : std::uint32_t {
    cancel,   ///< to the service: the caller waits no longer
    credit,   ///< to the service: the reader of a stream has room for so many more items
    known,    ///< to the caller: this service is here
    refused,  ///< to the caller: a one-way call could not be dispatched; `amount` is a `call_errc`
    room,     ///< to the caller: the handler has room for so many more items
    left,     ///< to the caller: the handler reads no more items
};
static_assert(sizeof(note_head) == 16);

/// Items of a stream that its writer may send before the reader has taken the first.
inline constexpr std::uint64_t stream_window = 128;
/// Bytes of their encodings; the last of them may go beyond that.
inline constexpr std::uint64_t stream_window_bytes = std::uint64_t{1} << 20;

/// Remaining time as it travels, in microseconds. 0 is no limit, as is more than 32 bits hold: an hour and 11 minutes.
[[nodiscard]] constexpr std::uint32_t time_to_send(std::chrono::nanoseconds left) noexcept {
    const auto micros = left.count() <= 0 ? 1 : left.count() / 1000 + (left.count() % 1000 != 0 ? 1 : 0);
    return micros > 0xffffffff ? 0 : static_cast<std::uint32_t>(micros);
}
/// The same for what may take until then, by the clock of the scheduler that runs; its zero: no limit.
[[nodiscard]] inline std::uint32_t time_to_send(time_point until) noexcept {
    return until == time_point() ? 0 : time_to_send(until - scheduler::current()->now());
}

}  // namespace rdmacoro::detail
