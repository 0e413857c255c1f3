#include "conformance/transports.hpp"

#include "support/catch.hpp"
#include "support/child_process.hpp"

#include <csignal>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t huge = std::size_t{32} << 20;

/// The child: says where its memory is, sends a message that is never finished, and dies when `stage` turns have gone by.
template <class Variant>
void die_in_mid_message(const std::string& address, int stage) {
    using T = typename Variant::transport_type;
    scheduler on{idle::yield{}};
    const auto domain = Variant::open(on);
    on.run([](auto& in, const std::string& where, int turns) -> task<> {
        auto end = co_await timeout(connect<T>(in, where), 30s);
        std::vector<std::byte> memory(huge);
        const region open = in.register_memory(memory, access_rights::all);
        co_await end.send(bytes_of(open.remote()), 1);
        auto sending = start(end.send(memory, 2));
        auto matched = start(end.ssend({}, 3));
        for (int n = 0; n < turns; ++n) co_await yield();
        ::kill(::getpid(), SIGKILL);
        co_await sending;
        co_await matched;
    }(*domain, address, stage));
}

template <class T>
task<> outlives_its_peer(typename T::domain& in, std::string where, child_process& child) {
    auto listening = co_await listen<T>(in, where);
    child.tell(listening.address());
    endpoint<T> end = co_await timeout(listening.accept(), 30s);
    remote_region there;
    const auto told = co_await as_result(timeout(end.recv(room_for(there), 1), 30s));
    std::vector<std::byte> into(huge);
    std::vector<std::byte> small(8);
    std::vector<std::byte> here(huge);
    const auto data = pattern(huge, 1);
    // One of everything.
    auto filling = start(end.recv(into, 2));
    auto posted = start(end.recv(small, 99));
    auto masked = start(end.recv_lent(tag_match(64, 64)));
    auto probing = start(end.probe(98));
    auto unmatched = start(end.ssend(small, 5));
    auto segments = start(end.send(data, 6));
    auto getting = start(end.rdma_get(told ? there : remote_region{1, huge, 1}, here));
    auto putting = start(end.rdma_put(data, told ? there : remote_region{1, huge, 1}));

    const auto lost = [](std::error_code code) { return code == errc::peer_lost || code == errc::closed; };
    const auto a = co_await as_result(posted);
    CHECK(lost(a.error()));
    const auto b = co_await as_result(masked);
    CHECK(lost(b.error()));
    const auto c = co_await as_result(probing);
    CHECK(lost(c.error()));
    const auto d = co_await as_result(unmatched);
    CHECK(lost(d.error()));
    const auto e = co_await as_result(segments);
    CHECK(lost(e.error()));
    const auto f = co_await as_result(filling);
    if (!f) CHECK(lost(f.error()));
    // Those that need no peer may have ended while it lived; a peer that is half gone has no memory left to reach.
    const auto g = co_await as_result(getting);
    const auto h = co_await as_result(putting);
    for (const std::error_code code : {g.error(), h.error()}) {
        CAPTURE(code.message());
        CHECK((!code || lost(code) || code == errc::bad_key || code == errc::out_of_bounds));
    }
    const auto later = co_await as_result(end.send(small));
    CHECK(lost(later.error()));
    co_await end.close();
    // The listener and the domain go on.
    auto p = start(listening.accept());
    auto again = co_await timeout(connect<T>(in, listening.address()), 30s);
    auto accepted = co_await p;
    co_await again.send({}, 1);
    co_await accepted.recv({}, 1);
}

template <class Variant, class Idle>
void killed_at(int stage, Idle idle) {
    CAPTURE(stage);
    using T = typename Variant::transport_type;
    child_process child([stage](const std::string& address) { die_in_mid_message<Variant>(address, stage); });
    scheduler on(idle);
    const auto domain = Variant::open(on);
    on.run([](auto& in, child_process& of) -> task<> {
        co_await timeout(outlives_its_peer<T>(in, Variant::address(), of), case_limit);
    }(*domain, child));
    const int status = child.wait();
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a peer killed in mid-message ends everything pending, while spinning", "",
                        every_real_transport) {
    for (const int stage : {0, 1, 5, 40}) killed_at<TestType>(stage, idle::yield{});
}
TEMPLATE_LIST_TEST_CASE("a peer killed in mid-message ends everything pending, while parked", "",
                        every_real_transport) {
    for (const int stage : {0, 5, 40})
        killed_at<TestType>(stage, idle::adaptive(duration::zero(), duration::zero()));
}
