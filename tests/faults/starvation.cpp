// A coroutine whose operations all end at once, over shared memory and in one thread: timers, posted functions, stop tokens and
// other links have their turn all the same.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/gate.hpp>

#include "support/bytes.hpp"
#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/over/fresh_name.hpp"
#include "support/run.hpp"

#include <atomic>
#include <csignal>
#include <functional>
#include <future>
#include <stop_token>
#include <system_error>
#include <thread>
#include <vector>

#include <pthread.h>

namespace test_faults_starvation {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

time_point real_now() { return monotonic_clock::instance().now(); }

void compute_for(duration time) {
    const time_point until = real_now() + time;
    while (real_now() < until) {}
}

/// Two ends of a link, both on the scheduler that runs.
struct both_ends {
    endpoint<shm> near;
    endpoint<shm> far;
};

task<both_ends> open_link(shm::domain& in) {
    auto listening = co_await listen<shm>(in, fresh_name());
    auto accepting = start(listening.accept());
    auto near = co_await connect<shm>(in, listening.address());
    auto far = co_await accepting;
    co_return both_ends{std::move(near), std::move(far)};
}

/// Operations that end at once, again and again.
using step = std::function<task<>()>;

/// How late the others may be on a busy machine. Measured: some milliseconds with a sanitizer; without turns for others: for ever.
constexpr duration patience = 5s;

/// Steps until `over` is set by the others. False when that takes longer than it may.
task<bool> rounds_until(const bool& over, step& next) {
    const time_point give_up = real_now() + patience;
    while (!over) {
        co_await next();
        if (real_now() > give_up) co_return false;
    }
    co_return true;
}

task<> rounds_for(duration time, step& next) {
    const time_point until = real_now() + time;
    while (real_now() < until) co_await next();
}

/// Runs `body(one step)` with each kind of steps; `by_token`: only those that a stop token ends.
task<> with_each_kind(std::function<task<>(step&)> body, bool by_token = false) {
    shm::domain in(*scheduler::current());
    both_ends link = co_await open_link(in);
    SECTION("messages") {
        step next = [&]() -> task<> {
            std::uint64_t value = 1;
            co_await link.near.send(bytes_of(value), 7);
            co_await link.far.recv(room_for(value), 7);
        };
        co_await body(next);
    }
    SECTION("gets") {
        std::vector<std::byte> there(8);
        std::vector<std::byte> here(8);
        const region open = in.register_memory(there, access_rights::all);
        const remote_region remote = open.remote();
        step next = [&]() -> task<> { co_await link.near.rdma_get(remote, here); };
        co_await body(next);
    }
    SECTION("a channel") {
        channel<int> numbers(4);
        step next = [&]() -> task<> {
            co_await numbers.send(1);
            co_await numbers.receive();
        };
        co_await body(next);
    }
    SECTION("an event") {
        event is_set(true);
        step next = [&]() -> task<> { co_await is_set.wait(); };
        co_await body(next);
    }
    SECTION("a semaphore, through adaptors") {
        semaphore permits(1);
        local_stop_source never;
        step next = [&]() -> task<> {
            co_await timeout(with_stop(permits.acquire(), never.get_token()), 1h);
            permits.release();
        };
        co_await body(next);
    }
    SECTION("started operations") {
        event is_set(true);
        step next = [&]() -> task<> {
            auto begun = start(is_set.wait());
            co_await is_set.wait();  // a stopped token does not take the value of what has ended already
            co_await begun;
        };
        co_await body(next);
    }
    if (!by_token) {
        SECTION("started tasks") {
            event is_set(true);
            const auto one = [&]() -> task<> { co_await is_set.wait(); };
            step next = [&]() -> task<> { co_await start(one()); };
            co_await body(next);
        }
        SECTION("a window of tasks") {
            event is_set(true);
            const auto one = [&]() -> task<> { co_await is_set.wait(); };
            window<task<>> begun(2);
            step next = [&]() -> task<> { co_await begun.add(one()); };
            co_await body(next);
            co_await begun.all();
        }
        SECTION("a yield in a scope that was stopped") {
            local_stop_source stopped;
            stopped.request_stop();
            step next = [&]() -> task<> {
                static_cast<void>(co_await as_result(with_stop(yield(), stopped.get_token())));
            };
            co_await body(next);
        }
        SECTION("started operations that wait, in a scope that was stopped") {
            local_stop_source stopped;
            stopped.request_stop();
            event never;
            step next = [&]() -> task<> {
                auto begun = start(never.wait());
                static_cast<void>(co_await as_result(with_stop(begun, stopped.get_token())));
            };
            co_await body(next);
        }
        SECTION("a group that is destroyed while its task is ready") {
            event is_set(true);
            step next = [&]() -> task<> {
                {
                    task_group others;
                    others.spawn([]() -> task<> { co_return; });
                }
                co_await is_set.wait();
            };
            co_await body(next);
        }
        SECTION("a listener that is destroyed") {
            event is_set(true);
            step next = [&]() -> task<> {
                static_cast<void>(co_await listen<shm>(in, fresh_name()));
                co_await is_set.wait();
            };
            co_await body(next);
        }
        SECTION("connections that are refused, and listeners at a malformed address") {
            step next = [&]() -> task<> {
                const std::string nobody = "shm://nobody-listens";
                const auto refused = co_await as_result(connect<shm>(in, nobody));
                CHECK(refused.error() == errc::connection_refused);
                const auto malformed = co_await as_result(listen<shm>(in, "tcp://127.0.0.1:1"));
                CHECK(malformed.error() == errc::address_invalid);
            };
            co_await body(next);
        }
        SECTION("a window in a scope that was stopped") {
            local_stop_source stopped;
            stopped.request_stop();
            window<task<>> never(2);
            const auto one = []() -> task<> { co_return; };
            step next = [&]() -> task<> {
                static_cast<void>(co_await as_result(with_stop(never.add(one()), stopped.get_token())));
            };
            co_await body(next);
        }
    }
    SECTION("several at a time") {
        event is_set(true);
        step next = [&]() -> task<> {
            co_await when_all(is_set.wait(), is_set.wait());
            co_await when_any(is_set.wait(), is_set.wait());
        };
        co_await body(next);
    }
    SECTION("the end of an empty group") {
        task_group none;
        step next = [&]() -> task<> { co_await none.join(); };
        co_await body(next);
    }
}

}  // namespace

