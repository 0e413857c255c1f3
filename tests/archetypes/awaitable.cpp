// The least that models awaitable, in both of its forms, goes into every adaptor.

#include <rdmacoro/coro/coro.hpp>

namespace {

/// An awaiter with exactly the three functions, which can be moved and nothing else.
class least_awaiter {
public:
    explicit least_awaiter(int) {}
    least_awaiter(least_awaiter&&) = default;
    least_awaiter& operator=(least_awaiter&&) = delete;

    bool await_ready() { return true; }
    void await_suspend(std::coroutine_handle<>) {}
    void await_resume() {}
};

/// Gives an awaiter that cannot even be moved, once.
class least_source {
public:
    struct awaiter {
        awaiter() = default;
        awaiter(awaiter&&) = delete;
        bool await_ready() { return true; }
        void await_suspend(std::coroutine_handle<>) {}
        int await_resume() { return 1; }
    };

    explicit least_source(int) {}
    least_source(least_source&&) = default;
    least_source& operator=(least_source&&) = delete;
    awaiter operator co_await() && { return {}; }
};

/// An operation that is only ever ready.
class least_operation final : public rdmacoro::basic_operation<least_operation, int> {
public:
    least_operation() : basic_operation(nullptr) {}

private:
    friend basic_operation;
    void start() noexcept { complete(); }
    void cancel() noexcept {}
    void finish_canceled() noexcept {}
    rdmacoro::result<int> outcome() noexcept { return 1; }
};

static_assert(rdmacoro::awaitable<least_awaiter>);
static_assert(rdmacoro::awaitable<least_source>);
static_assert(rdmacoro::awaitable<least_operation>);

template <class A, class Make>
rdmacoro::task<> adapt(Make make) {
    const auto token = rdmacoro::local_stop_token();
    const rdmacoro::duration limit = std::chrono::seconds(1);
    co_await make();
    static_cast<void>(co_await rdmacoro::as_result(make()));
    co_await rdmacoro::timeout(make(), limit);
    co_await rdmacoro::with_stop(make(), token);
    co_await rdmacoro::with_stop(make(), std::stop_token());
    static_cast<void>(co_await rdmacoro::when_all(make(), make()));
    static_cast<void>(co_await rdmacoro::when_any(make(), make()));
    auto pending = rdmacoro::start(make());
    co_await pending;
    rdmacoro::task_group group;
    group.spawn(make);
    co_await group.join();
}

[[maybe_unused]] void instantiate() {
    rdmacoro::scheduler on;
    on.run(adapt<least_awaiter>([] { return least_awaiter(1); }));
    on.run(adapt<least_source>([] { return least_source(1); }));
    on.run(adapt<least_operation>([] { return least_operation(); }));
}

}  // namespace
