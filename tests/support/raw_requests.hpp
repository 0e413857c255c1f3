// Requests of calls that a test writes by itself, as a peer might, and the answers to them.
#pragma once

#include <rdmacoro/service/calls.hpp>

#include "support/calls_pair.hpp"
#include "support/catch.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace rdmacoro::test {

/// A request of `kv::add` as its caller sends it.
struct raw_addition {
    using method_type = std::remove_const_t<decltype(kv::add)>;

    detail::request_head head{method_type::number, method_type::signature, 0};
    std::uint64_t values[2] = {2, 3};
};

/// Asks for 2 + 3 with `time` microseconds left, 0 for no limit, as a caller that does not know the service.
template <class Raw>
task<> ask_to_add(Raw& by, std::uint64_t number, std::uint32_t time = 0) {
    raw_addition sent;
    sent.head.time = time;
    co_await by.send(
        std::as_bytes(std::span(&sent, 1)),
        detail::call_tag(detail::call_kind::request, number, raw_addition::method_type::service) |
            detail::first_call_bit);
}

/// How that request was answered.
template <class Raw>
task<detail::answer_head> answer_to(Raw& at, std::uint64_t number) {
    const message got = co_await timeout(at.recv_lent(detail::call_tag(detail::call_kind::answer, number)),
                                         std::chrono::seconds(30));
    detail::answer_head head{};
    REQUIRE(got.size() >= sizeof head);
    std::memcpy(&head, got.bytes().data(), sizeof head);
    co_return head;
}
inline constexpr auto a_value = static_cast<std::uint32_t>(detail::outcome_kind::value);
inline constexpr auto a_call_error = static_cast<std::uint32_t>(detail::outcome_kind::call_error);

}  // namespace rdmacoro::test
