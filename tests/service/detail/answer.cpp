#include <rdmacoro/service/detail/answer.hpp>

#include "support/calls_pair.hpp"

#include <array>

namespace test_service_detail_answer {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
struct shapes {
    static constexpr method<"shapes.nothing", void()> nothing{};
    static constexpr method<"shapes.number", std::uint16_t()> number{};
    static constexpr method<"shapes.fits", std::array<std::uint64_t, 7>()> fits{};
    static constexpr method<"shapes.longer", std::array<std::uint64_t, 8>()> longer{};
    static constexpr method<"shapes.long_one", std::array<std::uint64_t, 1000>()> long_one{};
    static constexpr method<"shapes.row", std::vector<std::uint32_t>(std::uint32_t)> row{};
    static constexpr method<"shapes.text", std::optional<std::string>(std::string)> text{};
    static constexpr method<"shapes.wide", std::uint64_t(std::array<std::uint64_t, 40>, std::uint8_t)> wide{};
};
template <std::size_t N>
std::array<std::uint64_t, N> counted_up() {
    std::array<std::uint64_t, N> all{};
    for (std::size_t i = 0; i < N; ++i) all[i] = i;
    return all;
}
}  // namespace

CALLS_CASE("results of every shape come as they were given") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service store;
        store.on(shapes::nothing, [](call_context&) {});
        store.on(shapes::number, [](call_context&) { return std::uint16_t{7}; });
        store.on(shapes::fits, [](call_context&) { return counted_up<7>(); });
        store.on(shapes::longer,
                 [](call_context&) -> task<std::array<std::uint64_t, 8>> { co_return counted_up<8>(); });
        store.on(shapes::long_one, [](call_context&) { return counted_up<1000>(); });
        store.on(shapes::row,
                 [](call_context&, std::uint32_t n) { return std::vector<std::uint32_t>(n, n); });
        store.on(shapes::text,
                 [](call_context&, std::string text) { return std::optional<std::string>(std::move(text)); });
        // Its arguments are longer than what is kept in place.
        store.on(shapes::wide,
                 [](call_context&, const std::array<std::uint64_t, 40>& all,
                    std::uint8_t at) -> task<std::uint64_t> {
                     co_await yield();
                     co_return all[at];
                 });
        server.serve(store);
        for (int round = 0; round < 3; ++round) {
            co_await client.call(shapes::nothing);
            const auto number = co_await client.call(shapes::number);
            CHECK(number == 7);
            const auto fits = co_await client.call(shapes::fits);
            CHECK(fits == counted_up<7>());
            const auto longer = co_await client.call(shapes::longer);
            CHECK(longer == counted_up<8>());
            const auto long_one = co_await client.call(shapes::long_one);
            CHECK(long_one == counted_up<1000>());
            for (const std::uint32_t n : {0U, 1U, 13U, 300U, 100000U}) {
                const auto row = co_await client.call(shapes::row, n);
                CHECK(row == std::vector<std::uint32_t>(n, n));
            }
            const std::string text(5000, 'x');
            const auto back = co_await client.call(shapes::text, text);
            CHECK(back == text);
            const auto wide = co_await client.call(shapes::wide, counted_up<40>(), std::uint8_t{39});
            CHECK(wide == 39);
        }
        co_await server.drain();
    });
}

}  // namespace test_service_detail_answer
