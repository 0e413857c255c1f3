#include <rdmacoro/service/detail/answer_in_place.hpp>

#include "support/calls_pair.hpp"

namespace test_service_detail_answer_in_place {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
struct names {
    static constexpr method<"names.all", std::vector<char>(std::uint32_t)> all{};
};
}  // namespace

CALLS_CASE("an error reaches the caller whatever the length of the place for the elements") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service named;
        named.on(names::all, [](call_context&, std::uint32_t length) -> task<std::vector<char>> {
            if (length == 0)
                throw error(errc::access_denied, "a text that is longer than the place of the caller");
            co_return std::vector<char>(length, 'x');
        });
        server.serve(named);
        for (const std::size_t room : {0U, 5U, 100U, 1000U}) {
            std::vector<char> place(room);
            try {
                static_cast<void>(co_await client.call_into(std::span(place), names::all, 0U));
                FAIL("no error");
            } catch (const error& failed) {
                CHECK(failed.code() == errc::access_denied);
                CHECK_THAT(failed.what(),
                           Catch::Contains("a text that is longer than the place of the caller"));
            }
            for (const std::size_t more : {1U, 200U, 5000U}) {
                const auto longer = co_await as_result(
                    client.call_into(std::span(place), names::all, static_cast<std::uint32_t>(room + more)));
                CHECK(longer.error() == errc::truncated);
                CHECK(longer.facts().info >= room + more);
            }
            if (room == 0) continue;
            const std::size_t got =
                co_await client.call_into(std::span(place), names::all, static_cast<std::uint32_t>(room));
            CHECK(got == room);
            CHECK(place.back() == 'x');
        }
    });
}

}  // namespace test_service_detail_answer_in_place
