#include <rdmacoro/service/detail/short_answers.hpp>

#include "support/calls_pair.hpp"
#include "support/counting_new.hpp"

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/transport/shm.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <unistd.h>

namespace test_service_detail_short_answers {

using namespace rdmacoro;
using namespace rdmacoro::test;

CALLS_CASE("answers of functions do not wait for each other to be sent") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link link) -> task<> {
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
            // If each waited for the one before, there would be a turn for each at least; a turn ends when its time is over, too, which is
            // after a few of them under a sanitizer. A simulated network delivers one message a turn.
            if (link.is.name != "sim_plain") CHECK(turns < (counts_allocations ? many / 2 : many));
        }
    });
}

CALLS_CASE("a server that drains, or ends, while short answers wait for their caller ends in good order") {
    for (const bool drained : {true, false}) {
        run_ends(over, [drained](calls_link link) -> task<> {
            shop there;
            auto server = link.b.make_calls();
            server->serve(there.store);
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
        });
    }
}

namespace {

/// Short messages are announced, too: the first of a link needs memory for its stream, which a later one uses again.
using announced = protocols<get_rendezvous<>>;

/// How a call ends whose answer is the first message of its server, when so many allocations fail from the handler's end on.
std::error_code ended_with_failing(std::size_t allocations_failing, bool& second_call_ends_well) {
    std::error_code ended;
    // On a thread of its own, which has no memory of frames that have ended.
    std::jthread([&] {
        scheduler on;
        on.run([](std::size_t many, std::error_code& code, bool& goes_on) -> task<> {
            auto listening = co_await listen<shm, announced>("shm://not-sent-" + std::to_string(::getpid()));
            auto accepting = start(listening.accept());
            auto a = co_await connect<shm, announced>(listening.address());
            auto b = co_await accepting;
            service one;
            one.on(kv::add_now, [&many](call_context&, std::uint64_t x, std::uint64_t y) {
                fail_next_allocations(std::exchange(many, 0));
                return x + y;
            });
            {
                calls<shm, announced> server(b, one);
                calls<shm, announced> client(a);
                const auto first = co_await as_result(timeout(client.call(kv::add_now, 1U, 2U), 30s));
                fail_next_allocations(0);
                code = first.error();
                const auto second = co_await as_result(timeout(client.call(kv::add_now, 1U, 2U), 30s));
                goes_on = second && *second == 3;
            }
            CHECK(one.running() == 0);
            a.abort();
        }(allocations_failing, ended, second_call_ends_well));
    }).join();
    return ended;
}

}  // namespace

TEST_CASE("a short answer that cannot be sent for want of memory ends its call with an error, or the link") {
    if (!counts_allocations) SKIP_TEST("no allocation can be made to fail here");
    bool goes_on = false;
    CHECK_FALSE(static_cast<bool>(ended_with_failing(0, goes_on)));
    CHECK(goes_on);
    // The allocation of the answer's stream fails.
    CHECK(ended_with_failing(1, goes_on) == errc::no_resources);
    CHECK(goes_on);
    // The one of the coroutine that tells the caller fails, too.
    const std::error_code lost = ended_with_failing(2, goes_on);
    CHECK(lost == errc::peer_lost);
    CHECK_FALSE(goes_on);
}

}  // namespace test_service_detail_short_answers
