// Operations and tasks as senders, and a scheduler of the toolkit as one of std::execution.
#include <rdmacoro/adapters/senders.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/shm.hpp>

#include "support/catch.hpp"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <unistd.h>

namespace test_adapters_senders {

using namespace rdmacoro;
using namespace std::chrono_literals;

namespace {

/// A scheduler that runs in a thread of its own.
class own_thread {
public:
    own_thread() {
        std::promise<scheduler*> told;
        auto here = told.get_future();
        thread_ = std::jthread([told = std::move(told)](const std::stop_token& stop) mutable {
            scheduler on;
            told.set_value(&on);
            on.run(until_stopped(), stop);
        });
        on_ = here.get();
    }
    scheduler& on() { return *on_; }
    std::thread::id id() { return thread_.get_id(); }

private:
    static task<> until_stopped() {
        event never;
        static_cast<void>(co_await as_result(never.wait()));
    }
    scheduler* on_ = nullptr;
    std::jthread thread_;
};

task<std::thread::id> where() { co_return std::this_thread::get_id(); }
task<> nothing() { co_return; }
task<int> fails() {
    throw error(errc::peer_lost);
    co_return 1;
}
task<std::unique_ptr<int>> seven() { co_return std::make_unique<int>(7); }
task<> waits(std::promise<void>* begun) {
    event never;
    if (begun != nullptr) begun->set_value();
    co_await never.wait();
}

/// The completion of a receiver.
struct outcome {
    std::string kind;
    std::thread::id on;
};

struct stoppable_env {
    stdexec::inplace_stop_token token;
    [[nodiscard]] auto query(stdexec::get_stop_token_t) const noexcept { return token; }
};

/// Tells what it is completed with.
struct telling {
    using receiver_concept = stdexec::receiver_t;

    void set_value(auto&&...) && noexcept { tell("value"); }
    void set_error(const std::exception_ptr&) && noexcept { tell("error"); }
    void set_stopped() && noexcept { tell("stopped"); }
    [[nodiscard]] stoppable_env get_env() const noexcept { return {token}; }

    void tell(const char* kind) const {
        const auto kept = told;  // the operation may be gone before this has returned
        kept->set_value({kind, std::this_thread::get_id()});
    }

