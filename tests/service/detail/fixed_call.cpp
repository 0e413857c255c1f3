#include <rdmacoro/service/detail/fixed_call.hpp>

#include "support/calls_pair.hpp"

#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <type_traits>

namespace test_service_detail_fixed_call {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
using sim_calls = calls<rdmacoro::sim>;
template <class M, class... Args>
using call_of = decltype(std::declval<sim_calls&>().call(std::declval<M>(), std::declval<Args>()...));
using add_method = std::remove_const_t<decltype(kv::add)>;
using add_call = fixed_call<add_method, detail::call_arguments<std::tuple<std::uint64_t, std::uint64_t>,
                                                               std::uint64_t, std::uint64_t>>;
}  // namespace

// Only what has arguments that travel as their bytes.
static_assert(std::is_same_v<call_of<add_method, std::uint64_t, std::uint64_t>, add_call>);
static_assert(std::derived_from<call_of<std::remove_const_t<decltype(kv::fill)>, std::uint32_t>,
                                detail::fixed_call_base>);
static_assert(!std::derived_from<call_of<std::remove_const_t<decltype(kv::get)>, std::string>,
                                 detail::fixed_call_base>);
static_assert(std::is_nothrow_move_constructible_v<add_call>);

CALLS_CASE("a call of fixed length may be made, moved, kept and awaited later, or never") {
    run_pair(over, [](any_calls& client, any_calls&, shop&, calls_link link) -> task<> {
        const auto sent = link.a.counts().messages_sent;
        {
            auto never = client.call(kv::add_now, 1U, 2U);
            auto moved = std::move(never);
            static_cast<void>(moved);
        }
        CHECK(link.a.counts().messages_sent == sent);
        for (int round = 0; round < 3; ++round) {
            auto later = client.call(kv::add_now, 1U, 2U);
            auto moved = std::move(later);
            const std::uint64_t sum = co_await std::move(moved);
            CHECK(sum == 3);
            std::uint64_t variable = 5;
            auto borrows = client.call(kv::add_now, variable, 2U);
            variable = 6;
            const std::uint64_t with_variable = co_await std::move(borrows);
            CHECK(with_variable == 8);
            auto started_one = start(client.call(kv::add, 10U, 2U));
            const std::uint64_t with_limit = co_await timeout(client.call(kv::add_now, 20U, 2U), 10s);
            CHECK(with_limit == 22);
            const std::uint64_t kept = co_await started_one;
            CHECK(kept == 12);
            const std::vector<float> row = co_await client.call(kv::fill, 1000U);
            CHECK(row.size() == 1000);
        }
        const auto both =
            co_await when_all(client.call(kv::add_now, 1U, 1U), client.call(kv::add_now, 2U, 2U));
        CHECK(std::get<0>(both) == 2);
        CHECK(std::get<1>(both) == 4);
    });
}

CALLS_CASE("a call that has ended counts no more, though its operation lives") {
    run_ends(over, [](calls_link link) -> task<> {
        shop there;
        const auto server = link.b.make_calls();
        server->serve(there.store);
        auto client = link.a.make_calls();
        auto adding = client->call(kv::add_now, 1U, 2U);
        const auto sum = co_await as_result(adding);
        REQUIRE(sum);
        CHECK(*sum == 3);
        auto failing = client->call(kv::fail, 7);
        const auto failed = co_await as_result(failing);
        CHECK(!failed);
        client.reset();  // it would end the process where calls are under way
    });
}

CALLS_CASE("an answer of another length than its type's is malformed") {
    run_ends(over, [](calls_link link) -> task<> {
        const auto client = link.a.make_calls();
        auto& raw = link.b;
        std::size_t values = 0;
        for (std::size_t length = 0; length < 24; ++length) {
            auto asking = start(client->call(kv::add, 1U, 2U));
            const message request = co_await raw.recv_lent(detail::first_requests);
            const std::vector<std::byte> answer(length);
            co_await raw.send(answer, detail::call_tag(detail::call_kind::answer, request.tag()));
            const auto ended = co_await as_result(asking);
            if (ended) {
                ++values;
                CHECK(length == 16);
            } else {
                CHECK(ended.error() == call_errc::malformed_answer);
            }
        }
        CHECK(values == 1);
    });
}

}  // namespace test_service_detail_fixed_call
