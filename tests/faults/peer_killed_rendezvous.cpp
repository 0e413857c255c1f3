#include "conformance/transports.hpp"

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/pattern.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>

#include <sched.h>

namespace test_faults_peer_killed_rendezvous {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t huge = std::size_t{16} << 20;
constexpr std::byte sent_byte{0x5a};

/// Where in a rendezvous the peer dies.
enum class phase {
    // the peer sends
    request_unmatched,  ///< its request is here, and no receive
    met_while_stopped,  ///< it was stopped before the receive was posted: it never read our answer
    being_received,     ///< a part of its message is here
    met_at_once,        ///< the receive was there first, and it knows; it has not begun to send
    put_at_once,        ///< likewise, and a part of its message is here
    // the peer receives
    not_received,  ///< it has our request, and no receive
    just_met,      ///< its receive has met our request: it gets, or has said where to put
    being_sent,    ///< it has a part of our message
    all_there,     ///< it has all of our message, and perhaps not said so
    waiting,       ///< its receive was there first, and we know; it has a part of our message
};
constexpr phase peer_sends[] = {phase::request_unmatched, phase::met_while_stopped, phase::being_received,
                                phase::met_at_once, phase::put_at_once};
constexpr phase peer_receives[] = {phase::not_received, phase::just_met, phase::being_sent, phase::all_there,
                                   phase::waiting};

/// Long enough to be killed in the middle of; shorter where all of it has to come, in turns with a peer that spins.
std::size_t message_bytes(phase when) { return when == phase::all_there ? std::size_t{1} << 20 : huge; }

template <class Domain>
std::size_t regions_of(Domain& domain) {
    if constexpr (requires { domain.regions().registered(); }) {
        return domain.regions().registered();
    } else {
        return domain.registered();
    }
}

/// Whether a byte of a message has come to either end of `into`: another process, or the kernel for it, may be writing.
bool has_begun(std::vector<std::byte>& into) {
    const auto there = [](std::byte& b) {
        return std::atomic_ref(b).load(std::memory_order_relaxed) == sent_byte;
    };
    return there(into.front()) || there(into.back());
}
bool is_whole(const std::vector<std::byte>& into) { return all_are(sent_byte, into); }

/// The child. Dies by its own hand, or waits until it is killed.
template <class Variant, class P>
void peer(const std::string& address, phase when) {
    using T = typename Variant::transport_type;
    scheduler on{idle::yield{}};
    const auto domain = Variant::open(on);
    on.run([](auto& in, const std::string& where, phase moment) -> task<> {
        auto end = co_await timeout(connect<T, P>(in, where), 30s);
        std::vector<std::byte> memory(message_bytes(moment));
        if (std::find(std::begin(peer_sends), std::end(peer_sends), moment) != std::end(peer_sends)) {
            std::fill(memory.begin(), memory.end(), sent_byte);
            if (moment == phase::met_at_once || moment == phase::put_at_once) co_await end.recv({}, 7);
            if (moment == phase::met_at_once) ::kill(::getpid(), SIGKILL);
            co_await end.send(memory, 2);
            co_await end.recv({}, 1234);
            co_return;
        }
        if (moment == phase::not_received) {
            co_await end.probe(2);
            ::kill(::getpid(), SIGKILL);
        }
        if (moment != phase::waiting) co_await end.probe(2);
        auto receiving = start(end.recv(memory, 2));
        if (moment == phase::waiting) co_await end.send({}, 7);
        const auto arrived = [&] {
            switch (moment) {
                case phase::just_met: return true;
                case phase::waiting:
                case phase::being_sent: return has_begun(memory);
                default: return receiving.done();
            }
        };
        while (!arrived()) co_await yield();
        ::kill(::getpid(), SIGKILL);
        co_await receiving;
    }(*domain, address, when));
}

bool lost(std::error_code code) { return code == errc::peer_lost; }

/// Everything that can be pending beside the message that is looked at, and how it ends.
template <class T, class P>
class bystanders {
public:
    explicit bystanders(endpoint<T, P>& end)
        : data_(200000, std::byte{1}),
          into_(8),
          posted_(end.recv(into_, 99)),
          lent_(end.recv_lent(tag_match(64, 64))),
          probed_(end.probe(98)),
          matched_(end.ssend(into_, 5)),
          sent_(end.send(data_, 6)) {}

    task<> end_as_they_should() {
        const auto a = co_await as_result(posted_);
        CHECK(lost(a.error()));
        const auto b = co_await as_result(lent_);
        CHECK(lost(b.error()));
        const auto c = co_await as_result(probed_);
        CHECK(lost(c.error()));
        const auto d = co_await as_result(matched_);
        CHECK(lost(d.error()));
        const auto e = co_await as_result(sent_);
        CHECK(lost(e.error()));
    }

private:
    template <class Op>
    using begun = started<Op>;

