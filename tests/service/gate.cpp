#include <rdmacoro/service/gate.hpp>

#include "support/counting_new.hpp"
#include "support/death.hpp"
#include "support/described_stages.hpp"
#include "support/gates.hpp"
#include "support/thread_state.hpp"

#include <algorithm>
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

#include <unistd.h>

#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp/engine.hpp>
#endif

namespace test_service_gate {

using namespace rdmacoro;
using namespace rdmacoro::test;

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
        std::atomic<pid_t> caller{0};
        auto adding = start(on_thread([&caller, pass = through.pass()]() mutable {
            caller = ::gettid();
            return pass.call(kv::add, 40U, std::uint64_t{2}).get();
        }));
        CHECK(falls_asleep(caller));  // no answer comes meanwhile: this thread would bring it
        const std::uint64_t sum = co_await adding;
        CHECK(sum == 42);
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

TEMPLATE_LIST_TEST_CASE("a call does not overtake what its thread put before it", "", node_transports) {
    run_bare<TestType>([](auto& through, auto& peer) -> task<> {
        auto pass = through.pass();
        std::optional<decltype(pass.call(kv::wait))> first;
        std::optional<decltype(pass.call(kv::wait))> second;
        stepping thread(
            [&] {
                for (int n = 0; n < 100; ++n) pass.send(std::string_view("before"), 7);
                first.emplace(pass.call(kv::wait));
                static_cast<void>(first->wait_for(duration::zero()));
                pass.send(std::string_view("between"), 8);
                second.emplace(pass.call(kv::wait));
                static_cast<void>(second->wait_for(duration::zero()));
            },
            [&] {
                first.reset();
                second.reset();
            });
        thread.go();  // all of that while the gate's scheduler does nothing
        std::vector<tag_type> order;
        for (int n = 0; n < 103; ++n) {
            const message got = co_await peer.recv_lent(any_tag);
            order.push_back(got.tag() >> 63 != 0 ? 1 : got.tag());
        }
        CHECK(std::count(order.begin(), order.begin() + 100, 7) == 100);
        CHECK(order[100] == 1);
        CHECK(order[101] == 8);
        CHECK(order[102] == 1);
        thread.begin();
        while (thread.done() != 2) co_await yield();
    });
}

TEST_CASE(
    "a call to a node does not overtake what its thread put before it, also before there is a connection") {
    run_nodes([]() -> task<> {
        node<shm> far(9);
        node<shm> here(1);
        node_calls<shm> peers(here);
        const std::string url = co_await far.listen(fresh_url<shm>());
        here.add({.id = 9, .urls = {url}});
        auto hears = far.peer(1);
        {
            gate through(peers);
            auto pass = through.pass();
            std::optional<decltype(pass.call(9, kv::wait))> call;
            stepping thread(
                [&] {
                    for (int n = 0; n < 20; ++n) pass.send(9, std::string_view("before"), 7);
                    call.emplace(pass.call(9, kv::wait));
                    static_cast<void>(call->wait_for(duration::zero()));
                },
                [&] { call.reset(); });
            thread.go();
            std::vector<tag_type> order;
            for (int n = 0; n < 21; ++n) {
                const message got = co_await hears.recv_lent(any_tag);
                order.push_back(got.tag() >> 63 != 0 ? 1 : got.tag());
            }
            CHECK(std::count(order.begin(), order.begin() + 20, 7) == 20);
            CHECK(order[20] == 1);
            thread.begin();
            while (thread.done() != 2) co_await yield();
        }
        co_await here.close();
        co_await far.close();
    });
}

TEMPLATE_LIST_TEST_CASE("a message that waits for its receive holds no other of the gate up", "",
                        node_transports) {
    run_bare<TestType>([](auto& through, auto& peer) -> task<> {
        const std::vector<std::byte> much(8 << 20, std::byte{9});  // more than a peer keeps unasked
        auto one = through.pass();
        auto two = through.pass();
        stepping first([&] { one.send(much, 9); });
        stepping second([&] { two.send(std::string_view("short"), 8); },
                        [&] {
                            for (int n = 0; n < 100; ++n) two.send(std::string_view("short"), 8);
                            two.flush();
                        },
                        [&] { two.send(much, 10); });
        first.begin();
        co_await peer.probe(9);  // it has begun, and waits for a receive
        second.begin();
        // In the other order than they were sent in.
        const message got = co_await peer.recv_lent(8);
        CHECK(got.size() == 5);
        // A flush is of its own pass.
        second.begin();
        while (second.done() != 2) co_await yield();
        CHECK(first.done() == 0);
        second.begin();
        co_await peer.probe(10);
        std::vector<std::byte> room(much.size());
        co_await peer.recv(room, 10);
        while (second.done() != 3) co_await yield();
        CHECK(first.done() == 0);
        co_await peer.recv(room, 9);
        CHECK(room == much);
        while (first.done() != 1) co_await yield();
        for (int n = 0; n < 100; ++n) static_cast<void>(co_await peer.recv_lent(8));
    });
}

TEMPLATE_LIST_TEST_CASE("a full gate makes a thread wait, or fail, as it asks", "", node_transports) {
    run_gate<TestType>(
        [](auto& through, auto& peer, shop&) -> task<> {
            auto pass = through.pass();
            numbered one;
            // This thread is the gate's: nothing leaves the gate meanwhile.
            std::size_t put = 0;
            while (pass.try_send(bytes_of(one), 7)) {
                ++put;
                ++one.number;
            }
            CHECK(put == 8);
            CHECK(code_of([&] { pass.send(bytes_of(one), 7); }) == errc::invalid_argument);
            CHECK(code_of([&] { pass.flush(); }) == errc::invalid_argument);
            CHECK(code_of([&] { static_cast<void>(pass.call(kv::wait).get()); }) == errc::invalid_argument);
            // A call has no room either.
            stepping limited([&] {
                const std::error_code late = code_of([&] { pass.call(kv::wait).get(1ms); });
                CHECK(late == errc::timed_out);
                auto slow = pass.call(kv::wait);
                CHECK(!slow.wait_for(1ms));
                CHECK(!slow.begun());
            });
            limited.go();
            auto work = [&pass, one, put]() mutable {
                pass.send(bytes_of(one), 7);  // waits, as the gate's thread gets to it only now
                CHECK(pass.call(kv::get, "colour").get() == "red");
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

TEMPLATE_LIST_TEST_CASE("a coroutine waits for room in a gate while others of its thread go on", "",
                        node_transports) {
    run_bare<TestType>(
        [](auto& through, auto& peer) -> task<> {
            constexpr std::uint32_t count = 3000;
            std::atomic<bool> waits{false};
            std::size_t turns = 0;
            auto work = [&, pass = through.pass()]() mutable {
                scheduler mine;
                mine.run([](auto& by, std::atomic<bool>& full, std::size_t& turned) -> task<> {
                    bool all_put = false;
                    task_group some;
                    for (std::uint32_t t = 0; t < 3; ++t) {
                        some.spawn([&by, t]() -> task<> {
                            for (numbered one{.thread = t}; one.number < count; ++one.number)
                                co_await by.put(bytes_of(one), 7);
                        });
                    }
                    task_group beside;
                    beside.spawn([&]() -> task<> {
                        while (!all_put) {
                            ++turned;
                            if (turned == 10) full = true;
                            co_await yield();
                        }
                    });
                    co_await some.join();
                    all_put = true;
                    co_await beside.join();
                    const std::vector<std::byte> much(300000, std::byte{5});
                    co_await by.put(much, 7);
                    co_await by.flushed();
                }(pass, waits, turns));
            };
            task_group sending;
            sending.spawn([&]() -> task<> { co_await on_thread(std::move(work)); });
            co_await yield();
            while (!waits) std::this_thread::yield();  // this scheduler does nothing: the gate is full
            std::array<std::uint32_t, 3> next{};
            std::uint32_t wrong = 0;
            for (std::uint32_t n = 0; n < count * 3; ++n) {
                numbered got;
                co_await peer.recv(bytes_of(got), 7);
                if (got.thread >= 3 || got.number != next[got.thread]++) ++wrong;
            }
            CHECK(wrong == 0);
            const message last = co_await peer.recv_lent(7);
            CHECK(last.size() == 300000);
            co_await sending.join();
            CHECK(turns >= 10);
        },
        {.messages = 8});
}

TEMPLATE_LIST_TEST_CASE("what waits for room in a gate can be canceled, and ends with the gate", "",
                        node_transports) {
    scheduler on;
    on.run([]() -> task<> {
        auto listening = co_await listen<TestType>(fresh_url<TestType>());
        auto accepting = start(listening.accept());
        auto a = co_await connect<TestType>(listening.address());
        auto b = co_await accepting;
        {
            calls<TestType> client(a);
            std::optional<gate<calls<TestType>>> through(std::in_place, client, gate_options{.messages = 8});
            auto pass = through->pass();
            std::atomic<int> phase{0};
            stepping thread([&] {
                const std::vector<std::byte> much(300000);
                {
                    scheduler mine;
                    mine.run([](auto& by, const std::vector<std::byte>& memory) -> task<> {
                        numbered one;
                        // Nothing leaves the gate: its scheduler is blocked.
                        for (int n = 0; n < 8; ++n) co_await by.put(bytes_of(one), 7);
                        task_group some;
                        std::size_t canceled = 0;
                        const auto cancel = [&canceled](auto make) -> task<> {
                            local_stop_source stop;
                            task_group stopping;
                            stopping.spawn([&stop]() -> task<> {
                                for (int n = 0; n < 3; ++n) co_await yield();
                                stop.request_stop();
                            });
                            auto op = make();
                            const auto ended = co_await as_result(with_stop(std::move(op), stop.get_token()));
                            if (ended.error() == errc::canceled) ++canceled;
                            co_await stopping.join();
                        };
                        for (int n = 0; n < 10; ++n) {
                            some.spawn(cancel, [&] { return by.put(bytes_of(one), 7); });
                            some.spawn(cancel, [&] { return by.call(kv::wait); });
                            some.spawn(cancel, [&] { return by.put(memory, 7); });
                            some.spawn(cancel, [&] { return by.flushed(); });
                        }
                        co_await some.join();
                        CHECK(canceled == 40);
                        const auto late = co_await as_result(timeout(by.put(bytes_of(one), 7), 1ms));
                        CHECK(late.error() == errc::timed_out);
                    }(pass, much));
                }
                // Its scheduler has ended, and nothing comes to it any more; another waits for the end of the gate.
                scheduler another;
                another.run(
                    [](auto& by, const std::vector<std::byte>& memory, std::atomic<int>& at) -> task<> {
                        numbered one;
                        task_group some;
                        std::size_t closed = 0;
                        const auto wait = [&closed](auto make) -> task<> {
                            auto op = make();
                            const auto ended = co_await as_result(std::move(op));
                            if (ended.error() == errc::closed) ++closed;
                        };
                        for (int n = 0; n < 10; ++n) {
                            some.spawn(wait, [&] { return by.put(bytes_of(one), 7); });
                            some.spawn(wait, [&] { return by.call(kv::wait); });
                            some.spawn(wait, [&] { return by.put(memory, 7); });
                            some.spawn(wait, [&] { return by.flushed(); });
                        }
                        for (int n = 0; n < 3; ++n) co_await yield();
                        check_stage("a message into a gate", "there is no room", next_actor::this_program);
                        check_stage("what was put into a gate", "it is not sent", next_actor::this_program);
                        check_stage("a task on another thread", "it has not ended", next_actor::this_program);
                        at = 1;
                        co_await some.join();
                        CHECK(closed == 40);
                    }(pass, much, phase));
            });
            thread.begin();
            while (phase != 1) std::this_thread::yield();
            through.reset();
            while (thread.done() != 1) co_await yield();
        }
        a.abort();
    }());
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

TEMPLATE_LIST_TEST_CASE("peers that read nothing keep no other from its messages", "", node_transports) {
    run_nodes([]() -> task<> {
        constexpr std::uint32_t deaf_ones = 16;
        constexpr std::uint32_t hearing = 100;
        node_options small;
        small.mailbox.unexpected_bytes = 64 << 10;
        node<TestType> here(1);
        node<TestType> other(hearing);
        std::vector<std::unique_ptr<node<TestType>>> deaf;
        for (std::uint32_t n = 0; n < deaf_ones; ++n) {
            deaf.push_back(std::make_unique<node<TestType>>(n + 2, small));
            const std::string url = co_await deaf.back()->listen(fresh_url<TestType>());
            here.add({.id = n + 2, .urls = {url}});
        }
        const std::string other_url = co_await other.listen(fresh_url<TestType>());
        here.add({.id = hearing, .urls = {other_url}});
        auto hears = other.peer(1);
        {
            gate through(here, {.messages = 64});
            constexpr std::uint32_t count = 1000;
            std::vector<std::jthread> threads;
            std::atomic<std::uint32_t> filled{0};
            for (std::uint32_t t = 0; t < 2; ++t) {
                threads.emplace_back([&, t, pass = through.pass()]() mutable {
                    // Until each has used up its credit and its share of the room: it takes nothing for a while.
                    numbered one{.thread = t};
                    for (std::uint32_t n = 0; n < deaf_ones; ++n) {
                        while (true) {
                            const time_point until = detail::monotonic_now() + 20ms;
                            bool put = false;
                            while (!put && detail::monotonic_now() < until) {
                                put = pass.try_send(n + 2, bytes_of(one), 9);
                                if (!put) std::this_thread::yield();
                            }
                            if (!put) break;
                        }
                        ++filled;
                    }
                    for (; one.number < count; ++one.number) pass.send(hearing, bytes_of(one), 7);
                });
            }
            std::uint32_t wrong = 0;
            std::array<std::uint32_t, 2> next{};
            for (std::uint32_t n = 0; n < count * 2; ++n) {
                numbered got;
                co_await timeout(hears.recv(bytes_of(got), 7), 30s);
                if (got.thread >= 2 || got.number != next[got.thread]++) ++wrong;
            }
            CHECK(wrong == 0);
            CHECK(filled == deaf_ones * 2);
            threads.clear();
        }
    });
}

TEST_CASE("a thousand peers that do not exist keep no other from its messages") {
    run_nodes([]() -> task<> {
        node<shm> here(1);
        node<shm> other(2);
        const std::string url = co_await other.listen(fresh_url<shm>());
        here.add({.id = 2, .urls = {url}});
        auto hears = other.peer(1);
        {
            gate through(here);
            constexpr std::uint32_t count = 3000;
            std::error_code failed;
            auto work = [&, pass = through.pass()]() mutable {
                for (numbered one; one.number < count; ++one.number) {
                    pass.send(1000 + one.number % 1000, bytes_of(one), 7);
                    pass.send(2, bytes_of(one), 7);
                }
                failed = code_of([&] { pass.flush(); });
            };
            task_group some;
            some.spawn([&]() -> task<> { co_await on_thread(std::move(work)); });
            std::uint32_t wrong = 0;
            for (std::uint32_t n = 0; n < count; ++n) {
                numbered got;
                co_await hears.recv(bytes_of(got), 7);
                if (got.number != n) ++wrong;
            }
            co_await some.join();
            CHECK(wrong == 0);
            CHECK(failed == errc::address_invalid);
        }
        co_await here.close();
        co_await other.close();
    });
}

#if RDMACORO_WITH_TCP
TEST_CASE(
    "what several threads put while the gate's thread was busy goes out together, to each of their peers") {
    run_nodes([]() -> task<> {
        tcp::domain ours(*scheduler::current());  // of this node alone: its system calls are those of sending
        node<tcp> here(1, {}, ours);
        node<tcp> two(2);
        node<tcp> three(3);
        co_await two.listen(fresh_url<tcp>());
        co_await three.listen(fresh_url<tcp>());
        here.add(two.card());
        here.add(three.card());
        auto at_two = two.peer(1);
        auto at_three = three.peer(1);
        {
            gate through(here);
            constexpr std::uint32_t each = 50;
            const auto put_all = [&](auto& pass, std::uint32_t thread) {
                for (numbered one{.thread = thread}; one.number < each; ++one.number) {
                    pass.send(2, bytes_of(one), 7);
                    pass.send(3, bytes_of(one), 7);
                }
            };
            auto first = through.pass();
            auto second = through.pass();
            stepping one([&] { put_all(first, 0); }, [&] { put_all(first, 0); });
            stepping other([&] { put_all(second, 1); }, [&] { put_all(second, 1); });
            const auto all_arrive = [](auto peer) -> task<> {
                std::array<std::uint32_t, 2> next{};
                std::uint32_t wrong = 0;
                for (std::uint32_t n = 0; n < 2 * each; ++n) {
                    numbered got;
                    co_await timeout(peer.recv(bytes_of(got), 7), 20s);
                    if (got.thread > 1 || got.number != next.at(got.thread)++) ++wrong;
                }
                CHECK(wrong == 0);
            };
            // The first time makes the connections. Then until the links are quiet, which are not looked at in each turn.
            for (int round = 0; round < 2; ++round) {
                for (unsigned n = 0; n < 4 * detail::tcp_engine::cold_after; ++n) co_await yield();
                const std::uint64_t before = ours.system_calls();
                one.go();
                other.go();
                CHECK(ours.system_calls() == before);
                co_await all_arrive(at_two);
                co_await all_arrive(at_three);
                const std::uint64_t made = ours.system_calls() - before;
                CAPTURE(made);
                if (round == 1) CHECK(made <= 4 * each / 10);
            }
        }
        co_await here.close();
        co_await two.close();
        co_await three.close();
    });
}
#endif

TEMPLATE_LIST_TEST_CASE(
    "a thread that ends with a call under way and messages that none waits for holds no other up", "",
    node_transports) {
    run_gate<TestType>([](auto& through, auto& peer, shop& there) -> task<> {
        // By an exception, with a call under way and messages that none waits for.
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

TEMPLATE_LIST_TEST_CASE("what a thread put before it ended is sent, though its ring was half full then", "",
                        node_transports) {
    run_gate<TestType>(
        [](auto& through, auto& peer, shop& there) -> task<> {
            auto& arrived = peer.connection().mailbox().matching();
            std::optional<decltype(through.pass())> pass(through.pass());
            std::optional<decltype(pass->call(kv::wait))> call;
            {
                stepping dying([&] {
                    for (numbered one; one.number < 4; ++one.number) pass->send(bytes_of(one), 7);
                    call.emplace(pass->call(kv::wait));
                    static_cast<void>(call->wait_for(duration::zero()));
                });
                dying.go();
            }  // joined, while the gate's scheduler has done nothing
            CHECK(arrived.unexpected() == 0);
            CHECK(there.waiting == 0);
            CHECK(call->begun());  // it has its place in the ring
            std::uint32_t wrong = 0;
            for (std::uint32_t n = 0; n < 4; ++n) {
                numbered got;
                co_await timeout(peer.recv(bytes_of(got), 7), 20s);
                if (got.number != n) ++wrong;
            }
            CHECK(wrong == 0);
            co_await timeout(until([&] { return there.waiting == 1; }), 20s);
            // Its ring is another thread's then, all of it; none of its messages comes twice.
            auto goes_on = [&] {
                call.reset();
                pass.reset();
                auto next = through.pass();
                for (numbered one{.thread = 1}; one.number < 8; ++one.number) next.send(bytes_of(one), 7);
                next.flush();
            };
            co_await on_thread(std::move(goes_on));
            CHECK(through.lanes() == 1);
            for (std::uint32_t n = 0; n < 8; ++n) {
                numbered got;
                co_await timeout(peer.recv(bytes_of(got), 7), 20s);
                if (got.thread != 1 || got.number != n) ++wrong;
            }
            CHECK(wrong == 0);
            CHECK(arrived.unexpected() == 0);
            co_await timeout(until([&] { return there.waiting == 0; }), 20s);
            CHECK(there.stopped == 1);
        },
        {.messages = 8});
}

TEMPLATE_LIST_TEST_CASE("a gate ends though the ring of a thread that has ended is full", "",
                        node_transports) {
    scheduler on;
    on.run([]() -> task<> {
        auto listening = co_await listen<TestType>(fresh_url<TestType>());
        auto accepting = start(listening.accept());
        auto a = co_await connect<TestType>(listening.address());
        auto b = co_await accepting;
        shop there;
        {
            calls<TestType> server(b, there.store);
            calls<TestType> client(a);
            std::optional<gate<calls<TestType>>> through(std::in_place, client, gate_options{.messages = 8});
            auto pass = through->pass();
            auto other = through->pass();
            std::optional<decltype(pass.call(kv::wait))> call;
            std::uint32_t put = 0;
            {
                stepping dying([&] {
                    call.emplace(pass.call(kv::wait));
                    static_cast<void>(call->wait_for(duration::zero()));
                    for (numbered one; pass.try_send(bytes_of(one), 7); ++one.number) ++put;
                });
                dying.go();
            }
            CHECK(put == 7);
            {
                stepping beside([&] { other.send(std::string_view("other"), 7); });
                beside.go();
            }
            through.reset();
            CHECK(pass.closed());
            CHECK(other.closed());
            CHECK(code_of([&] { static_cast<void>(pass.try_send(std::string_view("late"), 7)); }) ==
                  errc::closed);
            CHECK(code_of([&] { pass.flush(); }) == errc::closed);
            std::error_code ended;
            std::jthread([&] {
                if (call->wait_for(20s)) ended = call->get_result().error();
            }).join();
            CHECK(ended == errc::closed);
            call.reset();
            // The connection goes on, and nothing of the ring has come by it.
            const std::string colour = co_await timeout(client.call(kv::get, "colour"), 20s);
            CHECK(colour == "red");
            CHECK(b.connection().mailbox().matching().unexpected() == 0);
            // The answer may be here before the handler's frame has ended.
            co_await timeout(until([&] { return there.store.running() == 0; }), 20s);
            CHECK(there.waiting == 0);
        }
        a.abort();
    }());
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
                // Two that wait for room, and for the end: these are not received.
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

TEMPLATE_LIST_TEST_CASE("a thread's messages and calls through a gate allocate nothing", "",
                        node_transports) {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_gate<TestType>([](auto& through, auto& peer, shop&) -> task<> {
        std::size_t made = 1;
        std::atomic<int> round{0};
        std::atomic<bool> filled{false};
        auto& link = peer.connection();
        auto work = [&, pass = through.pass()]() mutable {
            scheduler mine;
            // As many under way as there can be, until none is received any more.
            numbered first{.thread = 1};
            while (!filled) {
                if (!pass.try_send(bytes_of(first), 8)) std::this_thread::yield();
            }
            for (int n = 0; n < 3; ++n) {
                const std::size_t before = allocations();
                for (numbered one; one.number < 2000; ++one.number) {
                    pass.send(bytes_of(one), 7);
                    if (one.number % 10 == 0 && pass.call(kv::add, 1U, 2U).get() != 3) return;
                }
                pass.flush();
                mine.run([](auto& by) -> task<> {
                    for (numbered one; one.number < 2000; ++one.number) {
                        co_await by.put(bytes_of(one), 7);
                        if (one.number % 10 == 0) static_cast<void>(co_await by.call(kv::add, 1U, 2U));
                    }
                    co_await by.flushed();
                }(pass));
                made = allocations() - before;
                ++round;
            }
        };
        task_group some;
        some.spawn([&]() -> task<> { co_await on_thread(std::move(work)); });
        // Until its credit is used up, and some turns more: then the gate is full of sends that wait.
        for (std::size_t stored = 1, turns = 0; turns < 1000; ++turns) {
            if (link.mailbox().matching().unexpected() != stored) turns = 0;
            stored = link.mailbox().matching().unexpected();
            co_await yield();
        }
        filled = true;
        while (peer.discard(8) != 0) {
            for (int n = 0; n < 1000; ++n) co_await yield();
        }
        // Nor does the gate's own thread. How much comes before its receive at a time, and with it when a table has room enough, is for the
        // timing to decide; an allocation that belongs to the work is made in each row.
        constexpr int row = 1000;
        int clean = 0;
        int most_clean = 0;
        std::size_t before = allocations();
        for (int n = 1; n <= 12 * row; ++n) {
            numbered got;
            co_await peer.recv(bytes_of(got), 7);
            if (n % row != 0) continue;
            clean = allocations() == before ? clean + 1 : 0;
            most_clean = std::max(most_clean, clean);
            before = allocations();
        }
        CHECK(most_clean >= 2);
        co_await some.join();
        CHECK(round == 3);
        CHECK(made == 0);
    });
}

TEST_CASE("a thread's messages to a hundred peers allocate nothing, once each of these has had one") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    run_nodes([]() -> task<> {
        constexpr node_id peers = 100;
        constexpr std::uint32_t rounds = 10;
        node<shm> here(1);
        std::vector<std::unique_ptr<node<shm>>> others;
        for (node_id id = 2; id < 2 + peers; ++id) {
            others.push_back(std::make_unique<node<shm>>(id));
            co_await others.back()->listen(fresh_url<shm>());
            here.add(others.back()->card());
        }
        {
            gate through(here, {.messages = 128});
            std::size_t made = 1;
            auto work = [&, pass = through.pass()]() mutable {
                std::size_t before = 0;
                for (numbered one; one.number <= rounds; ++one.number) {
                    for (node_id id = 2; id < 2 + peers; ++id) pass.send(id, bytes_of(one), 7);
                    pass.flush();
                    if (one.number == 0) before = allocations();  // there is a record of each
                }
                made = allocations() - before;
            };
            co_await on_thread(std::move(work));
            CHECK(made == 0);
        }
        std::uint32_t wrong = 0;
        for (const auto& other : others) {
            auto from = other->peer(1);
            for (std::uint32_t n = 0; n <= rounds; ++n) {
                numbered got;
                co_await timeout(from.recv(bytes_of(got), 7), 20s);
                if (got.number != n) ++wrong;
            }
        }
        CHECK(wrong == 0);
        co_await here.close();
        for (const auto& other : others) co_await other->close();
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
                std::vector<float> place(200);
                const std::size_t length = pass.call_into(9, std::span(place), kv::fill, 150U).get();
                if (length != 150 || place[149] != 149.0F) said += " another row";
                pass.cast(9, kv::note, "a note").get();
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
            CHECK_THAT(said, Catch::StartsWith("red gate_pass::flush") && Catch::Contains("node 4"));
            CHECK(there.notes.size() == 1);
            const std::string first = co_await hear(hears, 7);
            const std::string second = co_await hear(hears, 7);
            CHECK(first == "hello");
            CHECK(second == "again");
        }
        co_await here.close();
        co_await far.close();
    }());
}

TEST_CASE("a wait for a gate between the polls of another event loop on its own thread is refused") {
    scheduler on;
    std::optional<gate_pass<calls<shm>>> pass;
    event over;
    auto serving = on.start([](auto& out, event& end) -> task<> {
        auto listening = co_await listen<shm>(fresh_url<shm>());
        auto accepting = start(listening.accept());
        auto a = co_await connect<shm>(listening.address());
        auto b = co_await accepting;
        {
            calls<shm> client(a);
            gate through(client, {.messages = 4});
            out = through.pass();
            co_await end.wait();
        }
        a.abort();
    }(pass, over));
    const auto limit = std::chrono::steady_clock::now() + 30s;
    while (!pass && std::chrono::steady_clock::now() < limit) on.poll();
    REQUIRE(pass);
    const auto is_refused = [&](auto&& wait) {
        try {
            wait();
        } catch (const error& refused) {
            return refused.code() == errc::invalid_argument &&
                   std::string(refused.what()).find("on the gate's own thread") != std::string::npos;
        }
        return false;
    };
    int sent = 0;
    while (sent < 100 && pass->try_send(bytes_of(sent), 7)) ++sent;
    REQUIRE(is_refused([&] { static_cast<void>(pass->flush(50ms)); }));
    CHECK(is_refused([&] { pass->flush(); }));
    CHECK(is_refused([&] { pass->send(bytes_of(sent), 7); }));
    CHECK(is_refused([&] { pass->send(std::string(1000, 'x'), 7); }));
    CHECK(is_refused([&] { static_cast<void>(pass->call(kv::get, "colour").get(50ms)); }));
    CHECK(is_refused([&] { static_cast<void>(pass->call(kv::get, "colour").wait_for(50ms)); }));
    on.poll();
    // A thread that runs nothing may wait while this one polls.
    std::atomic<bool> flushed{false};
    std::jthread other([&] { flushed = pass->flush(20s); });
    while (!flushed && std::chrono::steady_clock::now() < limit) on.poll();
    CHECK(flushed);
    other.join();
    over.set();
    while (!serving.done() && std::chrono::steady_clock::now() < limit) on.poll();
    CHECK(serving.done());
    // Of a gate that has ended no thread waits for anything.
    CHECK_THROWS_WITH(pass->send(bytes_of(sent), 7), test::contains("the gate has ended"));
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

namespace {

/// A node of which each peer that is kept holds `held`, too.
struct held_peers {
    node<shm>& over;
    std::shared_ptr<int> held = std::make_shared<int>(0);
};
struct held_peer {
    node_peer<shm> to;
    std::shared_ptr<int> held;
    [[nodiscard]] node_id id() const noexcept { return to.id(); }
    [[nodiscard]] auto send(const const_buffers& from, tag_type tag) { return to.send(from, tag); }
};

}  // namespace
}  // namespace test_service_gate

template <>
struct rdmacoro::detail::gate_way<test_service_gate::held_peers> {
    static constexpr bool by_id = true;
    static scheduler& owner(test_service_gate::held_peers& over) noexcept { return over.over.owner(); }
    static test_service_gate::held_peer peer(test_service_gate::held_peers& over, std::uint32_t id) {
        return {over.over.peer(id), over.held};
    }
};

namespace test_service_gate {

TEST_CASE("a gate that has ended keeps no peer though a pass of it lives on") {
    run_nodes([]() -> task<> {
        node<shm> far(9);
        node<shm> here(1);
        const std::string url = co_await far.listen(fresh_url<shm>());
        here.add({.id = 9, .urls = {url}});
        auto hears = far.peer(1);
        held_peers peers{here};
        std::optional<gate<held_peers>> through(peers);
        auto pass = through->pass();
        pass.send(9, std::string_view("hello"), 7);
        const std::string text = co_await hear(hears, 7);
        CHECK(text == "hello");
        CHECK(peers.held.use_count() > 1);  // it is kept for the next message
        through.reset();
        CHECK(pass.closed());
        CHECK(peers.held.use_count() == 1);
        co_await here.close();
        co_await far.close();
    });
}

TEST_CASE("a gate that is destroyed after its scheduler ends the process with a message") {
    const death seen = dies([] {
        std::optional<node<shm>> here;
        std::optional<gate<node<shm>>> through;
        {
            scheduler on;
            on.run([](auto& made, auto& over) -> task<> {
                made.emplace(1);
                over.emplace(*made);
                made.reset();
                co_return;
            }(here, through));
        }
        through.reset();
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, Catch::Contains("a gate was destroyed after its scheduler"));
}

}  // namespace test_service_gate
