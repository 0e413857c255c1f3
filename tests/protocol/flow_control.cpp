#include <rdmacoro/protocol/flow_control.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <deque>
#include <random>

namespace test_protocol_flow_control {

using namespace rdmacoro::detail;

// Part of the wire protocol: both ends must agree on what a message costs.
static_assert(storage_bytes(0) == 256);
static_assert(storage_bytes(8) == 256);
static_assert(storage_bytes(64) == 256);
static_assert(storage_bytes(65) == 320);
static_assert(storage_bytes(4096) == 5120);
static_assert(storage_bytes(32768) == 40960);
static_assert(storage_bytes(std::size_t{1} << 20) == (std::size_t{1} << 20) + (std::size_t{1} << 18));
static_assert(message_cost(0) == 4);
static_assert(message_cost(8) == 4);
static_assert(message_cost(64) == 4);
static_assert(message_cost(4096) == 80);
static_assert(unasked_bytes(least_budget) == 65536);

TEST_CASE("a kept message's storage holds it, wastes at most a quarter, and grows with it") {
    std::size_t before = 0;
    for (std::size_t payload = 0; payload < 300000; payload += 1 + payload / 50) {
        const std::size_t bytes = storage_bytes(payload);
        CHECK(bytes >= payload + kept_message_overhead);
        CHECK(bytes <= (payload + kept_message_overhead) * 5 / 4 + 64);
        CHECK(bytes >= before);
        CHECK(std::size_t{message_cost(payload)} * credit_bytes >= bytes);
        before = bytes;
    }
}

TEST_CASE("the least budget pays for at least three of the longest messages sent unasked") {
    for (const std::uint32_t budget : {least_budget, least_budget + 1, 65536u, 1u << 24, 0x7fffffffu}) {
        CHECK(std::uint64_t{message_cost(unasked_bytes(budget))} * 3 <= budget);
    }
}

TEST_CASE("a sender without credit has to wait until some comes back") {
    credit_account sender(0);
    CHECK_FALSE(sender.take(1));  // nothing was granted yet
    sender.opened(100);
    CHECK(sender.peer_budget() == 100);
    CHECK(sender.take(60));
    CHECK_FALSE(sender.take(41));
    CHECK(sender.take(40));
    CHECK(sender.available() == 0);
    CHECK(sender.returned(50));
    CHECK(sender.take(50));
    sender.untake(50);
    CHECK(sender.available() == 50);
}

TEST_CASE("a peer that gives back more than it got breaks the protocol") {
    credit_account sender(0);
    sender.opened(100);
    CHECK_FALSE(sender.returned(1));
    CHECK(sender.take(30));
    CHECK(sender.returned(30));
    CHECK_FALSE(sender.returned(1));
    CHECK(sender.available() == 100);
}

TEST_CASE("a peer that spends more than it was granted breaks the protocol") {
    credit_account receiver(100);
    CHECK(receiver.charge(100));
    CHECK_FALSE(receiver.charge(1));
    receiver.release(100);
    CHECK_FALSE(receiver.charge(1));  // given back only once it was said
    receiver.paid(receiver.payable());
    CHECK(receiver.charge(100));
    credit_account other(100);
    CHECK(other.charge(70));
    CHECK_FALSE(other.pass(31));
}

TEST_CASE("of a budget the part that is withheld cannot be spent, and comes as credit") {
    credit_account sender(0);
    sender.opened(100, 70);
    CHECK_FALSE(sender.take(31));
    CHECK(sender.returned(70));
    CHECK_FALSE(sender.returned(1));
    credit_account receiver(100, 70);
    CHECK(receiver.grant() == 30);
    CHECK_FALSE(receiver.charge(31));
    CHECK(receiver.charge(30));
    CHECK(receiver.stored() == 30);
    receiver.grant_more(20);
    CHECK(receiver.grant() == 50);
    CHECK(receiver.payable() == 20);
    CHECK_FALSE(receiver.charge(1));  // not before it was said
    receiver.paid(20);
    CHECK(receiver.charge(20));
    CHECK(receiver.stored() == 50);
}

TEST_CASE("a grant shrinks by credit that is owed, and by no more") {
    credit_account receiver(100);
    CHECK(receiver.charge(60));
    receiver.release(40);
    CHECK(receiver.withhold(1000) == 40);
    CHECK(receiver.grant() == 60);
    CHECK_FALSE(receiver.owes());
    CHECK(receiver.stored() == 20);
    CHECK_FALSE(receiver.charge(41));
    CHECK(receiver.charge(40));
    receiver.release(29);
    CHECK_FALSE(receiver.overdue());
    receiver.release(1);
    CHECK(receiver.overdue());  // half of what is granted now
}

TEST_CASE("what is owed is overdue at half of the budget, and paid in headers of sixteen bits") {
    credit_account receiver(200000);
    CHECK(receiver.charge(200000));
    receiver.release(99999);
    CHECK_FALSE(receiver.overdue());
    receiver.release(1);
    CHECK(receiver.overdue());
    CHECK(receiver.payable() == 65535);
    receiver.paid(receiver.payable());
    CHECK_FALSE(receiver.overdue());
    CHECK(receiver.payable() == 100000 - 65535);
    receiver.paid(receiver.payable());
    CHECK(receiver.payable() == 0);
}

TEST_CASE("two accounts that talk to each other never lose credit, whatever the order") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    constexpr std::uint32_t budget = 5000;
    constexpr std::uint32_t withheld = 3000;
    credit_account sender(0);
    sender.opened(budget, withheld);
    credit_account receiver(budget, withheld);
    std::deque<std::uint32_t> in_flight;
    std::deque<std::uint32_t> kept;
    std::deque<std::uint16_t> returning;
    for (int step = 0; step < 20000; ++step) {
        switch (random() % 6) {
            case 4:
                if (const std::uint32_t rest = receiver.withheld(); rest != 0)
                    receiver.grant_more(static_cast<std::uint32_t>(random() % rest));
                break;
            case 5:
                static_cast<void>(receiver.withhold(static_cast<std::uint32_t>(random() % 300)));
                REQUIRE(receiver.grant() <= budget);
                break;
            case 0: {
                const auto cost = static_cast<std::uint32_t>(1 + random() % 500);
                if (sender.take(cost)) in_flight.push_back(cost);
                break;
            }
            case 1:
                if (!in_flight.empty()) {
                    const std::uint32_t cost = in_flight.front();
                    in_flight.pop_front();
                    if (random() % 2 == 0) {
                        REQUIRE(receiver.charge(cost));
                        kept.push_back(cost);
                    } else {
                        REQUIRE(receiver.pass(cost));
                    }
                }
                break;
            case 2:
                if (!kept.empty()) {
                    receiver.release(kept.front());
                    kept.pop_front();
                }
                break;
            default:
                if (receiver.overdue() || random() % 2 == 0) {
                    returning.push_back(receiver.payable());
                    receiver.paid(returning.back());
                }
                if (!returning.empty()) {
                    REQUIRE(sender.returned(returning.front()));
                    returning.pop_front();
                }
        }
    }
    for (const std::uint32_t cost : in_flight) REQUIRE(receiver.pass(cost));
    for (const std::uint32_t cost : kept) receiver.release(cost);
    while (receiver.payable() != 0) {
        returning.push_back(receiver.payable());
        receiver.paid(returning.back());
    }
    for (const std::uint16_t credits : returning) REQUIRE(sender.returned(credits));
    CHECK(receiver.stored() == 0);
    CHECK(sender.available() == receiver.grant());
    receiver.grant_more(receiver.withheld());
    while (receiver.payable() != 0) {
        const std::uint16_t credits = receiver.payable();
        receiver.paid(credits);
        REQUIRE(sender.returned(credits));
    }
    CHECK(sender.available() == budget);
    CHECK(receiver.charge(budget));
}

}  // namespace test_protocol_flow_control
