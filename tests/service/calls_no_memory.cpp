// Each allocation of a conversation fails in its turn, one in each run: the conversation goes on, or ends with an error, and nobody waits.
#include <rdmacoro/service/calls.hpp>

#include "support/calls_pair.hpp"
#include "support/counting_new.hpp"
#include "support/no_spare_frames.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <malloc.h>

namespace test_service_calls_no_memory {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct echo {
    static constexpr method<"echo.text", std::string(std::string)> text{};
    static constexpr method<"echo.now", std::string(std::string)> now{};
    static constexpr method<"echo.count", std::uint64_t(stream<std::string>)> count{};
    static constexpr method<"echo.all", stream<std::string>(std::uint32_t)> all{};
    static constexpr method<"echo.both", stream<std::string>(stream<std::string>)> both{};
    static constexpr method<"echo.wait", void()> wait{};
    static constexpr method<"echo.sum", std::uint64_t(std::array<std::uint64_t, 65536>)> sum{};
};

void offer(service& to) {
    to.on(echo::text, [](call_context&, std::string given) -> task<std::string> { co_return given; });
    to.on(echo::now, [](call_context&, std::string given) { return given; });
    to.on(echo::count, [](call_context&, stream_reader<std::string>& in) -> task<std::uint64_t> {
        std::uint64_t many = 0;
        while (co_await in.next()) ++many;
        co_return many;
    });
    to.on(echo::all, [](call_context&, std::uint32_t many, stream_writer<std::string>& out) -> task<> {
        for (std::uint32_t n = 0; n < many; ++n) co_await out.write(std::string(700, 'r'));
    });
    to.on(echo::both,
          [](call_context&, stream_reader<std::string>& in, stream_writer<std::string>& out) -> task<> {
              for (;;) {
                  auto one = co_await in.next();
                  if (!one) break;
                  co_await out.write(*one);
              }
          });
    to.on(echo::wait, [](call_context&) -> task<> { co_await sleep_for(1h); });
    to.on(echo::sum, [](call_context&, const std::array<std::uint64_t, 65536>& of) {
        return std::accumulate(of.begin(), of.end(), std::uint64_t{0});
    });
}

/// Calls of all kinds, short and long, streams that are read to their end and that are not, and a call that is canceled.
task<> converse(any_calls& with) {
    const std::string some(5'000, 's');
    const std::string much(300'000, 'm');
    for (const std::string& one : {std::string("short"), some, much}) {
        const std::string back = co_await with.call(echo::text, one);
        if (back != one) throw std::runtime_error("another text came back");
        const std::string now = co_await with.call(echo::now, one);
        if (now != one) throw std::runtime_error("another text came back at once");
    }
    {
        auto rows = co_await with.open(echo::all, 200u);
        for (int n = 0; n < 200; ++n) {
            if (!co_await rows.next()) throw std::runtime_error("the rows ended early");
        }
        if (co_await rows.next()) throw std::runtime_error("there were more rows");
    }
    {
        auto left = co_await with.open(echo::all, 200u);
        static_cast<void>(co_await left.next());
    }
    {
        auto out = co_await with.open(echo::count);
        for (int n = 0; n < 30; ++n) co_await out.write(some);
        if (co_await out.finish() != 30) throw std::runtime_error("another number arrived");
    }
    {
        auto left = co_await with.open(echo::count);
        co_await left.write(some);
    }
    {
        auto both = co_await with.open(echo::both);
        for (int n = 0; n < 3; ++n) {
            co_await both.write(some);
            static_cast<void>(co_await both.next());
        }
        both.end();
        while (co_await both.next()) {}
    }
    const auto canceled = co_await as_result(timeout(with.call(echo::wait), 1ms));
    if (canceled.error() != errc::timed_out) throw std::system_error(canceled.error());
    const std::string last = co_await with.call(echo::text, "last");
    if (last != "last") throw std::runtime_error("another text came back at the end");
}

struct ending {
    bool failed_one = false;  // an allocation
    bool whole = false;
    bool too_late = false;
    std::string text;
};

/// The conversation in a thread of its own, which has no frames and no memory from a former one.
ending run_with(const variant& over, std::size_t failing) {
    ending how;
    std::thread([&] {
        try {
            run_ends(over, [&](calls_link link) -> task<> {
                fail_allocation(failing);
                const auto ended = co_await as_result(timeout(
                    [](calls_link both) -> task<> {
                        service offered;
                        offer(offered);
                        const auto server = both.b.make_calls();
                        server->serve(offered);
                        const auto client = both.a.make_calls();
                        co_await converse(*client);
                    }(link),
                    20s));
                how.failed_one = !allocation_is_to_fail();
                fail_allocation(0);
                how.whole = ended.has_value();
                how.too_late = !ended && ended.error() == errc::timed_out;
                if (!ended) how.text = ended.error().message();
            });
        } catch (const std::exception& why) {
            how.failed_one = !allocation_is_to_fail();
            how.text = why.what();
        }
        fail_allocation(0);
    }).join();
    return how;
}

}  // namespace

CONFORMANCE_CASE("whichever allocation of a conversation fails, its calls end, and nobody waits",
                 every_real_kind) {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    std::size_t whole = 0;
    std::size_t failed = 0;
    for (std::size_t n = 1;; ++n) {
        const ending how = run_with(over, n);
        INFO("allocation " << n << ": " << how.text);
        REQUIRE_FALSE(how.too_late);
        if (!how.failed_one) {  // there are no more
            REQUIRE(how.whole);
            break;
        }
        ++(how.whole ? whole : failed);
    }
    INFO(whole << " runs were whole, " << failed << " ended with an error");
    CHECK(whole > 0);
    CHECK(failed > 100);
}

CONFORMANCE_CASE("a call of fixed length that finds no memory to wait ends what it has begun to send",
                 every_real_kind) {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_ends(over, [](calls_link link) -> task<> {
        service offered;
        offer(offered);
        const auto server = link.b.make_calls();
        server->serve(offered);
        const auto client = link.a.make_calls();
        std::array<std::uint64_t, 65536> numbers{};
        numbers.back() = 7;
        {
            const no_spare_frames each_takes_memory;
            auto summing = client->call(echo::sum, numbers);
            fail_next_allocations(1);
            bool failed = false;
            try {
                static_cast<void>(co_await std::move(summing));
            } catch (const std::bad_alloc&) {
                failed = true;
            }
            fail_next_allocations(0);
            CHECK(failed);
        }
        const std::uint64_t sum = co_await client->call(echo::sum, numbers);
        CHECK(sum == 7);
    });
}

namespace {
struct later {
    static constexpr method<"later.note", one_way()> note{};
};
struct texts {
    static constexpr method<"texts.all", std::vector<std::string>(std::uint32_t)> all{};
};
}  // namespace

TEST_CASE("a service that is offered without memory is offered, or is not") {
    if (!counts_allocations) SKIP_TEST("the sanitizer has the heap");
    unsigned refused = 0;
    unsigned served = 0;
    unsigned untold = 0;
    for (std::size_t failing = 1; failing < 40; ++failing) {
        CAPTURE(failing);
        run_pair(*over_sim.front(), [&](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
            service offered;
            unsigned noted = 0;
            offered.on(later::note, [&noted](call_context&) -> task<> {
                ++noted;
                co_return;
            });
            co_await client.cast(later::note);  // the server has refused it, and tells when it knows it
            static_cast<void>(co_await as_result(client.call(kv::add, 1U, 2U)));
            std::optional<no_spare_frames> none(std::in_place);
            fail_allocation(failing);
            bool thrown = false;
            try {
                server.serve(offered);
            } catch (const std::bad_alloc&) {
                thrown = true;
            }
            fail_allocation(0);
            none.reset();
            if (thrown) {
                ++refused;
                server.serve(offered);  // refused where it is offered already
            } else {
                ++served;
            }
            CHECK_THROWS_AS(server.serve(offered), error);
            const auto cast = co_await as_result(client.cast(later::note));
            const auto sum = co_await as_result(client.call(kv::add, 1U, 2U));
            if (!sum) {  // the client could not be told, so the connection has ended
                CHECK_FALSE(thrown);
                CHECK(sum.error() == errc::peer_lost);
                ++untold;
                co_return;
            }
            CHECK(cast);
            CHECK(*sum == 3);
            CHECK(noted == 1);
        });
    }
    CHECK(refused > 0);
    CHECK(served > 20);
    CHECK(untold < 5);
}

TEST_CASE("the memory of a long answer is given back") {
    if (!counts_allocations) SKIP_TEST("the sanitizer has the heap");
    run_pair(*over_sim.front(), [](any_calls& client, any_calls& server, shop&, calls_link) -> task<> {
        service many;
        many.on(texts::all, [](call_context&, std::uint32_t n) -> task<std::vector<std::string>> {
            co_return std::vector<std::string>(n, std::string(100, 't'));
        });
        server.serve(many);
        const auto in_use = [] {
            const auto now = ::mallinfo2();
            return now.uordblks + now.hblkhd;
        };
        static_cast<void>(co_await client.call(texts::all, 10U));
        const std::size_t before = in_use();
        constexpr std::uint32_t count = 100'000;  // 10 MB, each text copied
        {
            const auto all = co_await client.call(texts::all, count);
            CHECK(all.size() == count);
            CHECK(in_use() > before + 10'000'000);
        }
        static_cast<void>(co_await client.call(texts::all, 10U));
        CHECK(in_use() < before + 4'000'000);
        // Also of very many, one after the other.
        for (int n = 0; n < 3000; ++n) static_cast<void>(co_await client.call(texts::all, 1000U));
        const std::size_t settled = in_use();
        for (int n = 0; n < 3000; ++n) static_cast<void>(co_await client.call(texts::all, 1000U));
        CHECK(in_use() < settled + 20'000);
        while (many.running() != 0) co_await yield();
    });
}

}  // namespace test_service_calls_no_memory
