// A scheduler inside an asio::io_context.
#include <rdmacoro/adapters/asio.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/over/shm_variants.hpp"
#include "support/pattern.hpp"
#if RDMACORO_WITH_TCP
#include "support/over/tcp_variants.hpp"
#endif

#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/experimental/awaitable_operators.hpp>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <future>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

namespace {
/// Asio takes memory for what it posts from here, and not from operator new.
thread_local bool aligned_memory_is_short = false;
}  // namespace

extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
    void* memory = nullptr;
    if (aligned_memory_is_short || ::posix_memalign(&memory, alignment, bytes) != 0) return nullptr;
    return memory;
}

namespace test_adapters_asio {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using namespace asio::experimental::awaitable_operators;

namespace {

// clang-format off
using both_kinds = std::tuple<shm_as_it_comes
#if RDMACORO_WITH_TCP
    , tcp_as_it_comes
#endif
    >;
// clang-format on

/// Sleeps whenever there is nothing to do, and counts that.
struct parks_at_once {
    idle::action next(rdmacoro::clock&) noexcept {
        count->fetch_add(1);
        return idle::action::park;
    }
    void progress() noexcept {}
    std::atomic<int>* count;
};

/// A server of ours on a thread of its own: echoes what its clients send until one sends nothing.
template <class T>
class echo_server {
public:
    explicit echo_server(std::string address) {
        std::promise<std::string> where;
        auto listens = where.get_future();
        thread_ = std::jthread(
            [address = std::move(address), told = std::move(where)](std::stop_token stop) mutable {
                try {
                    scheduler on;
                    on.run(serve(address, told), stop);
                } catch (...) {  // it was stopped, or did not listen: `told` is broken then
                }
            });
        address_ = listens.get();
    }

    [[nodiscard]] const std::string& address() const noexcept { return address_; }

private:
    static task<> serve(const std::string& at, std::promise<std::string>& tell) {
        auto listening = co_await listen<T>(at);
        tell.set_value(listening.address());
        bool goes_on = true;
        while (goes_on) {
            auto peer = co_await listening.accept();
            while (auto got = co_await as_result(peer.recv_lent())) {
                if (got->size() == 0) goes_on = false;
                co_await peer.send(got->bytes(), got->tag());
            }
        }
    }

