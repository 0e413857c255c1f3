// Endpoints, domains and schedulers that are used where they do not belong, and endpoints that have no connection.

#include "conformance/transports.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"

#include <atomic>
#include <coroutine>
#include <cstdio>
#include <thread>

namespace test_faults_wrong_owner {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr duration case_limit = 60s;

std::string name_of(const scheduler& which) {
    char text[32];
    std::snprintf(text, sizeof text, "scheduler %p", static_cast<const void*>(&which));
    return text;
}

/// Resumes the coroutine on a thread of its own, as an awaitable of another library may.
struct on_another_thread {
    static bool await_ready() noexcept { return false; }
    static void await_suspend(std::coroutine_handle<> awaiting) {
        std::thread([awaiting] { awaiting.resume(); }).detach();
    }
    static void await_resume() noexcept {}
};

/// Runs it with an end, whatever happens.
template <class T>
T run(scheduler& on, task<T> main) {
    return on.run([](task<T> inner) -> task<T> {
        co_return co_await timeout(std::move(inner), case_limit);
    }(std::move(main)));
}

template <class T>
struct pair {
    endpoint<T> a;
    endpoint<T> b;
};
template <class T>
task<pair<T>> connected(typename T::domain& here, std::string address) {
    auto listening = co_await listen<T>(here, address);
    auto accepting = start(listening.accept());
    auto a = co_await connect<T>(here, listening.address());
    auto b = co_await accepting;
    co_return pair<T>{std::move(a), std::move(b)};
}

template <class Op>
task<> refused(Op op) {
    const auto ended = co_await as_result(std::move(op));
    CHECK(ended.error() == errc::invalid_argument);
}

template <class T>
task<> try_everything(endpoint<T>& of) {
    std::byte memory[8];
    CHECK_FALSE(of);
    CHECK_FALSE(of.is_open());
    co_await refused(of.send(memory));
    co_await refused(of.ssend(memory));
    co_await refused(of.recv(memory));
    co_await refused(of.recv_lent());
    co_await refused(of.probe());
    co_await refused(of.rdma_get({}, memory));
    co_await refused(of.rdma_put(memory, {}));
    co_await refused(of.close());
    co_await refused(timeout(of.recv(memory), 1h));
    auto begun = start(of.recv(memory));
    CHECK(begun.done());
    const auto ended = co_await as_result(begun);
    CHECK(ended.error() == errc::invalid_argument);
    // Others have their turn beside a loop of such.
    bool other = false;
    auto noticing = start([](bool& said) -> task<> {
        co_await yield();
        said = true;
    }(other));
    for (int n = 0; n < 100'000 && !other; ++n) static_cast<void>(co_await as_result(of.recv(memory)));
    CHECK(other);
    co_await noticing;
    of.abort();
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("connect and listen in another scheduler's domain name both, and say what to use", "",
                        every_kind) {
    using T = typename TestType::transport_type;
    scheduler owner;
    scheduler other;
    const auto domain = TestType::open(owner);
    const std::string address = TestType::address();
    std::string said[2];
    run(other, [](typename T::domain& of_owner, const std::string& at, std::string(&texts)[2]) -> task<> {
        try {
            static_cast<void>(co_await timeout(connect<T>(of_owner, at), 10s));
        } catch (const error& refused) {
            CHECK(refused.code() == errc::invalid_argument);
            texts[0] = refused.what();
        }
        try {
            static_cast<void>(co_await timeout(listen<T>(of_owner, at), 10s));
        } catch (const error& refused) {
            CHECK(refused.code() == errc::invalid_argument);
            texts[1] = refused.what();
        }
    }(*domain, address, said));
    for (const std::string& text : said) {
        CHECK_THAT(text, contains(name_of(owner)) && contains(name_of(other)) && contains("this is thread") &&
                             contains("post") && contains("thread_channel"));
    }
    CHECK_THAT(said[0], contains("connect"));
    CHECK_THAT(said[1], contains("listen"));
}

TEMPLATE_LIST_TEST_CASE("accept on another scheduler names both", "", every_kind) {
    using T = typename TestType::transport_type;
    scheduler owner;
    scheduler other;
    const auto domain = TestType::open(owner);
    auto listening = run(owner, listen<T>(*domain, TestType::address()));
    std::string said;
    run(other, [](listener<T>& from, std::string& text) -> task<> {
        try {
            static_cast<void>(co_await timeout(from.accept(), 10s));
        } catch (const error& refused) {
            CHECK(refused.code() == errc::invalid_argument);
            text = refused.what();
        }
    }(listening, said));
    CHECK_THAT(said, contains(name_of(owner)) && contains(name_of(other)) && contains("accept"));
}

TEMPLATE_LIST_TEST_CASE("an operation on another scheduler ends the process, with both schedulers' names", "",
                        every_kind) {
    const death seen = dies([] {
        using T = typename TestType::transport_type;
        scheduler owner;
        scheduler other;
        const auto domain = TestType::open(owner);
        pair<T> link = owner.run(connected<T>(*domain, TestType::address()));
        std::fprintf(stderr, "owner is %s, other is %s\n", name_of(owner).c_str(), name_of(other).c_str());
        other.run([](endpoint<T>& end) -> task<> {
            std::byte memory[8];
            co_await timeout(end.recv(memory), 10ms);
        }(link.a));
    });
    CHECK(seen.aborted);
    const std::string own = seen.said.substr(9, seen.said.find(',') - 9);
    CHECK_THAT(seen.said, contains("an operation of " + own + " (which does not run now)") &&
                              contains("awaited by a coroutine of another") && contains("thread_channel"));
}

TEMPLATE_LIST_TEST_CASE("an operation on another thread than its scheduler's ends the process with a message",
                        "", every_kind) {
    const death seen = dies([] {
        using T = typename TestType::transport_type;
        scheduler owner;
        const auto domain = TestType::open(owner);
        owner.run([](typename T::domain& here, std::string address) -> task<> {
            pair<T> link = co_await connected<T>(here, address);
            co_await on_another_thread{};
            std::byte memory[8];
            co_await link.a.recv(memory);
        }(*domain, TestType::address()));
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, contains("an operation of scheduler") && contains("(on thread ") &&
                              contains("was awaited on thread ") && contains("which runs no scheduler") &&
                              contains("thread_channel"));
}

namespace {
/// Not inlined: the compiler would warn of what the test is for.
template <class Domain>
[[gnu::noinline]] void end_domain(std::unique_ptr<Domain> ending) {
    ending.reset();
}
template <class Variant>
void outlive_a_domain() {
    const death seen = dies([] {
        std::vector<std::byte> memory(4096);
        scheduler on;
        region late;
        auto domain = Variant::open(on);
        late = domain->register_memory(memory, access_rights::all);
        end_domain(std::move(domain));
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, contains("was destroyed before a region of its memory"));
}
}  // namespace

TEMPLATE_LIST_TEST_CASE("a region that outlives its domain ends the process with a message", "",
                        every_real_transport) {
    outlive_a_domain<TestType>();
}
TEST_CASE("a region that outlives its simulated domain ends the process with a message") {
    outlive_a_domain<sim_plain>();
}

namespace {
/// Calls `change` on another thread while `wait()` is awaited; what the process said before it ended.
template <class Wait, class Change>
death changed_elsewhere(Wait wait, Change change) {
    return dies([&] {
        scheduler on;
        on.run([](auto waits, auto changes) -> task<> {
            auto waiting = start(waits());
            std::thread(changes).join();
            co_await timeout(waiting, 10s);
        }(wait, change));
    });
}
}  // namespace

TEST_CASE("what coroutines wait for, changed on another thread, ends the process with a message") {
    event flag;
    semaphore permits(0);
    channel<int> values(1);
    channel<int> full(0);
    const death seen[] = {
        changed_elsewhere([&] { return flag.wait(); }, [&] { flag.set(); }),
        changed_elsewhere([&] { return permits.acquire(); }, [&] { permits.release(); }),
        changed_elsewhere([&] { return values.receive(); }, [&] { static_cast<void>(values.try_send(1)); }),
        changed_elsewhere([&] { return full.send(1); }, [&] { static_cast<void>(full.try_receive()); }),
        changed_elsewhere([&] { return values.receive(); }, [&] { values.close(); }),
        changed_elsewhere([&] { return full.send(1); }, [&] { full.close(); }),
    };
    for (const death& one : seen) {
        CHECK(one.aborted);
        CHECK_THAT(one.said, contains("what coroutines of scheduler") &&
                                 contains("wait for was changed on thread") &&
                                 contains("which runs no scheduler") && contains("thread_channel"));
    }
}

TEMPLATE_LIST_TEST_CASE("memory registered or deregistered, and messages discarded, on another thread end "
                        "the process with a message",
                        "", every_kind) {
    struct deed {
        enum { registers, deregisters, discards } what;
        const char* said;
    };
    for (const deed one :
         {deed{deed::registers, "memory for scheduler"}, deed{deed::deregisters, "memory for scheduler"},
          deed{deed::discards, "messages for scheduler"}}) {
        INFO(one.what);
        const death seen = dies([one] {
            using T = typename TestType::transport_type;
            scheduler owner;
            const auto domain = TestType::open(owner);
            owner.run([](typename T::domain& here, std::string address, deed wanted) -> task<> {
                pair<T> link = co_await connected<T>(here, address);
                std::byte memory[8];
                region made;
                if (wanted.what == deed::deregisters) made = here.register_memory(memory, access_rights::all);
                std::thread([&] {
                    switch (wanted.what) {
                        case deed::registers: made = here.register_memory(memory, access_rights::all); break;
                        case deed::deregisters: made.reset(); break;
                        case deed::discards: static_cast<void>(link.a.discard(any_tag)); break;
                    }
                }).join();
            }(*domain, TestType::address(), one));
        });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said, contains(one.said) && contains("which runs no scheduler"));
        if (one.what == deed::deregisters) CHECK_THAT(seen.said, contains("was deregistered"));
    }
}

TEST_CASE("a stop of a local source that is requested on another thread ends the process with a message") {
    for (const bool through : {false, true}) {
        const death seen = dies([through] {
            scheduler on;
            on.run([](bool limited) -> task<> {
                event never;
                local_stop_source source;
                auto waiting = start([](event& of, local_stop_token stop, bool with_limit) -> task<> {
                    if (with_limit) {
                        co_await with_stop(timeout(of.wait(), 10s), stop);
                    } else {
                        co_await with_stop(of.wait(), stop);
                    }
                }(never, source.get_token(), limited));
                std::thread([&] { source.request_stop(); }).join();
                co_await timeout(waiting, 10s);
            }(through));
        });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said, contains("an operation of scheduler") &&
                                  contains("was asked to stop on thread") &&
                                  contains("which runs no scheduler"));
    }
}

TEMPLATE_LIST_TEST_CASE(
    "a link that another thread aborts, closes or destroys ends the process with a message", "", every_kind) {
    enum class way { aborts, closes, destroys };
    for (const way how : {way::aborts, way::closes, way::destroys}) {
        const death seen = dies([how] {
            using T = typename TestType::transport_type;
            scheduler owner;
            const auto domain = TestType::open(owner);
            owner.run([](typename T::domain& here, std::string address, way ends) -> task<> {
                pair<T> link = co_await connected<T>(here, address);
                std::thread([&] {
                    if (ends == way::aborts) link.a.abort();
                    if (ends == way::destroys) link.a = endpoint<T>();
                    if (ends == way::closes) {
                        auto closing = link.a.close();
                        static_cast<void>(closing.await_ready());
                    }
                }).join();
            }(*domain, TestType::address(), how));
        });
        CHECK(seen.aborted);
        CHECK_THAT(seen.said, contains("which runs no scheduler") && contains("of scheduler"));
        if (how != way::closes) {  // without NDEBUG that is noticed where it begins
            CHECK_THAT(seen.said,
                       contains(how == way::aborts ? "was aborted on thread" : "was destroyed on thread"));
        }
    }
}

TEST_CASE("a scheduler that is run on two threads at a time ends the process with a message") {
    const death seen = dies([] {
        scheduler one;
        std::atomic<bool> runs = false;
        std::thread second([&] {
            while (!runs) std::this_thread::yield();
            one.run([]() -> task<> { co_await yield(); }());
        });
        one.run([](std::atomic<bool>& now) -> task<> {
            now = true;
            for (;;) co_await yield();
        }(runs));
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, contains("at the same time; a scheduler has one thread"));
}

TEST_CASE("a scheduler may run on one thread after the other, and in itself") {
    scheduler one;
    CHECK(one.running_thread() == 0);
    CHECK_FALSE(one.belongs_here());
    CHECK(one.run([](scheduler& self) -> task<int> {
        CHECK(self.running_thread() == detail::this_thread());
        CHECK(self.run([]() -> task<int> { co_return 1; }()) == 1);
        CHECK(self.running_thread() == detail::this_thread());
        co_return 2;
    }(one)) == 2);
    CHECK(one.running_thread() == 0);
    CHECK(one.belongs_here());  // as it ran here last
    int got = 0;
    std::thread([&] { got = one.run([]() -> task<int> { co_return 3; }()); }).join();
    CHECK_FALSE(one.belongs_here());
    CHECK(got == 3);
}

TEMPLATE_LIST_TEST_CASE("operations of an endpoint without a connection end with an error", "", every_kind) {
    using T = typename TestType::transport_type;
    scheduler on;
    const auto domain = TestType::open(on);
    run(on, [](typename T::domain& here, std::string address) -> task<> {
        endpoint<T> never;
        co_await try_everything(never);
        pair<T> link = co_await connected<T>(here, address);
        auto early = link.a.recv_lent();
        endpoint<T> moved(std::move(link.a));
        co_await try_everything(link.a);
        // An operation that was made before is of the link, wherever that went.
        std::uint32_t sent = 7;
        co_await link.b.send(bytes_of(sent));
        const message got = co_await early;
        CHECK(got.size() == sizeof sent);
        mailbox<T> peers;
        const peer_id id = peers.attach(std::move(moved));
        co_await try_everything(moved);
        link.a = std::move(link.b);
        CHECK(link.a.is_open());
        co_await try_everything(link.b);
        co_await peers.send(id, bytes_of(sent));
        std::uint32_t back = 0;
        co_await link.a.recv(room_for(back));
        CHECK(back == 7);
    }(*domain, TestType::address()));
}

TEMPLATE_LIST_TEST_CASE("a mailbox and a listener that were moved from answer with errors", "", every_kind) {
    using T = typename TestType::transport_type;
    scheduler on;
    const auto domain = TestType::open(on);
    run(on, [](typename T::domain& here, std::string address) -> task<> {
        mailbox<T> first;
        mailbox<T> second(std::move(first));
        std::byte memory[8];
        CHECK(first.size() == 0);
        CHECK_FALSE(first.is_open(0));
        co_await refused(first.recv(memory));
        co_await refused(first.recv_lent());
        co_await refused(first.probe());
        auto listening = co_await listen<T>(here, address);
        auto moved = std::move(listening);
        co_await refused(listening.accept());
        CHECK(listening.refused() == 0);
        CHECK_THROWS_AS(listening.address(), error);
        CHECK_FALSE(moved.address().empty());
    }(*domain, TestType::address()));
}

}  // namespace test_faults_wrong_owner
