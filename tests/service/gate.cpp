#include <rdmacoro/service/gate.hpp>

#include "support/calls_pair.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/nodes.hpp"

#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// A message that tells where it is from.
struct numbered {
    std::uint32_t thread = 0;
    std::uint32_t number = 0;
    std::array<std::byte, 56> rest{};
};

/// Both ends of a connection on this thread, calls and a gate at the one end; `body(gate, pair, shop)`.
template <class T, class Body>
void run_gate(Body body, const gate_options& options = {}, const std::string& url = fresh_url<T>()) {
    scheduler on;
    on.run([](Body run, const gate_options& limits, std::string at) -> task<> {
        auto listening = co_await listen<T>(at);
        auto accepting = start(listening.accept());
        auto a = co_await connect<T>(listening.address());
        auto b = co_await accepting;
        shop there;
        {
            calls<T> server(b, there.store);
            calls<T> client(a);
            gate through(client, limits);
            co_await timeout(run(through, b, there), 60s);
        }
        a.abort();
    }(std::move(body), options, url));
}

/// Runs `work` on a thread while the scheduler runs; ends with what it returned or threw.
template <class Work>
auto on_thread(Work work) -> task<std::invoke_result_t<Work&>> {
    event ended;
    scheduler& here = *scheduler::current();
    std::packaged_task<std::invoke_result_t<Work&>()> packed(std::move(work));
    auto result = packed.get_future();
    std::jthread runs([&] {
        packed();
        here.post([&ended] { ended.set(); });
    });
    co_await without_stop(ended.wait());
    runs.join();
    co_return result.get();
}

std::error_code code_of(const std::function<void()>& what) {
    try {
        what();
    } catch (const std::system_error& failed) {
        return failed.code();
    }
    return {};
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a thread calls through a gate, and sleeps until the answer is there", "",
                        node_transports) {
    run_gate<TestType>([](auto& through, auto&, shop&) -> task<> {
        auto work = [pass = through.pass()]() mutable {
            const std::string colour = pass.call(kv::get, "colour").get();
            const auto sum = pass.call(kv::add, 40U, std::uint64_t{2}).get();
            const auto many = pass.call(kv::fill, 100000U).get();
            std::vector<float> place(200);
            const std::size_t in_place = pass.call_into(std::span(place), kv::fill, 150U).get();
            pass.cast(kv::note, "a note").get();
            const auto failed = pass.call(kv::fail, 0).get_result();
            std::string text;
            try {
                static_cast<void>(pass.call(kv::get, "shape").get());
            } catch (const error& thrown) {
                text = thrown.what();
            }
            return colour + ' ' + std::to_string(sum) + ' ' + std::to_string(many.size()) + ' ' +
                   std::to_string(in_place) + (failed.error() == errc::access_denied ? " denied " : " ") +
                   text;
        };
        const std::string got = co_await on_thread(std::move(work));
        CHECK_THAT(got, Catch::Contains("red 42 100000 150 denied ") && Catch::Contains("there is no shape"));
    });
}

TEMPLATE_LIST_TEST_CASE("many threads' messages all arrive once, each thread's in order", "",
                        node_transports) {
    run_gate<TestType>([](auto& through, auto& peer, shop&) -> task<> {
        constexpr std::uint32_t threads = 16;
        constexpr std::uint32_t each = 2000;
        std::vector<std::jthread> all;
        for (std::uint32_t t = 0; t < threads; ++t) {
            all.emplace_back([t, pass = through.pass()]() mutable {
                for (numbered one{.thread = t}; one.number < each; ++one.number) {
                    if (one.number % 2 == 0) {
                        pass.send(bytes_of(one), 7);
                    } else {
                        while (!pass.try_send(bytes_of(one), 7)) std::this_thread::yield();
                    }
                }
            });
        }
        std::array<std::uint32_t, threads> next{};
        std::uint32_t wrong = 0;
        for (std::uint32_t n = 0; n < threads * each; ++n) {
            numbered got;
            co_await peer.recv(bytes_of(got), 7);
            if (got.thread >= threads || got.number != next[got.thread]++) ++wrong;
        }
        CHECK(wrong == 0);
        CHECK(through.lanes() == threads);
        all.clear();
        const auto another = through.pass();
        CHECK(through.lanes() == threads);
    });
}