    std::shared_ptr<std::promise<outcome>> told;
    stdexec::inplace_stop_token token;
};

static_assert(stdexec::scheduler<execution_scheduler>);
static_assert(stdexec::sender<execution_scheduler::sender>);
static_assert(stdexec::sender<operation_sender<task<int>>>);
static_assert(stdexec::sender_to<operation_sender<task<int>>, telling>);
static_assert(stdexec::sender_to<execution_scheduler::sender, telling>);

}  // namespace

TEST_CASE("a task as a sender runs on its scheduler's thread, whichever thread waits for it") {
    own_thread server;
    const auto [ran] = stdexec::sync_wait(as_sender(server.on(), where())).value();
    CHECK(ran == server.id());
    CHECK(stdexec::sync_wait(as_sender(server.on(), nothing())).has_value());
    auto [moved] = stdexec::sync_wait(as_sender(server.on(), seven())).value();
    CHECK(*moved == 7);
    const auto [also] =
        stdexec::sync_wait(as_sender(server.on(), where()) |
                           stdexec::then([](std::thread::id) { return std::this_thread::get_id(); }))
            .value();
    CHECK(also == server.id());
}

TEST_CASE("what a task throws is the sender's error") {
    own_thread server;
    try {
        stdexec::sync_wait(as_sender(server.on(), fails()));
        FAIL("it ended without an error");
    } catch (const error& failed) {
        CHECK(failed.code() == errc::peer_lost);
    }
}

TEST_CASE("a scheduler of the toolkit is one of std::execution") {
    own_thread server;
    const execution_scheduler there(server.on());
    CHECK(there == execution_scheduler(server.on()));
    const auto [ran] = stdexec::sync_wait(stdexec::schedule(there) |
                                          stdexec::then([] { return std::this_thread::get_id(); }))
                           .value();
    CHECK(ran == server.id());
    const auto of = stdexec::get_completion_scheduler<stdexec::set_value_t>(
        stdexec::get_env(as_sender(server.on(), nothing())));
    CHECK(of == there);
    CHECK(&of.owner() == &server.on());

    own_thread other;
    CHECK(there != execution_scheduler(other.on()));
    const auto [next] =
        stdexec::sync_wait(
            as_sender(server.on(), where()) | stdexec::continues_on(execution_scheduler(other.on())) |
            stdexec::then([](std::thread::id first) { return std::pair(first, std::this_thread::get_id()); }))
            .value();
    CHECK(next.first == server.id());
    CHECK(next.second == other.id());
}

TEST_CASE("a receiver's stop token stops the operation, on the scheduler's thread") {
    own_thread server;
    stdexec::inplace_stop_source source;
    const auto told = std::make_shared<std::promise<outcome>>();
    std::promise<void> begun;
    auto state = stdexec::connect(as_sender(server.on(), waits(&begun)), telling{told, source.get_token()});
    stdexec::start(state);
    begun.get_future().get();
    source.request_stop();
    const outcome ended = told->get_future().get();
    CHECK(ended.kind == "stopped");
    CHECK(ended.on == server.id());
}

TEST_CASE("an operation that starts with a stopped token does nothing") {
    own_thread server;
    stdexec::inplace_stop_source source;
    source.request_stop();
    bool ran = false;
    const auto runs = [&ran]() -> task<> {
        ran = true;
        co_return;
    };
    const auto told = std::make_shared<std::promise<outcome>>();
    auto state = stdexec::connect(as_sender(server.on(), runs()), telling{told, source.get_token()});
    stdexec::start(state);
    CHECK(told->get_future().get().kind == "stopped");
    CHECK(!ran);

    const auto scheduled = std::make_shared<std::promise<outcome>>();
    auto next = stdexec::connect(stdexec::schedule(execution_scheduler(server.on())),
                                 telling{scheduled, source.get_token()});
    stdexec::start(next);
    const outcome ended = scheduled->get_future().get();
    CHECK(ended.kind == "stopped");
    CHECK(ended.on == server.id());
}

TEST_CASE("the failure of one of several senders stops the others") {
    own_thread server;
    try {
        stdexec::sync_wait(
            stdexec::when_all(as_sender(server.on(), waits(nullptr)), as_sender(server.on(), fails())));
        FAIL("they ended without an error");
    } catch (const error& failed) {
        CHECK(failed.code() == errc::peer_lost);
    }
}

TEST_CASE("a stop that meets the operation's end is heard or too late, and nothing is touched afterwards") {
    own_thread server;
    const auto yields = [](int times) -> task<> {
        for (int i = 0; i < times; ++i) co_await yield();
    };
    for (int round = 0; round < 2000; ++round) {
        stdexec::inplace_stop_source source;
        const auto told = std::make_shared<std::promise<outcome>>();
        auto state = stdexec::connect(as_sender(server.on(), yields(round % 64 * 20)),
                                      telling{told, source.get_token()});
        stdexec::start(state);
        for (int turn = 0; turn < round % 128; ++turn) std::this_thread::yield();
        source.request_stop();
        const std::string kind = told->get_future().get().kind;
        const bool expected = kind == "value" || kind == "stopped";
        CHECK(expected);
    }
}

TEST_CASE("messages go between endpoints by senders") {
    own_thread server;
    own_thread client;
    const std::string url = "shm://senders-" + std::to_string(::getpid());
    std::promise<void> listening;
    auto echo = [&]() -> task<std::size_t> {
        auto listener = co_await listen<shm>(url);
        listening.set_value();
        auto peer = co_await listener.accept();
        std::uint64_t number = 0;
        const received got = co_await peer.recv(bytes_of(number));
        ++number;
        co_await peer.send(bytes_of(number));
        co_await peer.close();
        co_return got.bytes;
    };
    const auto told = std::make_shared<std::promise<outcome>>();
    std::size_t heard = 0;
    stdexec::inplace_stop_source never;
    auto serving = stdexec::connect(as_sender(server.on(), echo()) |
                                        stdexec::then([&heard](std::size_t bytes) { heard = bytes; }),
                                    telling{told, never.get_token()});
    stdexec::start(serving);
    listening.get_future().get();

    auto [peer] = stdexec::sync_wait(as_sender(client.on(), connect<shm>(url))).value();
    std::uint64_t number = 41;
    auto there_and_back =
        stdexec::schedule(execution_scheduler(client.on())) |
        stdexec::let_value([&] { return as_sender(client.on(), peer.send(bytes_of(number))); }) |
        stdexec::let_value([&] { return as_sender(client.on(), peer.recv(bytes_of(number))); });
    const auto [got] = stdexec::sync_wait(std::move(there_and_back)).value();
    CHECK(got.bytes == sizeof number);
    CHECK(number == 42);
    CHECK(told->get_future().get().kind == "value");
    CHECK(heard == sizeof number);
    // An endpoint ends on its scheduler's thread.
    stdexec::sync_wait(stdexec::schedule(execution_scheduler(client.on())) |
                       stdexec::then([&peer] { const auto gone = std::move(peer); }));
}

}  // namespace test_adapters_senders
