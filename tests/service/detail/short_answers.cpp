#include <rdmacoro/service/detail/short_answers.hpp>

#include "support/calls_pair.hpp"

#include <optional>
#include <string_view>

namespace test_service_detail_short_answers {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEMPLATE_LIST_TEST_CASE("answers of functions do not wait for each other to be sent", "", every_kind) {
    run_pair<TestType>([](auto& client, auto&, shop&) -> task<> {
        {
            const std::uint64_t first = co_await client.call(kv::add_now, 1U, 2U);
            CHECK(first == 3);
        }
        for (int round = 0; round < 3; ++round) {
            constexpr std::uint64_t many = 200;
            std::uint64_t sum = 0;
            task_group callers;
            for (std::uint64_t n = 0; n < many; ++n)
                callers.spawn([&, n]() -> task<> { sum += co_await client.call(kv::add_now, n, 1U); });
            std::size_t turns = 0;
            for (; callers.size() != 0; ++turns) co_await yield();
            CHECK(sum == many * (many - 1) / 2 + many);
            // A simulated network delivers one message a turn.
            using T = typename TestType::transport_type;
            if (std::string_view(T::name) != "sim") CHECK(turns < many / 2);
        }
    });
}

TEMPLATE_LIST_TEST_CASE(
    "a server that drains, or ends, while short answers wait for their caller ends in good order", "",
    every_kind) {
    using T = typename TestType::transport_type;
    for (const bool drains : {true, false}) {
        scheduler on;
        const auto domain = TestType::open(on);
        on.run([](typename T::domain& here, std::string address, bool drained) -> task<> {
            connected_pair<T> link = co_await connected_ends<T>(here, address);
            shop there;
            std::optional<calls<T>> server(std::in_place, link.b, there.store);
            auto& raw = link.a;
            // Requests of a caller that takes no answer, until these wait for credit.
            using add = std::remove_const_t<decltype(kv::add_now)>;
            struct {
                detail::request_head head{add::number, add::signature, 0};
                std::uint64_t values[2] = {1, 2};
            } request;
            std::uint64_t asked = 0;
            while (link.b.counts().credit_waits == 0) {
                ++asked;
                co_await raw.send(std::as_bytes(std::span(&request, 1)),
                                  detail::call_tag(detail::call_kind::request, asked, add::service));
                co_await yield();
                REQUIRE(asked < 1000000);
            }
            if (drained) {
                auto draining = start(server->drain());
                for (int n = 0; n < 10; ++n) co_await yield();
                CHECK_FALSE(draining.done());  // what was begun is answered
                std::uint64_t answers = 0;
                while (!draining.done()) {
                    answers += raw.discard(tag_match(detail::call_tag(detail::call_kind::answer, 0),
                                                     detail::calls_bit | detail::kind_bits));
                    co_await yield();
                }
                co_await draining;
                CHECK(answers != 0);
            }
            server.reset();
            CHECK(there.store.running() == 0);
            raw.abort();
        }(*domain, TestType::address(), drains));
    }
}

}  // namespace test_service_detail_short_answers