TEST_CASE("a full gate makes a thread wait, or fail, as it asks") {
    run_gate<shm>(
        [](auto& through, auto& peer, shop&) -> task<> {
            auto pass = through.pass();
            numbered one;
            // This thread is the gate's: nothing leaves the gate meanwhile.
            std::size_t put = 0;
            while (pass.try_send(bytes_of(one), 7)) {
                ++put;
                ++one.number;
            }
            CHECK(put >= 2);
            CHECK(put <= 8);
            CHECK(code_of([&] { pass.send(bytes_of(one), 7); }) == errc::invalid_argument);
            CHECK(code_of([&] { pass.flush(); }) == errc::invalid_argument);
            CHECK(code_of([&] { static_cast<void>(pass.call(kv::wait).get()); }) == errc::invalid_argument);
            auto work = [&pass, one, put]() mutable {
                pass.send(bytes_of(one), 7);  // waits, as the gate's thread gets to it only now
                pass.flush();
                return put + 1;
            };
            const std::size_t sent = co_await on_thread(std::move(work));
            std::size_t wrong = 0;
            for (std::size_t n = 0; n < sent; ++n) {
                numbered got;
                co_await peer.recv(bytes_of(got), 7);
                if (got.number != n) ++wrong;
            }
            CHECK(wrong == 0);
            const std::vector<std::byte> longer(1000);
            CHECK(code_of([&] { static_cast<void>(pass.try_send(longer, 7)); }) == errc::message_too_long);
        },
        {.messages = 8, .message_bytes = 64});
}

TEMPLATE_LIST_TEST_CASE("a long message goes from where it is, and its thread waits for that", "",
                        node_transports) {
    run_gate<TestType>([](auto& through, auto& peer, shop&) -> task<> {
        std::vector<std::byte> got(300000);
        auto receiving = start(peer.recv(got, 7));
        auto work = [pass = through.pass()]() mutable {
            std::vector<std::byte> once(100000, std::byte{1});
            const std::vector<std::byte> twice(200000, std::byte{2});
            const std::span<const std::byte> pieces[] = {once, twice};
            pass.send(const_buffers{std::span<const std::span<const std::byte>>(pieces)}, 7);
            once.assign(once.size(), std::byte{3});
        };
        co_await on_thread(std::move(work));
        const auto ended = co_await receiving;
        CHECK(ended.bytes == 300000);
        CHECK(got[0] == std::byte{1});
        CHECK(got[99999] == std::byte{1});
        CHECK(got[100000] == std::byte{2});
        CHECK(got[299999] == std::byte{2});
    });
}

TEMPLATE_LIST_TEST_CASE("a coroutine of another thread's scheduler awaits calls, and is resumed there", "",
                        node_transports) {
    run_gate<TestType>([](auto& through, auto&, shop& there) -> task<> {
        auto work = [pass = through.pass()]() mutable {
            scheduler mine;
            return mine.run([](auto& by) -> task<std::string> {
                const auto here = std::this_thread::get_id();
                std::string said = co_await by.call(kv::get, "colour");
                if (std::this_thread::get_id() != here) said += " elsewhere";
                std::vector<std::uint64_t> sums(100);
                task_group some;
                for (std::size_t n = 0; n < sums.size(); ++n) {
                    some.spawn([&by, &sums, n]() -> task<> {
                        sums[n] = co_await by.call(kv::add, std::uint64_t{n}, std::uint64_t{1});
                    });
                }
                co_await some.join();
                for (std::size_t n = 0; n < sums.size(); ++n) {
                    if (sums[n] != n + 1) said += " wrong";
                }
                const auto late = co_await as_result(timeout(by.call(kv::wait), 20ms));
                if (late.error() != errc::timed_out) said += " not in time";
                local_stop_source stop;
                auto waiting = with_stop(by.call(kv::wait), stop.get_token());
                task_group stopping;
                stopping.spawn([&stop]() -> task<> {
                    co_await sleep_for(1ms);
                    stop.request_stop();
                });
                const auto stopped = co_await as_result(waiting);
                if (stopped.error() != errc::canceled) said += " not stopped";
                co_await stopping.join();
                co_return said;
            }(pass));
        };
        const std::string said = co_await on_thread(std::move(work));
        CHECK(said == "red");
        while (there.waiting != 0) co_await yield();
    });
}

TEMPLATE_LIST_TEST_CASE("a thread's call has a limit, of which the peer is told", "", node_transports) {
    run_gate<TestType>([](auto& through, auto&, shop& there) -> task<> {
        auto work = [pass = through.pass()]() mutable {
            const std::error_code late = code_of([&] { pass.call(kv::wait).get(10ms); });
            auto slow = pass.call(kv::wait);
            const bool ended = slow.wait_for(1ms);
            slow.stop();
            return std::pair(late, std::pair(ended, slow.get_result().error()));
        };
        const auto got = co_await on_thread(std::move(work));
        CHECK((got.first == errc::timed_out || got.first == call_errc::expired));
        CHECK(!got.second.first);
        CHECK(got.second.second == errc::canceled);
        while (there.waiting != 0) co_await yield();
    });
}

