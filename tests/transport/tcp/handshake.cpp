#include <rdmacoro/transport/tcp/handshake.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/transport/tcp.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <netinet/tcp.h>
#include <sys/wait.h>

namespace test_transport_tcp_handshake {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Connects to `address` and answers the error, as text and code.
struct failure {
    std::error_code code;
    std::string text;
};
failure connect_fails(tcp_world& world, const std::string& address) {
    try {
        static_cast<void>(world.on.run(world.client.connect(address)));
    } catch (const error& e) {
        return {e.code(), e.what()};
    }
    return {};
}

/// A plain listening socket on a port of its own.
struct plain_listener {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    std::string address;
    explicit plain_listener(int queue = 8) {
        sockaddr_in any{};
        any.sin_family = AF_INET;
        any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&any), sizeof any) == 0);
        REQUIRE(::listen(fd, queue) == 0);
        address = detail::inet_endpoint::local(fd).text();
    }
    ~plain_listener() { ::close(fd); }

    /// The outcome of connect when the accepting side says this and nothing more.
    failure answers(tcp_world& world, std::span<const std::byte> bytes, bool hangs_up) {
        return answers_by(world, [&](raw_peer& peer) {
            peer.send(world, bytes);
            if (hangs_up) peer.hang_up();
        });
    }
    template <class Answer>
    failure answers_by(tcp_world& world, Answer answer) {
        failure seen;
        bool over = false;
        task<> asking = ask(world, address, seen, over);
        asking.bind({&world.on, {}});
        detail::ready_node root;
        root.waiter = asking.handle();
        world.on.make_ready(root);
        int accepted = -1;
        world.until([&] {
            if (accepted < 0) accepted = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
            return accepted >= 0;
        });
        raw_peer peer(accepted);
        answer(peer);
        world.until([&] { return over; });
        world.until([&] { return asking.handle().done(); });
        return seen;
    }

private:
    static task<> ask(tcp_world& world, std::string address, failure& seen, bool& over) {
        try {
            static_cast<void>(co_await world.client.connect(address));
        } catch (const error& e) {
            seen = {e.code(), e.what()};
        }
        over = true;
    }
};

