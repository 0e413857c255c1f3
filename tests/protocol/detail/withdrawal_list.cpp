#include <rdmacoro/protocol/detail/withdrawal_list.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <vector>

namespace test_protocol_detail_withdrawal_list {

using namespace rdmacoro;

TEST_CASE("a message is awaited until it is found or its request is void") {
    detail::withdrawal_list<4> asked;
    CHECK(asked.add(10));
    CHECK(asked.add(20));
    CHECK(asked.add(30));
    CHECK(asked.awaited() == 3);
    CHECK(asked.found(20));
    CHECK_FALSE(asked.found(20));
    CHECK_FALSE(asked.found(40));
    CHECK(asked.awaited() == 2);
    asked.forget(10);
    asked.forget(20);  // found: its sender is still to be told
    asked.forget(40);
    CHECK(asked.awaited() == 1);
    CHECK(asked.found(30));
    CHECK(asked.awaited() == 0);
}

TEST_CASE("no more than the limit are in the list, those that were found included") {
    detail::withdrawal_list<2> asked;
    CHECK(asked.add(1));
    CHECK(asked.add(2));
    CHECK(asked.found(1));
    CHECK_FALSE(asked.add(3));
    asked.send_found([](std::uint32_t) noexcept { return true; });
    CHECK(asked.add(3));
    CHECK_FALSE(asked.add(4));
    asked.clear();
    CHECK(asked.awaited() == 0);
    CHECK(asked.add(4));
}

TEST_CASE("senders are told of messages that were found, each once it could be sent") {
    detail::withdrawal_list<8> asked;
    for (const std::uint32_t note : {1u, 2u, 3u, 4u, 5u}) CHECK(asked.add(note));
    for (const std::uint32_t note : {1u, 3u, 5u}) CHECK(asked.found(note));
    std::vector<std::uint32_t> told;
    asked.send_found([&](std::uint32_t note) noexcept {
        if (note == 3) return false;
        told.push_back(note);
        return true;
    });
    std::sort(told.begin(), told.end());
    CHECK(told == std::vector<std::uint32_t>{1, 5});
    told.clear();
    asked.send_found([&](std::uint32_t note) noexcept {
        told.push_back(note);
        return true;
    });
    CHECK(told == std::vector<std::uint32_t>{3});
    CHECK(asked.awaited() == 2);
}

}  // namespace test_protocol_detail_withdrawal_list
