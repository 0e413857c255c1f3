#include <rdmacoro/service/detail/handler.hpp>

#include "support/calls_pair.hpp"

namespace test_service_detail_handler {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
struct only_task {
    task<int> operator()(call_context&, std::string) const { co_return 1; }
};
struct writes {
    task<> operator()(call_context&, int, stream_writer<int>&) const { co_return; }
};
struct no_task {
    int operator()(call_context&, std::string) const { return 1; }
};
struct returns_nothing {
    void operator()(call_context&, const std::string&) const {}
};
struct task_of_less {
    task<short> operator()(call_context&, std::string) const { co_return short{1}; }
};
struct returns_text {
    const char* operator()(call_context&, std::string) const { return "text"; }
};
}  // namespace

TEST_CASE("a handler returns its method's result, or a task of it, and takes its parameters") {
    STATIC_REQUIRE(detail::handles<only_task, int, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<only_task, double, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<only_task, int, std::vector<float>>);
    STATIC_REQUIRE_FALSE(detail::handles_at_once<only_task, int, std::string>);
    STATIC_REQUIRE(detail::handles_at_once<no_task, int, std::string>);
    STATIC_REQUIRE(detail::handles<no_task, int, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<no_task, std::string, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<no_task, void, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<no_task, one_way, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<no_task, stream<int>, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<no_task, int, std::string, stream<int>>);
    STATIC_REQUIRE(detail::handles_at_once<returns_nothing, void, std::string>);
    STATIC_REQUIRE(detail::handles_at_once<returns_nothing, one_way, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<returns_nothing, int, std::string>);
    STATIC_REQUIRE(detail::handles_at_once<returns_text, std::string, std::string>);
    STATIC_REQUIRE_FALSE(detail::handles<task_of_less, int, std::string>);
    STATIC_REQUIRE(detail::handles<writes, stream<int>, int>);
    STATIC_REQUIRE_FALSE(detail::handles<writes, stream<double>, int>);
    STATIC_REQUIRE_FALSE(detail::handles<writes, void, int>);
}

CALLS_CASE("arguments that are cut off, or followed by more, end the call and no other") {
    run_pair(over, [](any_calls& client, any_calls&, shop& there, calls_link link) -> task<> {
        auto& raw = link.a;
        const detail::request_head head{kv::add.number, kv::add.signature, 0};
        std::vector<std::byte> request(sizeof head + 24);
        std::memcpy(request.data(), &head, sizeof head);
        const std::uint64_t number = std::uint64_t{1} << 43;
        for (std::size_t length = 0; length <= request.size(); ++length) {
            const std::uint64_t own = number + length;
            co_await raw.send(std::span<const std::byte>(request).first(length),
                              detail::call_tag(detail::call_kind::request, own, kv::add.service) |
                                  detail::first_call_bit);
            const message got = co_await raw.recv_lent(detail::call_tag(detail::call_kind::answer, own));
            detail::answer_head answered{};
            REQUIRE(got.size() >= sizeof answered);
            std::memcpy(&answered, got.bytes().data(), sizeof answered);
            const bool whole = length == sizeof head + 16;
            CHECK(answered.outcome == static_cast<std::uint32_t>(whole ? detail::outcome_kind::value
                                                                       : detail::outcome_kind::call_error));
            if (!whole) CHECK(answered.code == static_cast<int>(call_errc::malformed_request));
        }
        const std::uint64_t sum = co_await client.call(kv::add, 1U, 2U);
        CHECK(sum == 3);
        CHECK(there.store.running() == 0);
    });
}

}  // namespace test_service_detail_handler
