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

}  // namespace test_transport_plain_stream
