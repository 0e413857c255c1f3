// The tests that pingpong knows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pingpong {

/// Travels between the two sides as a number: new kinds go to the end.
enum class test_kind : std::uint64_t {
    latency,        ///< half a round trip of one message
    rate,           ///< a window of sends outstanding, one way; short messages
    bandwidth,      ///< the same; long messages
    bidirectional,  ///< both sides send and receive at a time
    get,            ///< one-sided reads of the listening side's memory
    put,            ///< one-sided writes to it
    call,           ///< calls of the listening side's method, with an answer of the request's size
    cast,           ///< calls without an answer
    stream,         ///< a stream of values that the listening side writes
};

struct test_facts {
    test_kind kind;
    std::string_view name;
    std::string_view default_sizes;  ///< in the form that --sizes takes
    std::size_t default_window;
    const char* sample;  ///< the meaning of one time in the table
};

inline constexpr std::array<test_facts, 9> all_tests{{
    {test_kind::latency, "latency", "8,64,1K,8K,64K,1M", 1, "half a round trip"},
    {test_kind::rate, "rate", "8", 64, "a message, mean of a window"},
    {test_kind::bandwidth, "bandwidth", "64K,1M", 64, "a message, mean of a window"},
    {test_kind::bidirectional, "bidirectional", "8,64K,1M", 64, "a message each way, mean of a window"},
    {test_kind::get, "get", "8,4K,64K,1M", 1, "a get; a window's mean above one outstanding"},
    {test_kind::put, "put", "8,4K,64K,1M", 1, "a put; a window's mean above one outstanding"},
    {test_kind::call, "call", "8,1K,64K", 1, "a round trip, counted as one message"},
    {test_kind::cast, "cast", "8,1K", 64, "a cast, mean of a window"},
    {test_kind::stream, "stream", "8,1K,64K", 64, "an element, mean of a window"},
}};

[[nodiscard]] constexpr const test_facts& facts_of(test_kind kind) {
    return all_tests[static_cast<std::size_t>(kind)];
}
[[nodiscard]] constexpr bool is_one_sided(test_kind kind) {
    return kind == test_kind::get || kind == test_kind::put;
}
/// Whether a message there is followed by one back, so that half the time of both is one's.
[[nodiscard]] constexpr bool goes_there_and_back(test_kind kind, std::uint64_t window) {
    return kind == test_kind::latency || (kind == test_kind::cast && window == 1);
}
/// Whether it goes through the toolkit's services.
[[nodiscard]] constexpr bool is_service(test_kind kind) {
    return kind == test_kind::call || kind == test_kind::cast || kind == test_kind::stream;
}

}  // namespace pingpong