    std::vector<std::byte> data_;
    std::vector<std::byte> into_;
    begun<decltype(std::declval<endpoint<T, P>&>().recv(std::declval<std::vector<std::byte>&>(), 99))>
        posted_;
    begun<decltype(std::declval<endpoint<T, P>&>().recv_lent(1))> lent_;
    begun<decltype(std::declval<endpoint<T, P>&>().probe(1))> probed_;
    begun<decltype(std::declval<endpoint<T, P>&>().ssend(std::declval<std::vector<std::byte>&>(), 5))>
        matched_;
    begun<decltype(std::declval<endpoint<T, P>&>().send(std::declval<std::vector<std::byte>&>(), 6))> sent_;
};

/// Stops the child, and returns when it stands still.
void stop(child_process& child) {
    ::kill(child.pid(), SIGSTOP);
    int status = 0;
    REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
    REQUIRE(WIFSTOPPED(status));
}

/// Answers whether the peer died with a part of the message on the other side.
template <class T, class P>
task<bool> receives_from_the_dying(endpoint<T, P>& end, typename T::domain& domain, child_process& child,
                                   phase when) {
    std::vector<std::byte> into(huge);
    bystanders<T, P> beside(end);
    bool middle = false;
    if (when == phase::met_at_once || when == phase::put_at_once) {
        auto receiving = start(end.recv(into, 2));
        auto telling = start(end.send({}, 7));
        while (when == phase::put_at_once && !has_begun(into) && !receiving.done()) co_await yield();
        if (when == phase::put_at_once) child.kill();
        const auto got = co_await as_result(receiving);
        if (got) {
            CHECK(is_whole(into));
        } else {
            CHECK(lost(got.error()));
            middle = has_begun(into);
        }
        static_cast<void>(co_await as_result(telling));
        co_await beside.end_as_they_should();
        if (when == phase::met_at_once) CHECK_FALSE(got);
        CHECK(regions_of(domain) == 0);
        co_return middle;
    }
    co_await timeout(end.probe(2), 30s);
    if (when == phase::request_unmatched) {
        child.kill();
        co_await beside.end_as_they_should();
        const auto late = co_await as_result(end.recv(into, 2));
        CHECK(lost(late.error()));
    } else {
        if (when == phase::met_while_stopped) stop(child);
        auto receiving = start(end.recv(into, 2));
        if (when == phase::being_received) {
            while (!has_begun(into) && !receiving.done()) co_await yield();
        } else {
            for (int n = 0; n < 3; ++n) co_await yield();
        }
        child.kill();
        const auto got = co_await as_result(receiving);
        if (got) {
            CHECK(is_whole(into));
        } else {
            CHECK(lost(got.error()));
            middle = has_begun(into) || when == phase::met_while_stopped;
        }
        co_await beside.end_as_they_should();
    }
    CHECK(regions_of(domain) == 0);
    // The memory is ours: the dead write to nothing.
    std::fill(into.begin(), into.end(), std::byte{0x11});
    for (int n = 0; n < 20; ++n) co_await yield();
    CHECK(all_are(std::byte{0x11}, into));
    co_return middle;
}

template <class T, class P>
task<bool> sends_to_the_dying(endpoint<T, P>& end, typename T::domain& domain, phase when) {
    const std::vector<std::byte> data(message_bytes(when), sent_byte);
    if (when == phase::waiting) co_await timeout(end.recv({}, 7), 30s);
    auto sending = start(end.send(data, 2));
    bystanders<T, P> beside(end);
    const auto sent = co_await as_result(sending);
    if (!sent) CHECK(lost(sent.error()));
    if (when == phase::not_received) CHECK_FALSE(sent);
    co_await beside.end_as_they_should();
    CHECK(regions_of(domain) == 0);
    co_return !sent;
}

template <class T, class P>
task<bool> outlives(typename T::domain& in, std::string where, child_process& child, phase when) {
    auto listening = co_await listen<T, P>(in, where);
    child.tell(listening.address());
    endpoint<T, P> end = co_await timeout(listening.accept(), 30s);
    const bool receives =
        std::find(std::begin(peer_sends), std::end(peer_sends), when) != std::end(peer_sends);
    bool middle = false;
    if (receives) {
        middle = co_await receives_from_the_dying<T, P>(end, in, child, when);
    } else {
        middle = co_await sends_to_the_dying<T, P>(end, in, when);
    }
    const std::byte nothing[8] = {};
    const auto later = co_await as_result(end.send(nothing, 1));
    CHECK(lost(later.error()));
    co_await end.close();
    CHECK(regions_of(in) == 0);
    // The listener and the domain go on.
    auto accepting = start(listening.accept());
    auto again = co_await timeout(connect<T, P>(in, listening.address()), 30s);
    auto accepted = co_await accepting;
    const auto data = pattern(300000, 1);
    std::vector<std::byte> into(300000);
    auto receiving = start(accepted.recv(into, 1));
    co_await again.send(data, 1);
    co_await receiving;
    CHECK(into == data);
    co_return middle;
}

/// While it lives, this thread is kept to one of the processors that it may use, where those are two or more.
class on_processor {
public:
    explicit on_processor(int number) {
        ::sched_getaffinity(0, sizeof before_, &before_);
        if (CPU_COUNT(&before_) < 2) return;
        int at = 0;
        for (; number >= 0; ++at) number -= CPU_ISSET(at, &before_) ? 1 : 0;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(at - 1, &one);
        ::sched_setaffinity(0, sizeof one, &one);
    }
    on_processor(const on_processor&) = delete;
    on_processor& operator=(const on_processor&) = delete;
    ~on_processor() { ::sched_setaffinity(0, sizeof before_, &before_); }

private:
    cpu_set_t before_{};
};

template <class Variant, class P, class Idle>
bool killed_at(phase when, Idle idle) {
    using T = typename Variant::transport_type;
    // On one processor, which other programs leave them, the peer would have sent all before this process has its turn.
    child_process child([when](const std::string& address) {
        const on_processor second(1);
        peer<Variant, P>(address, when);
    });
    const on_processor first(0);
    scheduler on(idle);
    const auto domain = Variant::open(on);
    const bool middle = on.run([](auto& in, child_process& of, phase moment) -> task<bool> {
        co_return co_await timeout(outlives<T, P>(in, Variant::address(), of, moment), case_limit);
    }(*domain, child, when));
    const int status = child.wait();
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGKILL);
    return middle;
}

