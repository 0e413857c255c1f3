#include <rdmacoro/transport/plain_stream.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/detail/taken_port.hpp>

#include "support/catch.hpp"
#include "support/described_stages.hpp"
#include "support/pattern.hpp"
#include "support/run.hpp"

#include <optional>
#include <random>
#include <thread>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace test_transport_plain_stream {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// A peer without the toolkit: a blocking socket. Its steps are for a thread of its own; what fails is an exception there.
class blocking_socket {
public:
    explicit blocking_socket(int fd) : fd_(fd) {
        if (fd < 0) throw std::runtime_error("no socket");
        const timeval limit{30, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    }
    /// Connects to "socket://127.0.0.1:PORT".
    static blocking_socket to(const std::string& url) {
        blocking_socket made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        at.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
        if (::connect(made.fd_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0)
            throw std::runtime_error("connect");
        return made;
    }
    blocking_socket(blocking_socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    blocking_socket& operator=(blocking_socket&&) = delete;
    ~blocking_socket() {
        if (fd_ >= 0) ::close(fd_);
    }

    void send(std::span<const std::byte> bytes) const {
        while (!bytes.empty()) {
            const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) throw std::runtime_error("send");
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        }
    }
    [[nodiscard]] std::vector<std::byte> receive_all() const {
        std::vector<std::byte> all;
        std::array<std::byte, 8192> some;
        for (;;) {
            const ssize_t got = ::recv(fd_, some.data(), some.size(), 0);
            if (got < 0) throw std::runtime_error("recv");
            if (got == 0) return all;
            all.insert(all.end(), some.begin(), some.begin() + got);
        }
    }
    void end() const { ::shutdown(fd_, SHUT_WR); }
    /// So that its close is a reset.
    void reset_at_close() const {
        const linger at_once{1, 0};
        ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }

private:
    int fd_;
};

/// Runs `peer` on a thread while `own` is run; throws what failed.
template <class Peer>
void beside(Peer peer, scheduler& on, task<> own) {
    std::exception_ptr failure;
    std::thread other([&] {
        try {
            peer();
        } catch (...) {
            failure = std::current_exception();
        }
    });
    std::exception_ptr mine;
    try {
        on.run([](task<> body) -> task<> { co_await timeout(std::move(body), 60s); }(std::move(own)));
    } catch (...) {
        mine = std::current_exception();
    }
    other.join();
    if (mine) std::rethrow_exception(mine);
    if (failure) std::rethrow_exception(failure);
}

task<std::vector<std::byte>> read_to_end(plain_stream& from, std::size_t most) {
    std::vector<std::byte> all;
    std::vector<std::byte> some(most);
    while (const std::size_t got = co_await from.read_some(some))
        all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(got));
    co_return all;
}

}  // namespace

TEST_CASE("a port that is taken is tried again, and taken when it comes free") {
    virtual_time world;
    std::optional<plain_listener> other = world.run(listen_plain("127.0.0.1:0"));
    const std::string url = other->address();
    const auto taken = world.run([](std::string to) -> task<std::error_code> {
        const auto made = co_await as_result(listen_plain(to));
        co_return made ? std::error_code() : made.error();
    }(url));
    CHECK(taken == errc::address_in_use);
    CHECK(world.now() == detail::taken_port::patience);

    const plain_listener made =
        world.run([](std::string to, std::optional<plain_listener>& by) -> task<plain_listener> {
            auto waiting = start(listen_plain(to));
            co_await sleep_for(20ms);
            by.reset();
            co_return co_await waiting;
        }(url, other));
    CHECK(made.address() == url);
    CHECK(world.now() <= detail::taken_port::patience + 20ms + detail::taken_port::pause);
}