std::vector<std::byte> greeting_bytes(std::uint32_t version, std::uint32_t most_message) {
    detail::tcp_greeting greeting;
    greeting.version = version;
    greeting.most_message = most_message;
    greeting.nonce = 1;
    const auto bytes = greeting.store();
    return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("a listener of another protocol is told from one of this toolkit") {
    tcp_world world;
    plain_listener other;
    const bool hangs_up = GENERATE(false, true);
    const std::string http = "HTTP/1.1 400 Bad Request\r\n\r\n";
    const failure seen = other.answers(world, std::as_bytes(std::span(http)), hangs_up);
    CHECK(seen.code == errc::protocol_violation);
    CHECK_THAT(seen.text, contains(other.address));
    CHECK_THAT(seen.text, contains("does not speak rdmacoro-tcp"));
}

TEST_CASE("a listener that sends back what it gets is told from a port without one") {
    tcp_world world;
    plain_listener other;
    const failure seen = other.answers_by(world, [&](raw_peer& peer) {
        const auto greeting = peer.receive(world, detail::tcp_greeting::wire_bytes);
        peer.send(world, greeting);
    });
    CHECK(seen.code == errc::protocol_violation);
    CHECK_THAT(seen.text, contains("does not speak rdmacoro-tcp"));
}

TEST_CASE("another version is refused with both versions named, as soon as it is known") {
    tcp_world world;
    plain_listener other;
    auto bytes = greeting_bytes(2, 1 << 20);
    bytes.resize(GENERATE(16u, 20u, 32u));
    const failure seen = other.answers(world, bytes, false);
    CHECK(seen.code == errc::version_mismatch);
    CHECK_THAT(seen.text, contains("version 2") && contains("version 1"));
}

TEST_CASE("a peer that accepts shorter messages than the protocol promises is refused") {
    tcp_world world;
    plain_listener other;
    CHECK(other.answers(world, greeting_bytes(1, 1000), false).code == errc::protocol_violation);
}

TEST_CASE("a peer that closes before it has greeted") {
    tcp_world world;
    plain_listener other;
    auto bytes = greeting_bytes(1, 1 << 20);
    bytes.resize(GENERATE(0u, 1u, 31u));
    const failure seen = other.answers(world, bytes, true);
    CHECK(seen.code == (bytes.empty() ? errc::peer_lost : errc::protocol_violation));
}

TEST_CASE("a peer that never greets is given up in time") {
    tcp_options quick;
    quick.handshake_timeout = std::chrono::milliseconds(20);
    tcp_world world(quick);
    plain_listener other;
    const failure seen = connect_fails(world, other.address);
    CHECK(seen.code == errc::timed_out);
    CHECK_THAT(seen.text, contains(other.address));
}

TEST_CASE("a handshake limit without end is none") {
    tcp_options patient;
    patient.handshake_timeout = duration::max();
    scheduler on;
    tcp::domain here(on, patient);
    on.run([](tcp::domain& domain) -> task<> {
        auto listening = co_await rdmacoro::listen<tcp>(domain, "tcp://127.0.0.1:0");
        auto accepting = start(listening.accept());
        auto client =
            co_await timeout(rdmacoro::connect<tcp>(domain, listening.address()), std::chrono::seconds(10));
        auto server = co_await accepting;
        co_await client.send({}, 1);
        static_cast<void>(co_await server.recv({}, 1));
    }(here));
}

TEST_CASE("an address without a listener refuses the connection") {
    tcp_world world;
    std::string address;
    {
        plain_listener gone;
        address = gone.address;
    }
    const failure seen = connect_fails(world, address);
    CHECK(seen.code == errc::connection_refused);
    CHECK_THAT(seen.text, contains(address) && contains("start the listener first"));
    CHECK(world.client.sockets() <= 1);
}

TEST_CASE("connecting can be canceled while the peer says nothing") {
    tcp_world world;
    plain_listener other;
    local_stop_source stop;
    bool canceled = false;
    const auto connect = [](tcp_world& w, std::string address, bool& was) -> task<> {
        try {
            static_cast<void>(co_await w.client.connect(address));
        } catch (const error& e) {
            was = e.code() == errc::canceled;
        }
    };
    task<> asking = connect(world, other.address, canceled);
    asking.bind({&world.on, stop.get_token()});
    detail::ready_node root;
    root.waiter = asking.handle();
    world.on.make_ready(root);
    world.turns(GENERATE(1u, 2u, 5u, 20u));
    stop.request_stop();
    world.until([&] { return asking.handle().done(); });
    CHECK(canceled);
    world.until([&] { return world.client.sockets() == 0; });
}

TEST_CASE("clients that do not greet trouble no other") {
    tcp_world world;
    tcp_listener listener = world.listen();
    std::vector<raw_peer> silent;
    for (unsigned i = 0; i < 50; ++i) silent.push_back(raw_peer::to(listener.address()));
    std::vector<raw_peer> noisy;
    for (unsigned i = 0; i < 50; ++i) {
        noisy.push_back(raw_peer::to(listener.address()));
        noisy.back().send(world, pattern(1000, i));
    }
    auto made = world.connect(listener);
    CHECK(made.client);
    CHECK(made.server);
    world.until([&] {
        for (const raw_peer& one : noisy) {
            if (!one.ended()) return false;
        }
        return true;
    });
    for (const raw_peer& one : silent) CHECK_FALSE(one.ended());
}

TEST_CASE("a client whose greeting comes byte by byte is accepted, and its first message is not lost") {
    tcp_world world;
    tcp_listener listener = world.listen();
    raw_peer peer = raw_peer::to(listener.address());
    auto bytes = greeting_bytes(1, 1 << 20);
    const auto first = message_frame(3, pattern(100));
    bytes.insert(bytes.end(), first.begin(), first.end());
    for (std::size_t i = 0; i < 31; ++i) {
        peer.send(world, std::span(bytes).subspan(i, 1));
        world.turns(2);
    }
    peer.send(world, std::span(bytes).subspan(31));
    tcp_end b;
    b.link = std::make_unique<recorded_link>(world.on.run(listener.accept()), b.sink);
    world.until([&] { return b.sink.count == 1; });
    CHECK(b.sink.messages[0].payload == pattern(100));
    b.link.reset();
}

TEST_CASE("a domain that has no chunk left greets all the same") {
    tcp_world world;
    tcp_listener listener = world.listen();
    auto made = world.connect(listener);
    detail::tcp_session* const session = made.server.release();
    const tcp_connection other(*session);
    detail::tcp_chunk_pool& pool = session->engine().chunks();
    std::vector<detail::tcp_chunk*> taken;
    while (detail::tcp_chunk* one = pool.take()) taken.push_back(one);
    CHECK(taken.size() > 1000);

    raw_peer peer = raw_peer::to(listener.address());
    peer.send(world, greeting_bytes(1, 1 << 20));
    tcp_end b;
    b.link = std::make_unique<recorded_link>(world.on.run(listener.accept()), b.sink);
    recording_completion c;
    CHECK(b.link->post(header_of(1), pattern(8), c) == post_result::retry);
    for (detail::tcp_chunk* one : taken) pool.drop(*one);
    REQUIRE(b.link->post_copied(header_of(1), pattern(8)) != post_result::failed);

    std::vector<std::byte> came(detail::tcp_greeting::wire_bytes);
    for (std::size_t have = 0; auto& one : came) {  // so that one that is too short is seen
        const auto next = peer.receive(world, 1);
        if (next.empty()) break;
        one = next[0];
        if (++have == detail::tcp_word_bytes)
            REQUIRE(std::memcmp(came.data(), "rdma", detail::tcp_word_bytes) == 0);
    }
    const auto frame = message_frame(1, pattern(8));
    CHECK(peer.receive(world, frame.size()) == frame);
}

TEST_CASE("a connection without a link keeps the bytes its peer sent") {
    tcp_world world;
    tcp_listener listener = world.listen();
    auto made = world.connect(listener);
    tcp_end a;
    a.link = std::make_unique<recorded_link>(std::move(made.client), a.sink);
    for (unsigned i = 0; i < 10; ++i) REQUIRE(a.link->post_copied(header_of(i), {}) == post_result::done);
    world.turns(50);
    tcp_end b;
    b.link = std::make_unique<recorded_link>(std::move(made.server), b.sink);
    world.until([&] { return b.sink.count == 10; });
}

TEST_CASE("within one host a socket does not pace itself by bbr") {
    tcp_world world;
    tcp_listener listener = world.listen();
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    const char bbr[] = "bbr";
    const bool has_bbr = ::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, bbr, 3) == 0;
    ::close(fd);
    if (!has_bbr) SKIP_TEST("this kernel has no bbr");
    auto made = world.connect(listener);
    char name[16] = {};
    socklen_t bytes = sizeof name - 1;
    detail::tcp_session* session = made.client.release();
    REQUIRE(::getsockopt(session->fd(), IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0);
    CHECK(std::string(name) != "bbr");
    session->abandon();
}

}  // namespace test_transport_tcp_handshake