/// Through every phase; again where the peer was too quick to be killed in the middle. Some libraries take all of a message in
/// one poll, if the peer goes on sending: to have tried twice has to do there.
template <class Variant, class P, class Idle>
void kill_in_every_phase(Idle idle) {
    // On a machine that is busy the peer may be killed before or after.
    constexpr int most_tries = 50;
    constexpr bool at_once = requires { Variant::may_come_at_once; };
    for (const phase when : peer_sends) {
        CAPTURE(static_cast<int>(when));
        const bool to_the_middle = when == phase::being_received || when == phase::put_at_once;
        bool middle = killed_at<Variant, P>(when, idle);
        for (int n = 1; n < (at_once ? 2 : most_tries) && to_the_middle && !middle; ++n)
            middle = killed_at<Variant, P>(when, idle);
        if (to_the_middle && !at_once) CHECK(middle);
    }
    for (const phase when : peer_receives) {
        CAPTURE(static_cast<int>(when));
        const bool to_the_middle = when != phase::all_there;
        bool middle = killed_at<Variant, P>(when, idle);
        for (int n = 1; n < most_tries && to_the_middle && !middle; ++n)
            middle = killed_at<Variant, P>(when, idle);
        if (to_the_middle) CHECK(middle);
    }
}

/// Parks whenever nothing moves.
idle::adaptive sleepy() { return idle::adaptive(duration::zero(), duration::zero()); }

using get_list = protocols<get_rendezvous<>>;
using put_list = protocols<put_rendezvous<>>;
using cooperative_list = protocols<cooperative_rendezvous<>, put_rendezvous<>>;
using speculative_list = protocols<eager<>, speculative<get_rendezvous<>>>;

}  // namespace

TEMPLATE_LIST_TEST_CASE("a peer killed in any phase of get_rendezvous leaves nothing pending", "",
                        every_real_transport) {
    SECTION("spinning") { kill_in_every_phase<TestType, get_list>(idle::spin{}); }
    SECTION("parking") { kill_in_every_phase<TestType, get_list>(sleepy()); }
}
TEMPLATE_LIST_TEST_CASE("a peer killed in any phase of put_rendezvous leaves nothing pending", "",
                        every_real_transport) {
    SECTION("spinning") { kill_in_every_phase<TestType, put_list>(idle::spin{}); }
    SECTION("parking") { kill_in_every_phase<TestType, put_list>(sleepy()); }
}
TEMPLATE_LIST_TEST_CASE("a peer killed in any phase of cooperative_rendezvous leaves nothing pending", "",
                        every_real_transport) {
    SECTION("spinning") { kill_in_every_phase<TestType, cooperative_list>(idle::spin{}); }
    SECTION("parking") { kill_in_every_phase<TestType, cooperative_list>(sleepy()); }
}
TEMPLATE_LIST_TEST_CASE("a peer killed in any phase of speculative leaves nothing pending", "",
                        every_real_transport) {
    SECTION("spinning") { kill_in_every_phase<TestType, speculative_list>(idle::spin{}); }
    SECTION("parking") { kill_in_every_phase<TestType, speculative_list>(sleepy()); }
}

}  // namespace test_faults_peer_killed_rendezvous