    std::string address_;
    std::jthread thread_;  // stopped and joined
};

/// Ends the echo server.
template <class T>
asio::awaitable<void> dismiss(asio_guest on, endpoint<T>& peer) {
    std::byte none[1];
    co_await on.run(peer.send(std::span<const std::byte>()));
    co_await on.run(peer.recv(none));
    co_await on.run(peer.close());
}

/// Runs a coroutine in the context, with an end: 100 s.
template <class Body>
void run_in(asio::io_context& context, Body body) {
    std::exception_ptr failure;
    bool ended = false;
    asio::co_spawn(context, body(), [&](std::exception_ptr why) {
        failure = why;
        ended = true;
    });
    context.run_for(100s);
    if (failure) std::rethrow_exception(failure);
    REQUIRE(ended);
    CHECK(context.stopped());  // nothing keeps it
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("Asio's coroutines connect, send and receive, beside Asio's own timers", "",
                        both_kinds) {
    using T = typename TestType::transport_type;
    echo_server<T> server(TestType::address());
    asio::io_context context;
    asio_guest on(context);
    int ticks = 0;
    run_in(context, [&]() -> asio::awaitable<void> {
        asio::steady_timer timer(context);
        auto peer = co_await on.run(connect<T>(server.address(), {.retry_for = 10s}));
        asio::co_spawn(
            context,
            [&]() -> asio::awaitable<void> {
                asio::steady_timer beside(context);
                for (; ticks < 3; ++ticks) {
                    beside.expires_after(1ms);
                    co_await beside.async_wait(asio::use_awaitable);
                }
            },
            asio::detached);
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
            const auto sent = pattern(bytes, bytes);
            std::vector<std::byte> got(bytes);
            co_await on.run(peer.send(sent, 7));
            const auto what = co_await on.run(peer.recv(got, 7));
            CHECK(what.bytes == bytes);
            CHECK(same_bytes(sent, got));
            timer.expires_after(1ms);
            co_await timer.async_wait(asio::use_awaitable);
        }
        const auto lent = co_await on.run([](endpoint<T>& to) -> task<message> {
            co_await to.send(std::string_view("a task"));
            co_return co_await to.recv_lent();
        }(peer));
        CHECK(lent.size() == 6);
        while (ticks < 3) {  // a busy exchange leaves Asio's timers their turns
            co_await on.run(peer.send(std::string_view("x")));
            char x[1];
            co_await on.run(peer.recv(x));
        }
        co_await dismiss(on, peer);
    });
    CHECK(ticks == 3);
}

TEMPLATE_LIST_TEST_CASE("Asio's cancellation stops the operation, and the link goes on", "", both_kinds) {
    using T = typename TestType::transport_type;
    echo_server<T> server(TestType::address());
    asio::io_context context;
    asio_guest on(context);
    run_in(context, [&]() -> asio::awaitable<void> {
        auto peer = co_await on.run(connect<T>(server.address()));
        char text[10];
        for (int round = 0; round < 20; ++round) {
            asio::steady_timer timer(context, std::chrono::microseconds(100 * round));
            const auto first = co_await (on.run(peer.recv(text)) || timer.async_wait(asio::use_awaitable));
            CHECK(first.index() == 1);
        }
        // A signal for one operation.
        asio::cancellation_signal stop;
        std::exception_ptr ended;
        bool called = false;
        on.run(peer.recv(text),
               asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr why, received) {
                   ended = why;
                   called = true;
               }));
        asio::steady_timer timer(context, 5ms);
        co_await timer.async_wait(asio::use_awaitable);
        CHECK_FALSE(called);
        stop.emit(asio::cancellation_type::terminal);
        timer.expires_after(5ms);
        co_await timer.async_wait(asio::use_awaitable);
        CHECK(called);
        try {
            if (ended) std::rethrow_exception(ended);
            FAIL_CHECK("it ended well");
        } catch (const error& why) {
            CHECK(why.code() == errc::canceled);
        }
        stop.emit(asio::cancellation_type::terminal);  // it is over
        // Nothing was lost.
        co_await on.run(peer.send(std::string_view("hello")));
        const auto got = co_await on.run(peer.recv(text));
        CHECK(got.bytes == 5);
        co_await dismiss(on, peer);
    });
}

TEST_CASE("what an operation ended with is thrown in Asio's coroutine, with its text") {
    asio::io_context context;
    asio_guest on(context);
    run_in(context, [&]() -> asio::awaitable<void> {
        bool thrown = false;
        try {
            co_await on.run(connect<shm>("shm://nobody-listens-here"));
        } catch (const error& why) {
            thrown = true;
            CHECK(why.code() == errc::connection_refused);
            CHECK(std::string(why.what()).find("nobody-listens-here") != std::string::npos);
        }
        CHECK(thrown);
        thrown = false;
        try {
            co_await on.run([]() -> task<> {
                co_await yield();
                throw std::runtime_error("of the task");
            }());
        } catch (const std::runtime_error& why) {
            thrown = why.what() == std::string("of the task");
        }
        CHECK(thrown);
        endpoint<shm> none;
        char text[1];
        thrown = false;
        try {
            co_await on.run(none.recv(text));
        } catch (const error& why) {
            thrown = why.code() == errc::invalid_argument;
        }
        CHECK(thrown);
    });
}

namespace {

asio::awaitable<void> wait_and_throw(asio_guest on, event& go) {
    co_await on.run(go.wait());
    throw std::runtime_error("of the coroutine");
}

}  // namespace

TEST_CASE(
    "an exception that leaves a handler leaves the context, and the scheduler turns on when it runs again") {
    const bool of_coroutines = GENERATE(false, true);
    CAPTURE(of_coroutines);
    asio::io_context context;
    asio_guest on(context);
    event go;
    int called = 0;
    for (int n = 0; n < 3; ++n) {
        const auto throws = [&](std::exception_ptr why) {
            ++called;
            if (why) std::rethrow_exception(why);
            throw std::runtime_error("of the handler");
        };
        if (of_coroutines) {
            asio::co_spawn(context, wait_and_throw(on, go), throws);
        } else {
            on.run(go.wait(), throws);
        }
    }
    context.poll();  // so that they wait
    CHECK(called == 0);
    on.owner().post([&] { go.set(); });  // all of them end in one turn
    const std::string expected = of_coroutines ? "of the coroutine" : "of the handler";
    for (int n = 1; n <= 3; ++n) {
        CHECK_THROWS_WITH(context.run_for(20s), expected);
        CHECK(called == n);
    }
    context.run_for(20s);
    CHECK(context.stopped());
}

