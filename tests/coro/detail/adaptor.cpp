#include <rdmacoro/coro/detail/adaptor.hpp>

#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <string>
#include <utility>

namespace test_coro_detail_adaptor {

using namespace rdmacoro;

namespace {

/// Notes the calls of its hooks.
class noting : public detail::stopping_hooks {
public:
    explicit noting(std::string& calls) : calls_(&calls) {}
    noting(noting&& other) noexcept : calls_(other.calls_) {}
    void before_begin() { *calls_ += 'b'; }
    void before_wait() { *calls_ += 'w'; }
    void after_end() { *calls_ += 'e'; }
    void stop() { source_.request_stop(); }

private:
    std::string* calls_;
};

template <class A>
class noted : public detail::adaptor<A, noting> {
public:
    noted(A&& inner, std::string& calls) : detail::adaptor<A, noting>(static_cast<A&&>(inner), calls) {}
    void stop() { this->hooks_.stop(); }
};

}  // namespace

TEST_CASE("an adaptor calls its hooks before the operation begins, before it waits, and after its end") {
    test::virtual_time world;
    std::string at_once;
    std::string later;
    world.run([](std::string& first, std::string& second) -> task<> {
        event ready(true);
        co_await noted(ready.wait(), first);
        event set_later;
        task_group group;
        group.spawn([&]() -> task<> {
            set_later.set();
            co_return;
        });
        co_await noted(set_later.wait(), second);
        co_await group.join();
    }(at_once, later));
    CHECK(at_once == "be");
    CHECK(later == "bwe");
}

TEST_CASE("the hooks' source stops the operation of an adaptor") {
    test::virtual_time world;
    std::string calls;
    world.run([](std::string& noted_calls) -> task<> {
        event never;
        noted waiting(never.wait(), noted_calls);
        task_group group;
        group.spawn([&]() -> task<> {
            waiting.stop();
            co_return;
        });
        bool canceled = false;
        try {
            co_await waiting;
        } catch (const error& ended) {
            canceled = ended.code() == errc::canceled;
        }
        CHECK(canceled);
        co_await group.join();
    }(calls));
    CHECK(calls == "bwe");
}

TEST_CASE("an error that is thrown becomes a result") {
    CHECK(*detail::catch_error<int>([] { return 3; }) == 3);
    CHECK(detail::catch_error<int>([]() -> int { throw error(errc::closed); }).error() == errc::closed);
    CHECK(detail::catch_error<void>([] { throw error(make_error_code(errc::truncated), 9); }).info() == 9);
    CHECK_THROWS_AS(detail::catch_error<int>([]() -> int { throw 1; }), int);
}

}  // namespace test_coro_detail_adaptor