TEST_CASE("a timer expires beside a coroutine whose operations all end at once") {
    scheduler on;
    on.run(with_each_kind([](step& next) -> task<> {
        bool expired = false;
        task_group beside;
        beside.spawn([&]() -> task<> {
            co_await sleep_for(10ms);
            expired = true;
        });
        const bool heard = co_await rounds_until(expired, next);
        CHECK(heard);
        co_await beside.join();
    }));
}

TEST_CASE("a posted function is called beside a coroutine whose operations all end at once") {
    scheduler on;
    on.run(with_each_kind([](step& next) -> task<> {
        bool called = false;
        std::thread other([&called, s = scheduler::current()] { s->post([&called] { called = true; }); });
        const bool heard = co_await rounds_until(called, next);
        CHECK(heard);
        other.join();
    }));
}

TEST_CASE("a stop token reaches a coroutine whose operations all end at once") {
    scheduler on;
    std::stop_source stop;
    std::thread other;
    bool canceled = false;
    on.run(with_each_kind(
               [&](step& next) -> task<> {
                   other = std::thread([&] { stop.request_stop(); });
                   try {
                       co_await rounds_for(patience, next);
                   } catch (const error& ended) {
                       canceled = ended.code() == errc::canceled;
                   }
               },
               true),
           stop.get_token());
    other.join();
    CHECK(canceled);
}

TEST_CASE("timeout ends a coroutine whose operations all end at once") {
    scheduler on;
    on.run(with_each_kind(
        [](step& next) -> task<> {
            const auto ended = co_await as_result(timeout(rounds_for(patience, next), 20ms));
            CHECK(ended.error() == errc::timed_out);
        },
        true));
}

TEST_CASE("the messages of another link are answered beside a coroutine whose operations all end at once") {
    scheduler on;
    on.run(with_each_kind([](step& next) -> task<> {
        shm::domain in(*scheduler::current());
        both_ends other = co_await open_link(in);
        bool answered = false;
        task_group beside;
        beside.spawn([&]() -> task<> {
            std::uint64_t value = 0;
            co_await other.far.recv(room_for(value));
            co_await other.far.send(bytes_of(value));
        });
        beside.spawn([&]() -> task<> {
            std::uint64_t value = 5;
            co_await other.near.send(bytes_of(value));
            co_await other.near.recv(room_for(value));
            answered = true;
        });
        const bool heard = co_await rounds_until(answered, next);
        CHECK(heard);
        co_await beside.join();
    }));
}