TEMPLATE_TEST_CASE("a context that is polled returns while an operation waits whatever the idle strategy", "",
                   idle::spin, idle::yield, idle::adaptive) {
    asio::io_context context;
    asio_guest on(context, TestType{});
    event go;
    bool ended = false;
    on.run(go.wait(), [&](std::exception_ptr why) { ended = !why; });
    for (int n = 0; n < 20; ++n) context.poll();  // each ends
    CHECK_FALSE(ended);
    CHECK_FALSE(context.stopped());
    on.owner().post([&] { go.set(); });
    while (!ended) context.poll();
    CHECK(context.poll() == 0);
    CHECK(context.stopped());
}

TEST_CASE("a context that is stopped leaves operations pending, which go on when it runs again") {
    asio::io_context context;
    asio_guest on(context);
    event go;
    bool ended = false;
    on.run(go.wait(), [&](std::exception_ptr why) { ended = !why; });
    asio::post(context, [&] { context.stop(); });
    context.run();
    CHECK_FALSE(ended);
    context.restart();
    asio::post(context, [&] { go.set(); });
    context.run_for(20s);
    CHECK(ended);
    CHECK(context.stopped());
}

namespace {

/// Counts those that live.
struct counted {
    explicit counted(int& of) : count(of) { ++count; }
    counted(const counted&) = delete;
    counted& operator=(const counted&) = delete;
    ~counted() { --count; }
    int& count;
};

template <class T>
asio::awaitable<void> wait_for_ever(asio_guest on, endpoint<T> peer, int& alive) {
    const counted one(alive);
    char text[10];
    co_await on.run(peer.recv(text));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "a context that is destroyed ends what is pending, and destroys its coroutines with their endpoints", "",
    both_kinds) {
    using T = typename TestType::transport_type;
    for (const int turns : {0, 1, 1000}) {
        CAPTURE(turns);
        int alive = 0;
        std::exception_ptr failure;
        {
            auto context = std::make_unique<asio::io_context>();
            asio_guest on(*context);
            bool made = false;
            asio::co_spawn(
                *context,
                [&]() -> asio::awaitable<void> {
                    const auto keeps = on.keep();
                    auto listening = co_await on.run(listen<T>(TestType::address()));
                    for (int n = 0; n < 3; ++n) {
                        auto a = co_await on.run(connect<T>(listening.address()));
                        auto b = co_await on.run(listening.accept());
                        asio::co_spawn(*context, wait_for_ever(on, std::move(a), alive), asio::detached);
                        asio::co_spawn(*context, wait_for_ever(on, std::move(b), alive), asio::detached);
                    }
                    made = true;
                    co_await on.run(listening.accept());
                },
                [&](std::exception_ptr why) { failure = why; });
            const auto until = std::chrono::steady_clock::now() + 30s;
            while (!made && !failure && std::chrono::steady_clock::now() < until) context->run_one_for(1s);
            REQUIRE(made);
            for (int n = 0; n < turns; ++n) context->poll_one();
            if (turns != 0) CHECK(alive == 6);
            if (turns == 1000) context->stop();
            context.reset();
        }
        CHECK(alive == 0);
        CHECK_FALSE(failure);
    }
}

TEST_CASE("a coroutine owns the guest's endpoint, a handler the keeper: both go with the context") {
    int alive = 0;
    {
        asio::io_context context;
        asio_guest on(context);
        asio::co_spawn(
            context,
            [](asio_guest mine, int& count) -> asio::awaitable<void> {
                const counted one(count);
                const auto keeps = mine.keep();
                asio::steady_timer never(co_await asio::this_coro::executor, 1h);
                co_await never.async_wait(asio::use_awaitable);
            }(on, alive),
            asio::detached);
        context.run_for(5ms);
        CHECK(alive == 1);
    }
    CHECK(alive == 0);
}

TEST_CASE("a guest with nothing to do keeps no context running, and its idle strategy is chosen once") {
    asio::io_context context;
    asio_guest on(context, idle::adaptive(0ns, 0ns));
    CHECK(context.run() == 0);
    CHECK_THROWS_AS(asio_guest(context, idle::spin{}), asio::service_already_exists);
    asio_guest again(context);
    CHECK(&again.owner() == &on.owner());
    context.restart();
    int naps = 0;
    for (int n = 0; n < 5; ++n) on.run(sleep_for(1ms), [&](std::exception_ptr) { ++naps; });
    context.run_for(20s);
    CHECK(naps == 5);
    CHECK(context.stopped());
}

TEST_CASE("a keeper keeps the context running while nothing is awaited") {
    asio::io_context context;
    asio_guest on(context);
    std::atomic<int> posted{0};
    {
        const auto keeps = on.keep();
        std::thread other([&] {
            for (int n = 0; n < 100; ++n) {
                on.owner().post([&] { ++posted; });
                while (posted.load() <= n) std::this_thread::yield();
            }
            on.owner().post([&] { context.stop(); });
        });
        context.run_for(20s);
        other.join();
    }
    CHECK(posted == 100);
    context.restart();
    context.run_for(20s);
    CHECK(context.stopped());
}

namespace {

/// Until the guest sleeps: the context waits, and has armed what wakes it.
void run_until_parked(asio::io_context& context, const std::atomic<int>& parks) {
    for (int rounds = 0; parks.load() < 1 && rounds < 1000; ++rounds) context.run_for(1ms);
    context.run_for(5ms);
    REQUIRE(parks.load() >= 1);
}

}  // namespace

TEST_CASE("a lack of memory while an operation begins leaves nothing of it behind") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    unsigned failed = 0;
    for (std::size_t n = 1;; ++n) {
        CAPTURE(n);
        asio::io_context io;
        const asio_guest guest(io);
        asio::cancellation_signal cancel;
        event never;
        int calls = 0;
        bool begun = true;
        fail_allocation(n);
        try {
            guest.run(never.wait(),
                      asio::bind_cancellation_slot(
                          cancel.slot(), [&](const std::exception_ptr& why) { calls += why ? 1 : 100; }));
        } catch (const std::bad_alloc&) {
            begun = false;
        }
        const bool enough = allocation_is_to_fail();
        fail_allocation(0);
        failed += begun ? 0 : 1;
        cancel.emit(asio::cancellation_type::all);
        io.run();
        CHECK(calls == (begun ? 1 : 0));
        CHECK(begun == enough);
        if (enough) break;
    }
    CHECK(failed >= 2);  // the operation, its cancellation slot
}

