#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/tcp.hpp>
#include <rdmacoro/transport/tcp/liveness.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/pattern.hpp"
#include "support/run.hpp"
#include "support/tcp_pair.hpp"

#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <vector>

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

namespace test_faults_tcp_vanished_host {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// The loopback interface of the network namespace that this process is in.
void interface_is(bool up) {
    const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ifreq asked{};
    std::strcpy(asked.ifr_name, "lo");
    if (fd < 0 || ::ioctl(fd, SIOCGIFFLAGS, &asked) != 0) throw std::runtime_error("no interface");
    asked.ifr_flags = static_cast<short>(up ? asked.ifr_flags | IFF_UP : asked.ifr_flags & ~IFF_UP);
    if (::ioctl(fd, SIOCSIFFLAGS, &asked) != 0) throw std::runtime_error("the interface does not change");
    ::close(fd);
}

void expect(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(what);
}

/// How a link whose host vanishes is used meanwhile.
enum class use : int { idle, one_message, stream };

constexpr auto quiet_limit = 4s;
/// A link ends after the limit and a second, which is how far apart probes are; the rest is what a busy machine takes to notice. As much
/// as `quiet_limit` more would let a link pass that looks at silence of twice the limit.
constexpr auto latest = quiet_limit + 2s;

void within_the_limits(duration took) {
    std::fprintf(stderr, "lost after %lld ms\n",
                 static_cast<long long>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
    // The last answer may be a second old, which is how far apart the probes are.
    expect(took >= quiet_limit - 1s - 50ms, "ended before the limit");
    expect(took <= latest, "ended too late");
}

task<> until_lost(endpoint<tcp>& end, use how, time_point& when) {
    std::vector<std::byte> memory(std::size_t{8} << 20);
    const auto say = [&](std::size_t bytes) { return end.send(std::span(memory).first(bytes), 1); };
    if (how == use::one_message) {
        auto sent = co_await as_result(say(8));
        static_cast<void>(sent);
    }
    std::error_code why;
    if (how == use::stream) {
        while (!why) {
            auto sent = co_await as_result(say(memory.size()));
            if (!sent) why = sent.error();
        }
    } else {
        auto got = co_await as_result(end.recv(memory, 2));
        if (!got) why = got.error();
    }
    when = scheduler::current()->now();
    expect(why == errc::peer_lost, "ended with another reason");
}

task<> take_all(endpoint<tcp>& end) {
    std::vector<std::byte> memory(std::size_t{8} << 20);
    for (;;) {
        auto got = co_await as_result(end.recv(memory, 1));
        if (!got) co_return;
    }
}

task<> accept_and_take_all(listener<tcp>& from, std::optional<endpoint<tcp>>& into) {
    into.emplace(co_await from.accept());
    co_await take_all(*into);
}

task<> vanish(tcp_domain& in, use how) {
    auto listening = co_await listen<tcp>(in, "127.0.0.1:0");
    std::optional<endpoint<tcp>> there;
    task_group beside;
    beside.spawn(accept_and_take_all, std::ref(listening), std::ref(there));
    endpoint<tcp> here = co_await connect<tcp>(in, listening.address());
    while (!there) co_await yield();
    time_point ended{};
    if (how == use::stream) {
        beside.spawn(until_lost, std::ref(here), how, std::ref(ended));
        while (there->counts().bytes_received < (std::size_t{32} << 20)) co_await yield();
    }
    const time_point gone = scheduler::current()->now();
    interface_is(false);
    if (how != use::stream) beside.spawn(until_lost, std::ref(here), how, std::ref(ended));
    co_await beside.join();
    within_the_limits(ended - gone);
}

/// The network comes back before the limit is over, and the link goes on.
task<> come_back(tcp_domain& in) {
    auto listening = co_await listen<tcp>(in, "127.0.0.1:0");
    auto accepting = start(listening.accept());
    endpoint<tcp> here = co_await connect<tcp>(in, listening.address());
    endpoint<tcp> there = co_await accepting;
    std::byte byte{};
    co_await here.send(std::span(&byte, 1), 1);
    co_await there.recv(std::span(&byte, 1), 1);
    auto waits = start(as_result(there.recv(std::span(&byte, 1), 2)));
    // Three probes of the four that may stay unanswered are asked meanwhile: of real time, which is the kernel's.
    co_await sleep_for(1500ms);
    interface_is(false);
    co_await sleep_for(quiet_limit - 1100ms);
    expect(!waits.done(), "ended before the network came back");
    interface_is(true);
    co_await sleep_for(quiet_limit);  // longer than what was asked in vain would have taken
    expect(!waits.done(), "ended after the network came back");
    co_await here.send(std::span(&byte, 1), 2);
    const auto got = co_await waits;
    expect(got.has_value(), "the link does not go on");
}

/// Runs `body` in a process with a network of its own, whose loopback interface is up.
template <class Body>
void in_a_namespace(Body body) {
    child_process child([&body](const std::string&) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWNET) != 0) ::_exit(77);
        interface_is(true);
        tcp_options options;
        options.peer_timeout = quiet_limit;
        body(options);
    });
    child.tell("begin");
    const int status = child.wait();
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP_TEST("no namespaces here");
    CHECK(status == 0);
}