TEST_CASE("a peer that reads nothing keeps no other from its messages") {
    scheduler on;
    on.run([]() -> task<> {
        node<shm> here(1);
        node<shm> deaf(2);
        node<shm> other(3);
        const std::string deaf_url = co_await deaf.listen(fresh_url<shm>());
        const std::string other_url = co_await other.listen(fresh_url<shm>());
        here.add({.id = 2, .urls = {deaf_url}});
        here.add({.id = 3, .urls = {other_url}});
        auto listens = deaf.peer(1);
        auto hears = other.peer(1);
        gate through(here);
        constexpr std::uint32_t count = 3000;
        std::atomic<std::uint64_t> refused{0};
        std::vector<std::jthread> threads;
        std::atomic<bool> enough{false};
        for (std::uint32_t t = 0; t < 4; ++t) {
            threads.emplace_back([&, t, pass = through.pass()]() mutable {
                // More than the deaf one's credit: in the end it takes nothing.
                for (numbered one{.thread = t}; one.number < count; ++one.number) {
                    for (int n = 0; n < 20; ++n) {
                        if (!pass.try_send(2, bytes_of(one), 9)) refused.fetch_add(1);
                    }
                    pass.send(3, bytes_of(one), 7);
                }
                while (!enough) {
                    numbered one;
                    if (!pass.try_send(2, bytes_of(one), 9)) enough = true;
                }
            });
        }
        std::uint32_t wrong = 0;
        std::array<std::uint32_t, 4> next{};
        for (std::uint32_t n = 0; n < count * 4; ++n) {
            numbered got;
            co_await timeout(hears.recv(bytes_of(got), 7), 30s);
            if (got.thread >= 4 || got.number != next[got.thread]++) ++wrong;
        }
        CHECK(wrong == 0);
        while (!enough) co_await yield();
        threads.clear();
        CHECK(refused.load() + 1 > 0);
    }());
}

TEST_CASE("a thread that ends in the middle holds no other up") {
    run_gate<shm>([](auto& through, auto& peer, shop& there) -> task<> {
        // By an exception, with a call under way and messages that nobody waits for.
        std::atomic<bool> both_run{false};
        auto unwound = [&both_run, pass = through.pass()]() mutable {
            numbered one{.thread = 1};
            pass.send(bytes_of(one), 7);
            auto under_way = pass.call(kv::wait);
            try {
                auto inner = pass.call(kv::wait);
                static_cast<void>(under_way.wait_for(duration::zero()));
                static_cast<void>(inner.wait_for(duration::zero()));
                while (!both_run) std::this_thread::yield();
                throw 1;
            } catch (int) {}
        };
        task_group dying;
        dying.spawn([&]() -> task<> { co_await on_thread(std::move(unwound)); });
        while (there.waiting != 2) co_await yield();
        both_run = true;
        co_await dying.join();
        // By the end of the thread alone: its pass is never destroyed, and its room stays taken.
        auto* const kept = new auto(through.pass());
        auto vanished = [kept] {
            numbered one{.thread = 2};
            kept->send(bytes_of(one), 7);
            static_cast<void>(kept->try_send(bytes_of(one), 7));
        };
        co_await on_thread(std::move(vanished));
        auto goes_on = [pass = through.pass()]() mutable {
            for (numbered one{.thread = 3}; one.number < 1000; ++one.number) pass.send(bytes_of(one), 7);
            return pass.call(kv::get, "colour").get();
        };
        task_group some;
        std::string colour;
        some.spawn([&]() -> task<> { colour = co_await on_thread(std::move(goes_on)); });
        std::array<std::uint32_t, 4> heard{};
        for (std::uint32_t n = 0; n < 1003; ++n) {
            numbered got;
            co_await peer.recv(bytes_of(got), 7);
            ++heard.at(got.thread);
        }
        co_await some.join();
        CHECK(colour == "red");
        CHECK(heard == std::array<std::uint32_t, 4>{0, 1, 2, 1000});
        while (there.waiting != 0) co_await yield();
        CHECK(there.stopped == 2);
        delete kept;
    });
}