TEST_CASE("a lack of memory takes no turn from a guest that is awakened nor from one whose handler threw") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    asio::io_context context;
    std::atomic<int> parks{0};
    asio_guest on(context, parks_at_once{&parks});
    event go;
    bool ended = false;
    on.run(go.wait(), [&](std::exception_ptr why) { ended = !why; });
    run_until_parked(context, parks);
    {
        const failing_allocations all(0, std::numeric_limits<std::size_t>::max());
        aligned_memory_is_short = true;
        on.owner().poll();  // outside of the context, which has no memory of its own here
        aligned_memory_is_short = false;
    }
    std::jthread other([&] { on.owner().post([&] { go.set(); }); });
    context.run_for(20s);
    CHECK(ended);

    context.restart();
    event first;
    event second;
    int calls = 0;
    std::optional<failing_allocations> none;
    on.run(first.wait(), [&](std::exception_ptr) {
        ++calls;
        none.emplace(0, std::numeric_limits<std::size_t>::max());
        throw 5;
    });
    on.run(second.wait(), [&](std::exception_ptr) { ++calls; });
    first.set();
    second.set();
    try {
        context.run_for(20s);
    } catch (int) {}
    none.reset();
    context.run_for(20s);
    CHECK(calls == 2);
    CHECK(context.stopped());
}

