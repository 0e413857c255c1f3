#include <rdmacoro/service/detail/item_sender.hpp>

#include "support/calls_pair.hpp"
#include "support/counting_new.hpp"
#include "support/fill_store.hpp"

#include <type_traits>

namespace test_service_detail_item_sender {

using namespace rdmacoro;
using namespace rdmacoro::test;

static_assert(detail::hot_startable<item_write>);
static_assert(!std::is_copy_constructible_v<item_write>);
static_assert(std::is_move_constructible_v<kept_item_write<std::string>>);

namespace {
struct item_methods {
    static constexpr method<"items.numbers", stream<std::uint64_t>(std::uint64_t)> numbers{};
    static constexpr method<"items.texts", stream<std::string>()> texts{};
};
}  // namespace

CONFORMANCE_CASE(
    "writing and reading items of fixed length allocates nothing for an item or a message of them",
    every_real_transport) {
    if constexpr (counts_allocations) {
        run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link link) -> task<> {
            service store;
            std::uint64_t written = 0;
            store.on(item_methods::numbers,
                     [&](call_context&, std::uint64_t n, stream_writer<std::uint64_t>& out) -> task<> {
                         for (; written < n; ++written) co_await out.write(written);
                     });
            server.serve(store);
            // How many messages come before their receive at a time, and of which lengths, is for the timing to decide: up to a window of
            // items in a message or in one for each, and what grants the writer room for as many.
            test::fill_store(link.a.connection().mailbox().store(), 1200, detail::stream_window + 2);
            test::fill_store(link.b.connection().mailbox().store(), 200, detail::stream_window + 2);
            auto numbers = co_await client.open(item_methods::numbers, 10000U);
            // A whole window is stored here: there are never more.
            while (written < detail::stream_window) co_await yield();
            for (int n = 0; n < 100; ++n) co_await yield();
            static_cast<void>(co_await numbers.next());
            const std::size_t before = allocations();
            for (int n = 1; n < 10000; ++n) static_cast<void>(co_await numbers.next());
            const std::size_t made = allocations() - before;
            // The writer's two buffers grow to a window of items, 256 bytes to 2 KiB, when the network first takes that long. One allocation
            // for each message, of 128 items at most, would be 78.
            CHECK(made <= 2 * 4);
            while (co_await numbers.next()) {}
        });
    } else {
        SKIP_TEST("allocations are not counted here");
    }
}

CALLS_CASE("a second write at a time is refused, and what is written may be a temporary") {
    run_pair(over, [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service store;
        std::size_t refused = 0;
        store.on(item_methods::texts, [&](call_context&, stream_writer<std::string>& out) -> task<> {
            co_await out.write(std::string(5000, 'a'));
            co_await out.write("literal");
            const std::string short_one = "short";
            for (std::uint64_t n = 0; n < detail::stream_window - 2; ++n) co_await out.write(short_one);
            auto first = start(out.write(short_one));  // the window is used up
            CHECK_FALSE(first.done());
            const auto second = co_await as_result(out.write(short_one));
            if (second.error() == errc::invalid_argument) ++refused;
            co_await first;
        });
        server.serve(store);
        auto texts = co_await client.open(item_methods::texts);
        while (store.running() == 0) co_await yield();
        while (refused == 0) co_await yield();
        std::vector<std::string> all;
        while (auto one = co_await texts.next()) all.push_back(std::move(*one));
        REQUIRE(all.size() == detail::stream_window + 1);
        CHECK(all[0] == std::string(5000, 'a'));
        CHECK(all[1] == "literal");
        CHECK(all.back() == "short");
    });
}

}  // namespace test_service_detail_item_sender