TEST_CASE(
    "a new link, a gate and a signal are heard beside coroutines that yield, or sleep for no time, again and "
    "again") {
    const bool sleeps = GENERATE(false, true);
    const int loops = GENERATE(1, 100);
    CAPTURE(sleeps, loops);
    scheduler on;
    on.run([](bool by_timer, int count) -> task<> {
        bool over = false;
        const auto spins = [&over, by_timer]() -> task<> {
            while (!over) {
                if (by_timer) {
                    co_await sleep_for(duration::zero());
                } else {
                    co_await yield();
                }
            }
        };
        task_group beside;
        for (int n = 0; n < count; ++n) beside.spawn(spins);

        shm::domain in(*scheduler::current());
        both_ends link = co_await timeout(open_link(in), patience);
        {
            gate through(link.near);
            std::atomic<bool> sent{false};
            std::jthread sender([pass = through.pass(), &sent]() mutable {
                const std::uint64_t number = 7;
                pass.send(bytes_of(number), 3);
                pass.flush();
                sent = true;
            });
            std::uint64_t value = 0;
            const auto got = co_await as_result(timeout(link.far.recv(room_for(value), 3), patience));
            CHECK(got.error() == std::error_code());
            CHECK(value == 7);
            for (const time_point give_up = real_now() + patience; !sent && real_now() < give_up;)
                co_await yield();
            CHECK(sent);
        }
        {
            signals hang_up{SIGHUP};
            ::pthread_kill(::pthread_self(), SIGHUP);
            const auto got = co_await as_result(timeout(hang_up.next(), patience));
            CHECK(got.error() == std::error_code());
        }
        over = true;
        co_await beside.join();
    }(sleeps, loops));
}

namespace {
/// Sends and receives as fast as it can, until the peer closes.
void flood(const std::string& address) {
    scheduler on;
    on.run([](const std::string& where) -> task<> {
        auto end = co_await connect<shm>(where);
        task_group both;
        both.spawn([&end]() -> task<> {
            std::uint64_t value = 0;
            while (co_await as_result(end.send(bytes_of(value)))) {}
        });
        both.spawn([&end]() -> task<> {
            std::uint64_t value = 0;
            while (co_await as_result(end.recv(room_for(value)))) {}
        });
        co_await both.join();
    }(address));
}
}  // namespace

TEST_CASE("a server with a busy peer and a handler that computes hears its timer and its stop token") {
    child_process child(flood);
    scheduler on;
    std::stop_source stop;
    std::promise<void> expired;
    time_point asked{};
    time_point heard{};
    duration late = 1h;
    std::error_code ended;
    std::jthread other([&, ready = expired.get_future()] {
        ready.wait_for(30s);
        asked = real_now();
        stop.request_stop();
    });
    const auto serve_it = [&]() -> task<> {
        auto listening = co_await listen<shm>(fresh_name());
        child.tell(listening.address());
        auto end = co_await timeout(listening.accept(), 30s);
        int in_a_row = 0;
        task_group beside;
        beside.spawn([&]() -> task<> {
            // Not before messages wait at all times.
            while (in_a_row < 300) co_await yield();
            const time_point due = real_now() + 100ms;
            co_await sleep_until(due);
            late = real_now() - due;
            expired.set_value();
        });
        const auto serve = [&]() -> task<> {
            const time_point give_up = real_now() + 20s;
            std::uint64_t value = 0;
            while (real_now() < give_up) {
                co_await end.recv(room_for(value));
                ++in_a_row;
                compute_for(200us);
                co_await end.send(bytes_of(value));
            }
        };
        const auto how = co_await as_result(serve());
        heard = real_now();
        if (!how) ended = how.error();
    };
    on.run(serve_it(), stop.get_token());
    if (late == 1h) expired.set_value();  // it did not expire
    other.join();
    CHECK(ended == errc::canceled);
    CHECK(late < patience);  // measured: below 1 ms; the defect: seconds
    CHECK(heard - asked < patience);
}

}  // namespace test_faults_starvation