TEST_CASE("a handler that runs the scheduler leaves it awake for what comes later") {
    const std::string how = GENERATE(as<std::string>(), "by run", "by the end of a task group",
                                     "by the end of a root task", "by poll");
    INFO(how);
    asio::io_context context;
    std::atomic<int> parks{0};
    asio_guest on(context, parks_at_once{&parks});
    event go;
    bool ended = false;
    on.run(go.wait(), [&](std::exception_ptr why) { ended = !why; });
    std::optional<task_group> others(std::in_place);
    std::optional<root_task<>> root;
    if (how == "by the end of a task group") {
        on.run(
            [](task_group& in) -> task<> {
                in.spawn([]() -> task<> { co_await sleep_for(1h); });
                co_return;
            }(*others),
            [](std::exception_ptr) {});
    } else if (how == "by the end of a root task") {
        root.emplace(on.owner(), []() -> task<> { co_await sleep_for(1h); }());
    }
    run_until_parked(context, parks);
    asio::post(context, [&] {
        if (how == "by run") {
            on.owner().run([]() -> task<> { co_await sleep_for(1ms); }());
        } else if (how == "by poll") {
            on.owner().poll();
        } else {
            others.reset();
            root.reset();
        }
    });
    context.run_for(20ms);
    CHECK_FALSE(ended);
    std::jthread other([&] { on.owner().post([&] { go.set(); }); });
    context.run_for(20s);
    CHECK(ended);
    CHECK(context.stopped());
}

TEST_CASE("a coroutine that a handler makes ready goes on after a poll") {
    asio::io_context context;
    std::atomic<int> parks{0};
    asio_guest on(context, parks_at_once{&parks});
    event go;
    bool ended = false;
    on.run(go.wait(), [&](std::exception_ptr why) { ended = !why; });
    run_until_parked(context, parks);
    asio::post(context, [&] {
        go.set();
        on.owner().poll();
    });
    context.run_for(20s);
    CHECK(ended);
    CHECK(context.stopped());
}

TEST_CASE("the context of a handler's own executor runs until the handler was called") {
    asio::io_context context;
    asio::io_context other;
    asio_guest on(context);
    bool called = false;
    on.run(sleep_for(20ms), asio::bind_executor(other, [&](std::exception_ptr why) { called = !why; }));
    std::jthread guests([&] { context.run_for(20s); });
    CHECK(other.run_for(20s) == 1);
    CHECK(called);
}

namespace {

/// Sends so many messages, each when the receiver is about to sleep once more: while it arms, or right after.
template <class T>
task<> send_to_sleepers(std::string at, std::promise<std::string>& told, std::atomic<int>& parks,
                        int messages) {
    auto listening = co_await listen<T>(at);
    told.set_value(listening.address());
    auto peer = co_await listening.accept();
    for (int n = 0; n < messages; ++n) {
        const int before = parks.load();
        co_await peer.send(bytes_of(n));
        while (parks.load() == before) co_await yield();
    }
    char end = 0;
    static_cast<void>(co_await as_result(peer.recv(bytes_of(end))));
}

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "a context that goes to sleep while a message comes wakes, a hundred thousand times over shared memory",
    "", both_kinds) {
    using T = typename TestType::transport_type;
    constexpr int messages = T::name == shm::name ? 100'000 : 20'000;
    std::atomic<int> parks{0};
    std::promise<std::string> told;
    auto listens = told.get_future();
    std::jthread server([&](std::stop_token stop) {
        try {
            scheduler there(idle::yield{});
            there.run(send_to_sleepers<T>(TestType::address(), told, parks, messages), stop);
        } catch (...) {  // it was stopped: the test failed
        }
    });
    const std::string url = listens.get();
    asio::io_context context;
    asio_guest on(context, parks_at_once{&parks});
    run_in(context, [&]() -> asio::awaitable<void> {
        auto peer = co_await on.run(connect<T>(url));
        for (int n = 0; n < messages; ++n) {
            int got = -1;
            co_await on.run(peer.recv(bytes_of(got)));
            if (got != n) throw std::runtime_error("another message");
        }
        co_await on.run(peer.close());
    });
    CHECK(parks >= messages);
}

TEST_CASE("a context that goes to sleep while another thread posts wakes, a hundred thousand times") {
    constexpr int posts = 100'000;
    std::atomic<int> parks{0};
    std::atomic<bool> over{false};
    asio::io_context context;
    asio_guest on(context, parks_at_once{&parks});
    const auto keeps = on.keep();
    int posted = 0;
    std::jthread other([&] {
        for (int n = 0; n < posts && !over; ++n) {
            const int before = parks.load();
            on.owner().post([&] { ++posted; });
            while (parks.load() == before && !over) std::this_thread::yield();
        }
        on.owner().post([&] { context.stop(); });
    });
    context.run_for(100s);
    over = true;
    CHECK(posted == posts);
    CHECK(parks >= posts);
}

}  // namespace test_adapters_asio