TEMPLATE_LIST_TEST_CASE("the end of a gate ends a thousand calls, and all that wait", "", node_transports) {
    scheduler on;
    on.run([]() -> task<> {
        auto listening = co_await listen<TestType>(fresh_url<TestType>());
        auto accepting = start(listening.accept());
        auto a = co_await connect<TestType>(listening.address());
        auto b = co_await accepting;
        shop there;
        std::atomic<std::size_t> ended{0};
        std::atomic<std::size_t> closed{0};
        std::atomic<std::size_t> begun{0};
        std::vector<std::jthread> threads;
        {
            calls<TestType> server(b, there.store);
            calls<TestType> client(a);
            {
                gate through(client, {.messages = 8});
                for (int t = 0; t < 4; ++t) {
                    threads.emplace_back([&, pass = through.pass()]() mutable {
                        using call_type = decltype(pass.call(kv::wait));
                        std::vector<std::unique_ptr<call_type>> all;
                        for (int n = 0; n < 250; ++n) {
                            all.push_back(std::make_unique<call_type>(pass.call(kv::wait)));
                            static_cast<void>(all.back()->wait_for(duration::zero()));
                            ++begun;
                        }
                        for (auto& one : all) {
                            if (one->get_result().error() == errc::closed) ++closed;
                            ++ended;
                        }
                        // Afterwards everything is an error, at once.
                        if (code_of([&] { pass.call(kv::wait).get(); }) == errc::closed) ++closed;
                        numbered one;
                        if (code_of([&] {
                                for (;;) pass.send(bytes_of(one), 7);
                            }) == errc::closed)
                            ++closed;
                    });
                }
                // Two that wait for room, and for the end: nobody receives these.
                threads.emplace_back([&, pass = through.pass()]() mutable {
                    const std::vector<std::byte> message(200);
                    if (code_of([&] {
                            for (;;) pass.send(message, 9);
                        }) == errc::closed)
                        ++closed;
                });
                threads.emplace_back([&, pass = through.pass()]() mutable {
                    const std::vector<std::byte> endless(100'000'000);
                    if (code_of([&] { pass.send(endless, 9); }) == errc::closed) ++closed;
                });
                while (begun != 1000) co_await yield();
            }
            while (ended != 1000) co_await yield();
            threads.clear();
            CHECK(closed == 1000 + 4 * 2 + 2);
        }
        a.abort();
    }());
}

TEST_CASE("a thread's messages through a gate allocate nothing") {
    if (!counts_allocations) return;
    run_gate<shm>([](auto& through, auto& peer, shop&) -> task<> {
        auto work = [pass = through.pass()]() mutable {
            std::size_t made = 0;
            for (int round = 0; round < 3; ++round) {
                const std::size_t before = allocations();
                for (numbered one; one.number < 2000; ++one.number) pass.send(bytes_of(one), 7);
                pass.flush();
                made = allocations() - before;
            }
            return made;
        };
        task_group some;
        std::size_t made = 1;
        some.spawn([&]() -> task<> { made = co_await on_thread(std::move(work)); });
        std::size_t before = 0;
        for (int n = 0; n < 6000; ++n) {
            if (n == 4000) before = allocations();
            numbered got;
            co_await peer.recv(bytes_of(got), 7);
        }
        CHECK(allocations() == before);  // nor does the gate's own thread
        co_await some.join();
        CHECK(made == 0);
    });
}

TEST_CASE("a gate through a node sends and calls by id; an error comes with flush") {
    scheduler on;
    on.run([]() -> task<> {
        shop there;
        node<shm> far(9);
        std::optional<node_calls<shm>> serves(far);
        serves->serve(there.store);
        node<shm> here(1);
        std::optional<node_calls<shm>> peers(here);
        const std::string url = co_await far.listen(fresh_url<shm>());
        here.add({.id = 9, .urls = {url}});
        auto hears = far.peer(1);
        {
            gate through(*peers);
            auto work = [pass = through.pass()]() mutable {
                std::string said = pass.call(9, kv::get, "colour").get();
                pass.send(9, std::string_view("hello"), 7);
                pass.flush();
                pass.send(4, std::string_view("hello"), 7);  // not in the address book
                pass.send(9, std::string_view("again"), 7);
                try {
                    pass.flush();
                } catch (const error& failed) {
                    said += std::string(" ") + failed.what();
                }
                pass.flush();
                return said;
            };
            const std::string said = co_await on_thread(std::move(work));
            CHECK_THAT(said, Catch::Contains("red") && Catch::Contains("node 4"));
            const std::string first = co_await hear(hears, 7);
            const std::string second = co_await hear(hears, 7);
            CHECK(first == "hello");
            CHECK(second == "again");
        }
        co_await here.close();
        co_await far.close();
    }());
}

TEST_CASE("a gate that is destroyed on another thread ends the process with a message") {
    const death seen = dies([] {
        run_gate<shm>([](auto& through, auto&, shop&) -> task<> {
            std::thread([&through] {
                using type = std::remove_reference_t<decltype(through)>;
                std::destroy_at(static_cast<type*>(&through));
            }).join();
            co_return;
        });
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, Catch::Contains("a gate of") && Catch::Contains("was destroyed"));
}
