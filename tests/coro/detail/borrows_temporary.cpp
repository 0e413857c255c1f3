#include <rdmacoro/coro/detail/borrows_temporary.hpp>

#include <rdmacoro/coro/coro.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <type_traits>
#include <vector>

namespace test_coro_detail_borrows_temporary {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

/// Ends after a nap, with the sum of what it borrows.
class sum_operation : public basic_operation<sum_operation, int> {
public:
    explicit sum_operation(const std::vector<int>& of) noexcept : basic_operation(nullptr), of_(&of) {}

    void start() noexcept {
        timer_.deadline = owner_->now() + 1s;
        timer_.self = this;
        timer_.expired = [](detail::timer_node& timer) noexcept {
            static_cast<hook&>(timer).self->complete();
        };
        owner_->add_timer(timer_);
    }
    void cancel() noexcept {
        owner_->remove_timer(timer_);
        canceled_ = true;
        complete();
    }
    void finish_canceled() noexcept { canceled_ = true; }
    result<int> outcome() noexcept {
        if (canceled_) return errc::canceled;
        int sum = 0;
        for (const int each : *of_) sum += each;
        return sum;
    }

private:
    struct hook : detail::timer_node {
        sum_operation* self = nullptr;
        hook() noexcept = default;
        hook(hook&&) noexcept {}
    };
    const std::vector<int>* of_;
    hook timer_;
    bool canceled_ = false;
};

sum_operation sum(const std::vector<int>& of) { return sum_operation(of); }
detail::of_temporary<sum_operation> sum(std::vector<int>&& of) {
    return detail::of_temporary<sum_operation>(of);
}

/// A temporary: g++ 12 refuses braces in an awaited expression.
std::vector<int> numbers_to(int last) {
    std::vector<int> all;
    for (int n = 1; n <= last; ++n) all.push_back(n);
    return all;
}

using marked = detail::of_temporary<sum_operation>;

static_assert(!detail::borrows_temporary<sum_operation>);
static_assert(detail::borrows_temporary<marked> && detail::borrows_temporary<marked&>);
static_assert(awaitable<marked> && std::is_same_v<await_result_t<marked>, int>);
// It is no operation that a container or an adaptor for the unmarked one would take.
static_assert(!std::is_convertible_v<marked, sum_operation>);
// Adaptors keep the mark.
static_assert(detail::borrows_temporary<decltype(timeout(sum({1}), 1s))>);
static_assert(detail::borrows_temporary<decltype(as_result(with_stop(sum({1}), local_stop_token())))>);
static_assert(!detail::borrows_temporary<decltype(as_result(with_stop(sum(std::declval<std::vector<int>&>()),
                                                                      local_stop_token())))>);

}  // namespace

TEST_CASE("an operation on a temporary is awaited like any other, also through adaptors") {
    test::virtual_time world;
    world.run([]() -> task<> {
        const int plain = co_await sum(numbers_to(3));
        CHECK(plain == 6);
        const int limited = co_await timeout(sum(numbers_to(4)), 2s);
        CHECK(limited == 10);
        auto late = co_await as_result(timeout(sum(numbers_to(4)), 500ms));
        CHECK(late.error() == errc::timed_out);
    }());
}

TEST_CASE("an operation on what has a name may begin now and be awaited later") {
    test::virtual_time world;
    world.run([]() -> task<> {
        const std::vector<int> numbers{1, 2, 3};
        auto pending = start(sum(numbers));
        auto [first, second] = co_await when_all(sum(numbers), timeout(sum(numbers), 2s));
        CHECK(first + second == 12);
        const int third = co_await pending;
        CHECK(third == 6);
    }());
}

}  // namespace test_coro_detail_borrows_temporary
