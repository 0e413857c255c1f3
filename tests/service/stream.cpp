#include <rdmacoro/service/stream.hpp>

#include "support/calls_pair.hpp"

using namespace rdmacoro;
using namespace rdmacoro::test;

TEMPLATE_LIST_TEST_CASE("a stream is read to its end, and its writer ends when its reader leaves", "",
                        every_kind) {
    run_pair<TestType>([](auto& client, auto& server, shop& there) -> task<> {
        {
            auto rows = co_await client.open(kv::scan, 1000U);
            std::uint32_t read = 0;
            while (auto one = co_await rows.next()) CHECK(one->key == read++);
            CHECK(read == 1000);
            {
                const auto got = co_await rows.next();
                CHECK_FALSE(got);
            }
        }
        {
            auto rows = co_await client.open(kv::scan, 7U);
            std::uint32_t read = 0;
            std::error_code code;
            try {
                while (co_await rows.next()) ++read;
            } catch (const error& failed) {
                code = failed.code();
                CHECK_THAT(failed.what(), Catch::Contains("seven"));
            }
            CHECK(read == 7);
            CHECK(code == call_errc::handler_failed);
        }
        {
            auto rows = co_await client.open(kv::scan, 1000000U);
            for (int i = 0; i < 100; ++i) {
                const auto got = co_await rows.next();
                CHECK(got);
            }
        }
        while (there.stopped == 0) co_await yield();
        {
            const auto got = co_await client.call(kv::add, 1U, 2U);
            CHECK(got == 3);
        }
        while (there.store.running() != 0) co_await yield();
        const std::size_t at_server = co_await left_over(server);
        CHECK(at_server == 0);
    });
}

namespace {
struct lengths {
    static constexpr method<"lengths.of", stream<std::string>(std::uint32_t, std::uint32_t)> of{};
};
}  // namespace

TEMPLATE_LIST_TEST_CASE("streams of any items that are left at any moment leave nothing behind", "",
                        every_kind) {
    run_pair<TestType>([](auto& client, auto& server, shop&) -> task<> {
        service texts;
        texts.on(lengths::of,
                 [](call_context&, std::uint32_t length, std::uint32_t n,
                    stream_writer<std::string>& out) -> task<> {
                     const std::string text(length, 'x');
                     for (std::uint32_t i = 0; i < n; ++i) co_await out.write(text);
                 });
        server.serve(texts);
        for (const std::uint32_t length : {10U, 20000U, 300000U}) {
            for (std::uint32_t taken = 0; taken < 12; ++taken) {
                auto items = co_await client.open(lengths::of, length, 100U);
                for (std::uint32_t i = 0; i < taken; ++i) {
                    const auto one = co_await items.next();
                    REQUIRE(one);
                    CHECK(one->size() == length);
                }
                if (taken % 3 == 2) {
                    // A read that is canceled ends the stream.
                    const auto late = co_await as_result(timeout(items.next(), duration::zero()));
                    if (!late) {
                        CHECK(late.error() == errc::timed_out);
                        const auto after = co_await items.next();
                        CHECK_FALSE(after);
                    }
                }
            }
        }
        while (texts.running() != 0) co_await yield();
        // The last words about the last stream.
        const std::uint64_t sum = co_await client.call(kv::add, 1U, 2U);
        CHECK(sum == 3);
        const std::size_t at_client = co_await left_over(client);
        CHECK(at_client == 0);
        const std::size_t at_server = co_await left_over(server);
        CHECK(at_server == 0);
    });
}