/// The peer is a socket that is never read: what is sent to it fills its buffer, closes the window, and then fills this side's.
void vanish_behind_a_closed_window(const tcp_options& options) {
    raw_pair p(options);
    const auto payload = pattern(detail::tcp_most_message);
    std::vector<recording_completion> completions(16);
    for (auto& c : completions) {
        const post_result answer = p.b.link->post(header_of(1), payload, c);
        expect(answer == post_result::done || answer == post_result::posted, "not sent");
    }
    const auto unread = [&] {
        int bytes = 0;
        expect(::ioctl(p.peer.fd(), FIONREAD, &bytes) == 0, "no count of unread bytes");
        return bytes;
    };
    p.on.run([](auto count) -> task<> {
        for (int before = -1; before != count();) {
            before = count();
            co_await sleep_for(300ms);
        }
    }(unread));
    expect(unread() > 0 && completions.back().calls == 0, "the window is open");
    const time_point gone = p.on.now();
    interface_is(false);
    p.on.run([](const recording_sink& seen, time_point until) -> task<> {
        while (seen.downs == 0 && scheduler::current()->now() < until) co_await sleep_for(1ms);
    }(p.b.sink, gone + 2 * latest));
    expect(p.b.sink.reason == errc::peer_lost, "ended with another reason");
    within_the_limits(p.on.now() - gone);
}

/// A connection on which a raw peer has greeted, and that is to be accepted.
raw_peer greeted(const tcp_listener& listener) {
    raw_peer peer = raw_peer::to(listener.address());
    detail::tcp_greeting greeting;
    greeting.nonce = 4712;
    const auto bytes = greeting.store();
    std::size_t sent = 0;
    expect(peer.try_send(bytes, sent) && sent == bytes.size(), "not greeted");
    return peer;
}

/// Turns until `done`, or for a time that suffices for a link to end.
template <class Done>
void turn_until(scheduler& on, Done done) {
    on.run([](Done& holds, time_point until) -> task<> {
        while (!holds() && scheduler::current()->now() < until) co_await sleep_for(1ms);
    }(done, on.now() + 20s));
}

/// Posts on another link when it ends.
struct posting_completion : completion {
    explicit posting_completion(recorded_link& link) : other(link) {
        done = [](completion& self, std::error_code how) noexcept {
            auto& mine = static_cast<posting_completion&>(self);
            mine.outcome = how;
            mine.answer = mine.other.post_copied(header_of(2), {});
        };
    }

    recorded_link& other;
    std::error_code outcome;
    post_result answer = post_result::failed;
};

/// A link that ends posts on one that is idle, and so begins to be watched in the midst of a look at all.
void end_and_post(tcp_options options) {
    options.peer_timeout = detail::tcp_liveness::least_limit;
    raw_pair p(options);
    raw_peer peer = greeted(p.listener);
    tcp_end idle;
    idle.link = std::make_unique<recorded_link>(p.on.run(p.listener.accept()), idle.sink);
    static_cast<void>(peer.receive(p, detail::tcp_greeting::wire_bytes));
    // The greetings are acknowledged, so that the links are watched no more.
    p.on.run([](duration some) -> task<> { co_await sleep_for(some); }(options.peer_timeout / 2));
    interface_is(false);
    const auto payload = pattern(detail::tcp_most_message);
    std::vector<recording_completion> completions(16);
    for (auto& c : completions) {
        const post_result answer = p.b.link->post(header_of(1), payload, c);
        expect(answer == post_result::done || answer == post_result::posted, "not sent");
    }
    posting_completion last(*idle.link);
    expect(p.b.link->post(header_of(1), payload, last) == post_result::posted, "not posted");
    turn_until(p.on, [&] { return p.b.sink.downs != 0 && idle.sink.downs != 0; });
    expect(p.b.sink.reason == errc::peer_lost && last.outcome == errc::peer_lost, "the first goes on");
    expect(last.answer == post_result::done, "nothing went out on the other link");
    expect(idle.sink.reason == errc::peer_lost, "the other is watched no more");
}

/// The host vanishes before it has acknowledged the greeting, and is found lost before a link takes the connection.
void vanish_before_the_link(tcp_options options) {
    options.peer_timeout = detail::tcp_liveness::least_limit;
    tcp_world w(options);
    tcp_listener listener = w.listen();
    const raw_peer peer = greeted(listener);
    interface_is(false);
    tcp_connection connection = w.on.run(listener.accept());
    detail::tcp_session& session = *connection.release();
    const auto ended = [&] {
        tcp_info now{};
        socklen_t bytes = sizeof now;
        return ::getsockopt(session.fd(), IPPROTO_TCP, TCP_INFO, &now, &bytes) != 0 ||
               now.tcpi_state != TCP_ESTABLISHED;
    };
    expect(!ended(), "ended at once");
    turn_until(w.on, ended);
    expect(ended(), "not found lost");
    tcp_end end;
    end.link = std::make_unique<recorded_link>(tcp_connection(session), end.sink);
    turn_until(w.on, [&] { return end.sink.downs != 0; });
    expect(end.sink.reason == errc::peer_lost, "the link is not told");
}

}  // namespace

TEST_CASE("a link ends with peer_lost when its host vanishes: idle, with a message under way, in a stream") {
    const use how = GENERATE(use::idle, use::one_message, use::stream);
    in_a_namespace([how](const tcp_options& options) {
        scheduler on{idle::adaptive{}};
        tcp_domain domain(on, options);
        on.run(vanish(domain, how));
    });
}

TEST_CASE("an idle link outlives a network that is away for less than the limit") {
    in_a_namespace([](const tcp_options& options) {
        scheduler on{idle::adaptive{}};
        tcp_domain domain(on, options);
        on.run(come_back(domain));
    });
}

TEST_CASE("a link ends with peer_lost, as soon, when its host vanishes after it has closed its window") {
    in_a_namespace(vanish_behind_a_closed_window);
}

TEST_CASE("a link that ends as its host vanished may send on an idle link, which ends in its turn") {
    in_a_namespace(end_and_post);
}

TEST_CASE("a link is told of a host that vanished before the link took its connection") {
    in_a_namespace(vanish_before_the_link);
}

}  // namespace test_faults_tcp_vanished_host