TEST_CASE("a plain socket that connects is talked with, both ways at once, while parked and while spinning") {
    const auto there = pattern(3'000'000, 1);
    const auto back = pattern(2'000'000, 2);
    const auto talk = [&](scheduler& on) {
        auto listening = on.run(listen_plain("127.0.0.1:0"));
        std::vector<std::byte> got;
        beside(
            [&, url = listening.address()] {
                const auto peer = blocking_socket::to(url);
                std::thread sending([&] {
                    peer.send(there);
                    peer.end();
                });
                got = peer.receive_all();
                sending.join();
            },
            on,
            [](plain_listener& from, std::span<const std::byte> expected,
               std::span<const std::byte> answer) -> task<> {
                auto stream = co_await from.accept();
                auto reading = start(read_to_end(stream, 10'000));
                co_await stream.write(answer);
                co_await stream.shutdown();
                const auto all = co_await reading;
                CHECK(same_bytes(all, expected));
                CHECK(stream.at_end());
                const auto late = co_await as_result(stream.write(answer));
                CHECK(late.error() == errc::closed);
                co_await stream.close();
            }(listening, there, back));
        CHECK(same_bytes(got, back));
    };
    scheduler parks{idle::adaptive(0ns, 0ns)};
    // A peer that is always ahead leaves it nothing to wait for.
    for (int n = 0; n < 50 && parks.parks() == 0; ++n) talk(parks);
    CHECK(parks.parks() > 0);
    scheduler spins{idle::spin{}};
    talk(spins);
}

TEST_CASE("a plain socket that listens is connected to, and one that does not is named") {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof at;
    REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
    const std::string url = "socket://127.0.0.1:" + std::to_string(ntohs(at.sin_port));
    scheduler on;
    std::string text;
    try {
        static_cast<void>(on.run(connect_plain(url)));
    } catch (const error& why) {
        CHECK(why.code() == errc::connection_refused);
        text = why.what();
    }
    CHECK(text.find(url) != std::string::npos);
    CHECK_THROWS_AS(on.run(connect_plain("no port")), error);
    CHECK_THROWS_AS(on.run(listen_plain(url)), error);  // it is taken

    REQUIRE(::listen(fd, 1) == 0);
    beside(
        [fd] {
            const blocking_socket peer(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
            const auto got = peer.receive_all();
            peer.send(got);
        },
        on,
        [](std::string to) -> task<> {
            auto stream = co_await connect_plain(to);
            const std::uint32_t words[] = {1, 2, 3};
            co_await stream.write(words);
            co_await stream.shutdown();
            std::array<std::uint32_t, 3> back{};
            const auto all = co_await stream.read_exactly(back);
            CHECK(all == sizeof back);
            CHECK(back == std::array<std::uint32_t, 3>{1, 2, 3});
            const auto end = co_await stream.read_exactly(back);
            CHECK(end == 0);
        }(url));
    ::close(fd);
}

TEST_CASE("a read or write that is canceled loses nothing; a stream cut short, and a reset, are errors") {
    scheduler on;
    auto listening = on.run(listen_plain("127.0.0.1:0"));
    std::atomic<int> step{0};
    std::vector<std::byte> got;
    beside(
        [&, url = listening.address()] {
            {
                const auto peer = blocking_socket::to(url);
                step.wait(0);
                peer.send(pattern(7, 1));
                peer.end();
                step.wait(1);
                got = peer.receive_all();
            }
            const auto second = blocking_socket::to(url);
            second.reset_at_close();
        },
        on,
        [](plain_listener& from, std::atomic<int>& now) -> task<> {
            auto stream = co_await from.accept();
            std::vector<std::byte> ten(10);
            const auto none = co_await as_result(timeout(stream.read_some(ten), 5ms));
            CHECK(none.error() == errc::timed_out);
            auto reading = start(as_result(stream.read_exactly(ten)));
            check_stage("plain_stream", "waits for its socket", next_actor::network);
            const auto second = co_await as_result(stream.read_some(ten));
            CHECK(second.error() == errc::invalid_argument);
            now = 1;
            now.notify_all();
            const auto cut = co_await reading;
            CHECK(cut.error() == errc::closed);
            CHECK(cut.info() == 7);
            CHECK(is_pattern(std::span(ten).first(7), 1));
            // The peer does not read yet: a long write does not end, and what it wrote is counted.
            const auto data = pattern(30'000'000, 2);
            std::size_t written = 0;
            while (written < data.size()) {
                const auto some =
                    co_await as_result(timeout(stream.write(std::span(data).subspan(written)), 20ms));
                written = some ? data.size() : written + some.info();
                now = 2;
                now.notify_all();
            }
            co_await stream.close();
            auto other = co_await from.accept();
            const auto lost = co_await as_result(other.read_some(ten));
            CHECK((lost.error() == errc::peer_lost));
            other.abort();
            const auto after = co_await as_result(other.read_some(ten));
            CHECK(after.error() == errc::closed);
        }(listening, step));
    CHECK(same_bytes(got, pattern(30'000'000, 2)));
}

namespace {

/// Counts the turns that it gets.
task<> count_turns(std::size_t& turns) {
    for (;; ++turns) co_await yield();
}

}  // namespace

TEST_CASE("with a token that is stopped already nothing is written, read, accepted or listened for") {
    scheduler on;
    on.run([]() -> task<> {
        std::stop_source stop;
        stop.request_stop();
        const auto stopped = stop.get_token();
        auto listening = co_await listen_plain("127.0.0.1:0");
        auto here = co_await connect_plain(listening.address());
        const auto no_listener = co_await as_result(with_stop(listen_plain("127.0.0.1:0"), stopped));
        CHECK(no_listener.error() == errc::canceled);
        const auto no_peer = co_await as_result(with_stop(listening.accept(), stopped));
        CHECK(no_peer.error() == errc::canceled);
        auto there = co_await timeout(listening.accept(), 30s);
        const auto not_written = co_await as_result(with_stop(here.write(std::string_view("no")), stopped));
        CHECK(not_written.error() == errc::canceled);
        co_await here.write(std::string_view("yes"));
        std::string text(3, ' ');
        const auto writable = std::as_writable_bytes(std::span(text));
        const auto not_read = co_await as_result(with_stop(there.read_exactly(writable), stopped));
        CHECK(not_read.error() == errc::canceled);
        co_await timeout(there.read_exactly(writable), 30s);
        CHECK(text == "yes");
    }());
}

TEST_CASE("a stream that is always ready to be read or written lets the other coroutines have their turns") {
    scheduler on;
    on.run([]() -> task<> {
        constexpr std::size_t bytes = 60'000;
        auto listening = co_await listen_plain("127.0.0.1:0");
        const blocking_socket peer = blocking_socket::to(listening.address());
        auto stream = co_await listening.accept();
        // A byte at a time, of what lies in the socket.
        peer.send(pattern(bytes, 1));
        peer.end();
        std::size_t turns = 0;
        local_stop_source stop;
        auto other = start(as_result(with_stop(count_turns(turns), stop.get_token())));
        std::byte one{};
        std::size_t got = 0;
        while (const std::size_t now = co_await stream.read_some(std::span(&one, 1))) got += now;
        CHECK(got == bytes);
        CHECK(turns >= bytes / 1000);
        // The peer's room is enough for what is written.
        const std::size_t before = turns;
        for (std::size_t n = 0; n < bytes; ++n) co_await stream.write(std::span(&one, 1));
        CHECK(turns - before >= bytes / 1000);
        stop.request_stop();
        const auto ended = co_await other;
        CHECK(ended.error() == errc::canceled);
    }());
}

TEST_CASE("accepting of many that connect lets the other coroutines have their turns") {
    scheduler on;
    on.run([]() -> task<> {
        auto listening = co_await listen_plain("127.0.0.1:0");
        std::size_t turns = 0;
        std::size_t accepted = 0;
        local_stop_source stop;
        auto other = start(as_result(with_stop(count_turns(turns), stop.get_token())));
        for (int times = 0; times < 10; ++times) {
            std::vector<blocking_socket> peers;
            for (int n = 0; n < 200; ++n) peers.push_back(blocking_socket::to(listening.address()));
            for (int n = 0; n < 200; ++n, ++accepted) static_cast<void>(co_await listening.accept());
        }
        CHECK(turns >= accepted / 1000);
        stop.request_stop();
        static_cast<void>(co_await other);
    }());
}

TEST_CASE("the first plain socket of a scheduler may find no descriptor: that is an error") {
    const auto code_of = [](task<> what) -> task<std::error_code> {
        const auto ended = co_await as_result(std::move(what));
        co_return ended ? std::error_code() : ended.error();
    };
    for (unsigned free = 0; free < 3; ++free) {
        CAPTURE(free);
        scheduler on;  // whose sockets have no epoll instance yet
        const int next = ::dup(STDERR_FILENO);
        REQUIRE(next >= 0);
        ::close(next);
        rlimit before{};
        REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
        const rlimit few{static_cast<rlim_t>(next) + free, before.rlim_max};
        std::error_code listening;
        std::error_code connecting;
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
        on.run([](const auto& code, std::error_code& one, std::error_code& other) -> task<> {
            one =
                co_await code([]() -> task<> { static_cast<void>(co_await listen_plain("127.0.0.1:0")); }());
            other =
                co_await code([]() -> task<> { static_cast<void>(co_await connect_plain("127.0.0.1:1")); }());
        }(code_of, listening, connecting));
        REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
        // One for the epoll instance, and one for the socket.
        CHECK(listening == (free < 2 ? make_error_code(errc::no_resources) : std::error_code()));
        CHECK(connecting == make_error_code(free < 2 ? errc::no_resources : errc::connection_refused));
    }
}

namespace {

/// Of each step that is to come soon. Far longer than it takes.
constexpr auto soon = 5s;

/// How a stream or listener goes while operations of it are under way.
enum class leaving : int { destroyed, assigned_over, aborted };
constexpr leaving every_leaving[] = {leaving::destroyed, leaving::assigned_over, leaving::aborted};

void leave(std::optional<plain_stream>& which, leaving how) {
    switch (how) {
        case leaving::destroyed: which.reset(); break;
        case leaving::assigned_over: which = plain_stream(); break;
        case leaving::aborted: which->abort(); break;
    }
}

/// The number that the next descriptor of this process gets.
int next_descriptor() {
    const int next = ::dup(STDERR_FILENO);
    if (next < 0) throw std::runtime_error("no descriptor");
    ::close(next);
    return next;
}

/// How many operations wait for their sockets.
std::size_t waiting() {
    std::size_t all = 0;
    for (const auto& one : scheduler::current()->describe().operations())
        all += one.what == "plain_stream" && one.stage == "waits for its socket" ? 1 : 0;
    return all;
}
task<> until_waiting(std::size_t operations) {
    while (waiting() != operations) co_await yield();
}

/// What an operation ended with.
struct outcome {
    bool ended = false;
    std::error_code code;
    std::uint64_t info = 0;
};
template <class T>
task<> note(task<T> what, outcome& into) {
    const auto how = co_await as_result(std::move(what));
    into.ended = true;
    if (how) co_return;
    into.code = how.error();
    into.info = how.info();
}

/// A stream goes while a read, a write or both wait for its socket. Its descriptor's number is that of another stream at once.
task<> left_while_waiting(leaving how, bool reads, bool writes) {
    auto listening = co_await listen_plain("127.0.0.1:0");
    const auto peer = blocking_socket::to(listening.address());
    const auto next_peer = blocking_socket::to(listening.address());
    const int number = next_descriptor();
    std::optional<plain_stream> stream(co_await timeout(listening.accept(), soon));
    REQUIRE(next_descriptor() != number);

    const auto data = pattern(30'000'000, 1);  // more than the system takes
    std::vector<std::byte> into(10);
    outcome read;
    outcome written;
    task_group under_way;
    if (reads) under_way.spawn(note<std::size_t>, stream->read_exactly(into), std::ref(read));
    if (writes) under_way.spawn(note<void>, stream->write(data), std::ref(written));
    co_await timeout(until_waiting((reads ? 1u : 0u) + (writes ? 1u : 0u)), soon);
    CHECK_FALSE(read.ended);
    CHECK_FALSE(written.ended);

    leave(stream, how);
    CHECK(next_descriptor() == number);
    auto next = co_await timeout(listening.accept(), soon);
    CHECK(next_descriptor() != number);
    std::byte one{};
    auto woken = start(next.read_some(std::span(&one, 1)));
    static_cast<void>(co_await as_result(timeout(under_way.join(), soon)));
    // Where it has not ended, it is canceled now.
    under_way.request_stop();
    co_await under_way.join();
    CHECK(read.code == (reads ? make_error_code(errc::closed) : std::error_code()));
    CHECK(written.code == (writes ? make_error_code(errc::closed) : std::error_code()));
    next_peer.send(pattern(1, 2));
    const auto bytes = co_await as_result(timeout(woken, soon));
    CHECK(bytes);
    CHECK(is_pattern(std::span(&one, 1), 2));
    // The connection has ended, after what was written.
    const auto got = peer.receive_all();
    CHECK(got.size() == written.info);
    CHECK(is_pattern(got, 1));
}

}  // namespace

TEST_CASE("what waits for a plain stream that is destroyed, assigned over or aborted ends with closed, and "
          "no other stream is forgotten") {
    for (const leaving how : every_leaving) {
        for (const auto& [reads, writes] :
             {std::pair(true, false), std::pair(false, true), std::pair(true, true)}) {
            CAPTURE(static_cast<int>(how), reads, writes);
            scheduler on{idle::spin{}};  // makes no descriptors to park with
            on.run(left_while_waiting(how, reads, writes));
        }
    }
}

TEST_CASE("operations of a plain stream that goes end with closed also where they wait for their turn, or "
          "begin later") {
    for (const leaving how : every_leaving) {
        CAPTURE(static_cast<int>(how));
        scheduler on;
        on.run([](leaving in) -> task<> {
            auto listening = co_await listen_plain("127.0.0.1:0");
            const auto peer = blocking_socket::to(listening.address());
            std::optional<plain_stream> stream(co_await timeout(listening.accept(), soon));
            peer.send(pattern(1, 1));
            std::array<std::byte, 1> one{};
            std::array<std::byte, 1> another{};
            auto late_read = stream->read_some(another);
            auto late_write = stream->write(another);
            auto late_shutdown = stream->shutdown();
            while (scheduler::current()->may_go_on()) {}
            auto reading = start(as_result(stream->read_some(one)));
            while (scheduler::current()->may_go_on()) {}
            auto writing = start(as_result(stream->write(one)));
            CHECK_FALSE(reading.done());
            CHECK_FALSE(writing.done());
            CHECK(waiting() == 0);
            leave(stream, in);
            const auto read = co_await timeout(reading, soon);
            CHECK(read.error() == errc::closed);
            CHECK(read.info() == 0);
            const auto written = co_await timeout(writing, soon);
            CHECK(written.error() == errc::closed);
            CHECK(written.info() == 0);
            const auto read_late = co_await as_result(timeout(std::move(late_read), soon));
            CHECK(read_late.error() == errc::closed);
            const auto written_late = co_await as_result(timeout(std::move(late_write), soon));
            CHECK(written_late.error() == errc::closed);
            const auto shut_late = co_await as_result(timeout(std::move(late_shutdown), soon));
            CHECK(shut_late.error() == errc::closed);
        }(how));
    }
}

TEST_CASE("a plain stream that goes in the turn in which its socket is ready, or its read is canceled") {
    scheduler on;
    on.run([]() -> task<> {
        auto listening = co_await listen_plain("127.0.0.1:0");
        std::array<std::byte, 1> one{};
        const auto peer = blocking_socket::to(listening.address());
        std::optional<plain_stream> stream(co_await timeout(listening.accept(), soon));
        {
            auto reading = start(as_result(stream->read_some(one)));
            co_await timeout(until_waiting(1), soon);
            peer.send(pattern(1, 1));
            // This coroutine is resumed before the one that reads, which became ready after it.
            co_await timeout(until_waiting(0), soon);
            const bool ended = reading.done();
            stream.reset();
            const auto read = co_await timeout(reading, soon);
            CHECK((ended || read.error() == errc::closed));
        }
        for (const bool canceled_first : {false, true}) {
            CAPTURE(canceled_first);
            const auto other = blocking_socket::to(listening.address());
            stream = co_await timeout(listening.accept(), soon);
            local_stop_source stop;
            auto reading = start(as_result(with_stop(stream->read_some(one), stop.get_token())));
            co_await timeout(until_waiting(1), soon);
            if (canceled_first) stop.request_stop();
            stream.reset();
            stop.request_stop();
            const auto read = co_await timeout(reading, soon);
            CHECK(read.error() == (canceled_first ? errc::canceled : errc::closed));
        }
        // Its close drops what the peer sends, and waits for more.
        const auto other = blocking_socket::to(listening.address());
        stream = co_await timeout(listening.accept(), soon);
        auto closing = start(as_result(stream->close()));
        co_await timeout(until_waiting(1), soon);
        CHECK_FALSE(closing.done());
        stream.reset();
        const auto closed = co_await timeout(closing, soon);
        CHECK(closed.error() == errc::closed);
    }());
}

TEST_CASE("a read goes on where its plain stream is moved, and a stream outlives its scheduler") {
    plain_stream last;
    {
        scheduler on;
        on.run([](plain_stream& outlives) -> task<> {
            auto listening = co_await listen_plain("127.0.0.1:0");
            const auto peer = blocking_socket::to(listening.address());
            std::array<std::byte, 1> one{};
            std::optional<plain_stream> first(co_await timeout(listening.accept(), soon));
            auto reading = start(first->read_some(one));
            co_await timeout(until_waiting(1), soon);
            plain_stream second(std::move(*first));
            const auto of_nothing = co_await as_result(first->read_some(one));
            CHECK(of_nothing.error() == errc::closed);
            first->abort();
            first.reset();
            outlives = std::move(second);
            second = plain_stream();
            peer.send(pattern(1, 1));
            CHECK(co_await timeout(reading, soon) == 1);
            CHECK(is_pattern(one, 1));
        }(last));
    }
    CHECK(last);
    last = plain_stream();
    CHECK_FALSE(last);
}

TEST_CASE("an accept ends with closed where its listener is destroyed or assigned over, and no other one is "
          "forgotten") {
    for (const leaving how : {leaving::destroyed, leaving::assigned_over}) {
        CAPTURE(static_cast<int>(how));
        scheduler on{idle::spin{}};  // as above
        on.run([](leaving in) -> task<> {
            auto other = co_await listen_plain("127.0.0.1:0");
            const auto next_peer = blocking_socket::to(other.address());
            const int number = next_descriptor();
            std::optional<plain_listener> listening(co_await listen_plain("127.0.0.1:0"));
            std::optional<plain_listener> instead(co_await listen_plain("127.0.0.1:0"));
            REQUIRE(next_descriptor() > number);
            auto late = listening->accept();
            local_stop_source stop;
            auto accepting = start(as_result(with_stop(listening->accept(), stop.get_token())));
            co_await timeout(until_waiting(1), soon);
            CHECK_FALSE(accepting.done());
            if (in == leaving::destroyed) {
                listening.reset();
            } else {
                *listening = *std::move(instead);
            }
            CHECK(next_descriptor() == number);
            auto next = co_await timeout(other.accept(), soon);
            CHECK(next_descriptor() != number);
            std::byte one{};
            auto woken = start(next.read_some(std::span(&one, 1)));
            static_cast<void>(co_await as_result(timeout(until_waiting(1), soon)));
            stop.request_stop();
            const auto accepted = co_await timeout(accepting, soon);
            CHECK(accepted.error() == errc::closed);
            const auto accepted_late = co_await as_result(timeout(std::move(late), soon));
            CHECK(accepted_late.error() == errc::closed);
            next_peer.send(pattern(1, 2));
            const auto bytes = co_await as_result(timeout(woken, soon));
            CHECK(bytes);
        }(how));
    }
}

}  // namespace test_transport_plain_stream
