#include "transports.hpp"

#include "support/catch.hpp"

#include <atomic>
#include <exception>
#include <thread>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// Two schedulers on two threads, one connection between them: what two processes are to each other, but for the address
/// space. `serve` gets the accepted end, `call` the connected one; both run to their ends.
template <class Variant, class Idle>
void across(task<> (*serve)(endpoint<typename Variant::transport_type>&,
                            typename Variant::transport_type::domain&),
            task<> (*call)(endpoint<typename Variant::transport_type>&,
                           typename Variant::transport_type::domain&),
            Idle idle) {
    using T = typename Variant::transport_type;
    scheduler here(idle);
    const auto here_domain = Variant::open(here);
    std::exception_ptr failure;
    std::atomic<bool> listens{false};
    std::string address;
    std::thread other([&] {
        try {
            scheduler there(idle);
            const auto domain = Variant::open(there);
            there.run([](auto& in, auto body, std::string& where, std::atomic<bool>& ready) -> task<> {
                auto listening = co_await listen<T>(in, Variant::address());
                where = listening.address();
                ready.store(true, std::memory_order_release);
                ready.notify_one();
                auto end = co_await timeout(listening.accept(), 60s);
                co_await timeout(body(end, in), case_limit);
            }(*domain, serve, address, listens));
        } catch (...) {
            failure = std::current_exception();
            listens.store(true, std::memory_order_release);
            listens.notify_one();
        }
    });
    std::exception_ptr own;
    listens.wait(false, std::memory_order_acquire);
    if (!address.empty()) {
        try {
            here.run([](auto& in, auto body, std::string& where) -> task<> {
                auto end = co_await timeout(connect<T>(in, where), 60s);
                co_await timeout(body(end, in), case_limit);
            }(*here_domain, call, address));
        } catch (...) {
            own = std::current_exception();
        }
    }
    other.join();
    if (failure) std::rethrow_exception(failure);
    if (own) std::rethrow_exception(own);
}

// Catch2's assertions are not for several threads: what is wrong is thrown.
void demand(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

template <class T>
task<> echoes(endpoint<T>& end, typename T::domain&) {
    std::vector<std::byte> buffer(std::size_t{2} << 20);
    for (;;) {
        const auto got = co_await as_result(end.recv(buffer));
        if (!got) co_return;
        co_await end.send(std::span(buffer).first(got->bytes), got->tag);
    }
}
template <class T>
task<> asks(endpoint<T>& end, typename T::domain&) {
    std::vector<std::byte> back(std::size_t{2} << 20);
    for (std::uint64_t round = 0; round < 3000 / slowness; ++round) {
        const std::size_t bytes = round % 100 == 99 ? 1500000 : round % 10 == 9 ? 20000 : round % 60;
        const auto data = pattern(bytes, round);
        co_await end.send(data, round);
        const received got = co_await end.recv(back, round);
        demand(got.bytes == bytes, "length");
        demand(is_pattern(std::span(back).first(bytes), round), "bytes");
    }
    co_await end.close();
}

template <class T>
task<> counts(endpoint<T>& end, typename T::domain&) {
    for (std::uint64_t n = 0; n < 200000 / slowness; ++n) {
        std::uint64_t value = 0;
        co_await end.recv(room_for(value));
        demand(value == n, "order");
    }
    co_await end.send({}, 1);
    static_cast<void>(co_await as_result(end.recv({})));
}
template <class T>
task<> streams(endpoint<T>& end, typename T::domain&) {
    for (std::uint64_t n = 0; n < 200000 / slowness; ++n) co_await end.send(bytes_of(n));
    co_await end.recv({}, 1);
    co_await end.close();
}

template <class T>
task<> offers_memory(endpoint<T>& end, typename T::domain& domain) {
    std::vector<std::byte> memory = pattern(1000000, 1);
    {
        const region open = domain.register_memory(memory, access_rights::all);
        co_await end.send(bytes_of(open.remote()), 1);
        co_await end.recv({}, 2);  // the peer has put
        demand(is_pattern(memory, 2), "what was put");
    }
    co_await end.send({}, 3);
    static_cast<void>(co_await as_result(end.recv({}, 4)));
}
template <class T>
task<> uses_memory(endpoint<T>& end, typename T::domain&) {
    remote_region there;
    co_await end.recv(room_for(there), 1);
    std::vector<std::byte> here(there.length);
    for (int n = 0; n < 20; ++n) co_await end.rdma_get(there, here);
    demand(is_pattern(here, 1), "what was got");
    here = pattern(here.size(), 2);
    co_await end.rdma_put(here, there);
    co_await end.send({}, 2);
    co_await end.recv({}, 3);
    const auto late = co_await as_result(end.rdma_get(there, here));
    const bool knows_why = !end.link_capabilities().ends_on_refusal;
    demand(knows_why ? late.error() == errc::bad_key : !late, "deregistered");
    if (knows_why) co_await end.close();
}

/// Parks whenever nothing moves: every message wakes a sleeper, or arrives just before it sleeps.
idle::adaptive sleepy() { return idle::adaptive(duration::zero(), duration::zero()); }

}  // namespace

TEMPLATE_LIST_TEST_CASE("two schedulers on two threads talk, spinning", "", every_real_transport) {
    using T = typename TestType::transport_type;
    across<TestType>(echoes<T>, asks<T>, idle::yield{});
}
TEMPLATE_LIST_TEST_CASE("two schedulers on two threads talk, parking at every wait", "",
                        every_real_transport) {
    using T = typename TestType::transport_type;
    across<TestType>(echoes<T>, asks<T>, sleepy());
}
TEMPLATE_LIST_TEST_CASE("a stream of messages between two threads keeps its order", "",
                        every_real_transport) {
    using T = typename TestType::transport_type;
    across<TestType>(counts<T>, streams<T>, idle::yield{});
    across<TestType>(counts<T>, streams<T>, idle::adaptive{});
}
TEMPLATE_LIST_TEST_CASE("get and put between two threads", "", every_real_transport) {
    using T = typename TestType::transport_type;
    across<TestType>(offers_memory<T>, uses_memory<T>, idle::yield{});
    across<TestType>(offers_memory<T>, uses_memory<T>, sleepy());
}
