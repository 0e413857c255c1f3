#include <rdmacoro/transport/tcp/listener.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/detail/taken_port.hpp>
#include <rdmacoro/transport/tcp/listen_state.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <algorithm>
#include <deque>
#include <list>

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>

namespace test_transport_tcp_listener {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// A coroutine that runs beside the test.
struct beside {
    beside(tcp_world& world, task<> what, local_stop_token stop = {}) : running(std::move(what)) {
        running.bind({&world.on, stop});
        root.waiter = running.handle();
        world.on.make_ready(root);
    }
    [[nodiscard]] bool over() const { return running.handle().done(); }

    task<> running;
    detail::ready_node root;
};

task<> accept_one(tcp_listener& listener, tcp_connection& into, std::error_code& outcome) {
    try {
        into = co_await listener.accept();
        outcome = {};
    } catch (const error& e) {
        outcome = e.code();
    }
}

task<> connect_one(tcp_domain& domain, std::string address, tcp_connection& into) {
    into = co_await domain.connect(address);
}

/// A port of this host that a socket listens on.
class taken_by_socket {
public:
    taken_by_socket() {
        const auto any = detail::inet_address::parse("tcp", "127.0.0.1:0", "");
        fd_ = detail::open_tcp_listener(any, detail::inet_resolved::ask(any, AI_NUMERICHOST).endpoints.at(0),
                                        1);
    }
    taken_by_socket(const taken_by_socket&) = delete;
    taken_by_socket& operator=(const taken_by_socket&) = delete;
    ~taken_by_socket() { close(); }

    [[nodiscard]] std::string address() const { return detail::inet_endpoint::local(fd_).url("tcp"); }
    void close() noexcept {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }

private:
    int fd_ = -1;
};

std::string why_not(tcp_world& world, const std::string& address, errc& code) {
    try {
        static_cast<void>(world.listen(address));
    } catch (const error& e) {
        code = static_cast<errc>(e.code().value());
        return e.what();
    }
    code = errc::ok;
    return "";
}

}  // namespace

TEST_CASE("a listener tells the port that the system chose") {
    tcp_world world;
    tcp_listener listener = world.listen("127.0.0.1:0");
    CHECK_THAT(listener.address(), Catch::Matchers::StartsWith("tcp://127.0.0.1:"));
    CHECK(listener.address() != "tcp://127.0.0.1:0");
    auto made = world.connect(listener);
    CHECK(made.server);
}

TEST_CASE("an address in use, or of another machine, is refused with what to do") {
    tcp_world world;
    tcp_listener listener = world.listen();
    errc code = errc::ok;
    const std::string in_use = why_not(world, listener.address(), code);
    CHECK(code == errc::address_in_use);
    CHECK_THAT(in_use, contains(listener.address()) && contains("listen on another port"));
    const std::string not_ours = why_not(world, "192.0.2.1:0", code);
    CHECK(code == errc::address_invalid);
    CHECK_THAT(not_ours, contains("192.0.2.1:0") && contains("no interface"));
}

TEST_CASE(
    "a port that stays taken is refused after it was tried again, and other coroutines go on meanwhile") {
    virtual_time world;
    tcp_domain domain(world.on);
    const taken_by_socket other;
    unsigned naps = 0;
    const auto outcome =
        world.run([](tcp_domain& in, std::string where, unsigned& count) -> task<std::error_code> {
            task_group beside;
            beside.spawn(
                [](unsigned& of) -> task<> {
                    for (;; ++of) co_await sleep_for(10ms);
                },
                std::ref(count));
            const auto made = co_await as_result(in.listen(where));
            beside.request_stop();
            static_cast<void>(co_await as_result(beside.join()));
            co_return made ? std::error_code() : made.error();
        }(domain, other.address(), naps));
    CHECK(outcome == errc::address_in_use);
    CHECK(world.now() == detail::taken_port::patience);
    CHECK(naps >= detail::taken_port::patience / 10ms - 1);
}

TEST_CASE("a port that comes free while a listener waits for it is taken") {
    virtual_time world;
    tcp_domain domain(world.on);
    taken_by_socket other;
    const std::string address = other.address();
    {
        const tcp_listener made =
            world.run([](tcp_domain& in, std::string where, taken_by_socket& by) -> task<tcp_listener> {
                task_group beside;
                beside.spawn(
                    [](taken_by_socket& socket) -> task<> {
                        co_await sleep_for(20ms);
                        socket.close();
                    },
                    std::ref(by));
                auto listening = co_await as_result(in.listen(where));
                co_await beside.join();
                co_return std::move(listening).value();
            }(domain, address, other));
        CHECK(made.address() == address);
    }
    CHECK(world.now() >= 20ms);
    CHECK(world.now() <= 20ms + detail::taken_port::pause);
}

TEST_CASE("a listener that waits for its port is canceled at once") {
    virtual_time world;
    tcp_domain domain(world.on);
    const taken_by_socket other;
    const auto outcome = world.run([](tcp_domain& in, std::string where) -> task<std::error_code> {
        local_stop_source stop;
        task_group beside;
        beside.spawn(
            [](local_stop_source& which) -> task<> {
                co_await sleep_for(25ms);
                which.request_stop();
            },
            std::ref(stop));
        const auto made = co_await as_result(with_stop(in.listen(where), stop.get_token()));
        co_await beside.join();
        co_return made ? std::error_code() : made.error();
    }(domain, other.address()));
    CHECK(outcome == errc::canceled);
    CHECK(world.now() == 25ms);
}

TEST_CASE("an address of another machine is refused without another try") {
    virtual_time world;
    tcp_domain domain(world.on);
    CHECK_THROWS_AS(world.run(domain.listen("192.0.2.1:7471")), error);
    CHECK(world.now() == duration::zero());
}

TEST_CASE("a port is free again as soon as its listener is gone") {
    tcp_world world;
    std::string address;
    {
        tcp_listener listener = world.listen();
        address = listener.address();
        auto made = world.connect(listener);
    }
    tcp_listener again = world.listen(address);
    CHECK(again.address() == address);
}

TEST_CASE("clients that connect before an accept are kept, and handed out in order") {
    tcp_world world;
    tcp_listener listener = world.listen();
    std::deque<tcp_connection> clients;
    for (unsigned i = 0; i < 20; ++i)
        clients.push_back(world.on.run(world.client.connect(listener.address())));
    for (unsigned i = 0; i < 20; ++i) CHECK(world.on.run(listener.accept()));
}

TEST_CASE("several may wait to accept") {
    tcp_world world;
    tcp_listener listener = world.listen();
    std::deque<tcp_connection> accepted(5);
    std::deque<std::error_code> outcomes(5, make_error_code(errc::timed_out));
    std::deque<beside> waiting;
    for (unsigned i = 0; i < 5; ++i)
        waiting.emplace_back(world, accept_one(listener, accepted[i], outcomes[i]));
    world.turns(3);
    for (unsigned i = 0; i < 5; ++i) {
        const tcp_connection client = world.on.run(world.client.connect(listener.address()));
        world.until([&] { return waiting[i].over(); });
        CHECK_FALSE(outcomes[i]);
        CHECK(accepted[i]);
    }
}

TEST_CASE("a canceled accept takes no client with it") {
    tcp_world world;
    tcp_listener listener = world.listen();
    local_stop_source stop;
    tcp_connection first;
    tcp_connection second;
    std::error_code outcome;
    {
        beside waiting(world, accept_one(listener, first, outcome), stop.get_token());
        world.turns(3);
        stop.request_stop();
        world.until([&] { return waiting.over(); });
        CHECK(outcome == errc::canceled);
        CHECK_FALSE(first);
        beside stopped(world, accept_one(listener, first, outcome), stop.get_token());
        world.until([&] { return stopped.over(); });
        CHECK(outcome == errc::canceled);
    }
    const tcp_connection client = world.on.run(world.client.connect(listener.address()));
    CHECK(world.on.run(listener.accept()));
}

TEST_CASE("destroying a listener ends an accept and drops connections not accepted") {
    tcp_world world;
    auto listener = std::make_unique<tcp_listener>(world.listen());
    const tcp_connection taken_by_nobody = world.on.run(world.client.connect(listener->address()));
    raw_peer silent = raw_peer::to(listener->address());
    tcp_connection first = world.on.run(listener->accept());
    tcp_connection second;
    std::error_code outcome;
    beside waiting(world, accept_one(*listener, second, outcome));
    world.turns(5);
    listener.reset();
    world.until([&] { return waiting.over(); });
    CHECK(outcome == errc::closed);
    world.until([&] { return silent.ended(); });
    first.reset();
    world.until([&] { return world.server.sockets() == 0; });
}

TEST_CASE("a listener without descriptors to spare waits, and goes on when there are some") {
    tcp_world world;
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    std::vector<int> used;
    // Fills every gap, so that the numbers above the last one are those that are free.
    while (used.size() < 100) {
        const int fd = ::fcntl(0, F_DUPFD_CLOEXEC, 0);
        REQUIRE(fd >= 0);
        used.push_back(fd);
    }
    rlimit tight = before;
    tight.rlim_cur = static_cast<rlim_t>(used.back()) + 3;  // two more: the listener's and the client's own
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
    tcp_listener listener = world.listen();
    tcp_connection client;
    beside connecting(world, connect_one(world.client, listener.address(), client));
    world.turns(200);
    const bool held_up = !connecting.over();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    for (const int fd : used) ::close(fd);
    CHECK(held_up);
    const tcp_connection server = world.on.run(listener.accept());
    world.until([&] { return connecting.over(); });
    CHECK(client);
    CHECK(server);
}

TEST_CASE("a thousand connections opened and closed leave neither descriptors nor memory") {
    tcp_world world;
    const std::size_t before = open_descriptors();
    constexpr unsigned rounds = 10;
    std::size_t bytes_after[rounds] = {};
    {
        tcp_listener listener = world.listen();
        const std::size_t listening = world.server.sockets();
        for (unsigned round = 0; round < rounds; ++round) {
            std::deque<tcp_end> ends;
            for (unsigned i = 0; i < 100; ++i) {
                auto made = world.connect(listener);
                tcp_end& a = ends.emplace_back();
                a.link = std::make_unique<recorded_link>(std::move(made.client), a.sink);
                tcp_end& b = ends.emplace_back();
                b.link = std::make_unique<recorded_link>(std::move(made.server), b.sink);
            }
            for (tcp_end& end : ends)
                REQUIRE(end.link->post_copied(header_of(round), pattern(100)) == post_result::done);
            world.until([&] {
                for (const tcp_end& end : ends) {
                    if (end.sink.count != 1) return false;
                }
                return true;
            });
            // Some are closed first, some only destroyed, armed or not.
            for (std::size_t i = 0; i < ends.size(); i += 3)
                ends[i].link->close(make_error_code(errc::closed));
            ends.clear();
            world.until([&] { return world.client.sockets() + world.server.sockets() == listening; });
            bytes_after[round] = ::mallinfo2().uordblks;
        }
    }
    world.until([&] { return world.client.sockets() + world.server.sockets() == 0; });
    CHECK(open_descriptors() == before);
    // What the first rounds have made room for serves the others.
    CHECK(bytes_after[rounds - 1] < bytes_after[rounds / 2 - 1] + rounds / 2 * 100 * 32);
    CHECK(world.client.chunks() == 0);
    CHECK(world.server.chunks() == 0);
}

TEST_CASE("a socket that was accepted and not yet handed out is closed with its listener") {
    tcp_pair p;
    const std::size_t before = open_descriptors();
    bool seen = false;
    // How the kernel's work falls between these steps is the kernel's choice.
    for (int round = 0; round < 50; ++round) {
        auto listener = std::make_unique<tcp_listener>(p.listen());
        raw_peer client = raw_peer::to(listener->address());
        // The link's system call reaps what the kernel has accepted; nothing is served before the listener goes.
        REQUIRE(p.b.link->post_copied(header_of(1), {}) == post_result::done);
        p.b.link->poll(1);
        listener.reset();
        p.turns(3);
        seen = seen || client.ended();
        client.hang_up();
    }
    p.until([&] { return open_descriptors() == before; });
    CHECK(seen);
}

TEST_CASE("clients beyond the limit wait in the system's queue until others have gone") {
    tcp_options few;
    few.most_waiting = 4;
    tcp_world world(few);
    tcp_listener listener = world.listen();
    std::vector<raw_peer> silent;
    for (unsigned i = 0; i < 4; ++i) silent.push_back(raw_peer::to(listener.address()));
    world.turns(50);
    tcp_connection client;
    beside connecting(world, connect_one(world.client, listener.address(), client));
    world.turns(50);
    CHECK_FALSE(connecting.over());
    CHECK(world.server.sockets() == 5);
    silent.pop_back();
    const tcp_connection server = world.on.run(listener.accept());
    world.until([&] { return connecting.over(); });
    CHECK(client);
    CHECK(server);
}

TEST_CASE("strangers that never greet keep no client out for as long as they may stay") {
    tcp_options few;
    few.most_waiting = 4;
    few.handshake_timeout = std::chrono::seconds(5);
    tcp_world world(few);
    tcp_listener listener = world.listen();
    const time_point begin = world.on.now();
    std::vector<raw_peer> silent;
    for (unsigned i = 0; i < 8; ++i) silent.push_back(raw_peer::towards(listener.address()));
    world.until([&] { return world.server.sockets() == 5; });
    const tcp_connection client = world.on.run(world.client.connect(listener.address()));
    const tcp_connection server = world.on.run(listener.accept());
    CHECK(client);
    CHECK(server);
    CHECK(world.on.now() - begin <
          few.handshake_timeout * 3 / 4);  // before the first stranger's time was over
    CHECK(std::any_of(silent.begin(), silent.end(), [](const raw_peer& one) { return one.ended(); }));
}

TEST_CASE("a client of another host gets a place of the host that holds the most at once") {
    tcp_options few;
    few.most_waiting = 4;
    few.handshake_timeout = std::chrono::seconds(100);
    tcp_world world(few);
    tcp_listener listener = world.listen();
    const time_point begin = world.on.now();
    std::vector<raw_peer> silent;
    for (unsigned i = 0; i < 4; ++i) silent.push_back(raw_peer::towards(listener.address(), "127.0.0.2"));
    world.until([&] { return world.server.sockets() == 5; });
    const tcp_connection client = world.on.run(world.client.connect(listener.address()));
    CHECK(world.on.run(listener.accept()));
    CHECK(world.on.now() - begin < few.handshake_timeout / 10);
    world.until([&] { return silent.front().ended(); });
    CHECK_FALSE(silent.back().ended());
}

TEST_CASE(
    "strangers of one host that connect again and again, and say nothing, keep no client of another host "
    "out") {
    tcp_options few;
    few.most_waiting = 4;
    few.handshake_timeout = std::chrono::seconds(60);
    tcp_world world(few);
    tcp_listener listener = world.listen();
    const time_point begin = world.on.now();
    const auto stranger = [&] { return raw_peer::towards(listener.address(), "127.0.0.2"); };
    std::vector<raw_peer> kept;
    for (unsigned i = 0; i < 4; ++i) kept.push_back(stranger());
    world.until([&] { return world.server.sockets() == 5; });
    // As many more as the system's queue takes, and others that it doesn't.
    std::list<raw_peer> flood;
    for (unsigned i = 0; i < 20; ++i) flood.push_back(stranger());
    unsigned refused = 0;
    // They return more slowly than they are refused: else the system's queue would stay full.
    auto go_on = [&, turns = 0U]() mutable {
        if (++turns % 16 != 0) return;
        const auto gone =
            std::find_if(flood.begin(), flood.end(), [](const raw_peer& one) { return one.ended(); });
        if (gone == flood.end()) return;
        ++refused;
        flood.erase(gone);
        flood.push_back(stranger());
    };
    world.until([&] {
        go_on();
        return refused != 0;
    });
    tcp_connection client;
    tcp_connection server;
    std::error_code outcome;
    beside accepting(world, accept_one(listener, server, outcome));
    beside connecting(world, connect_one(world.client, listener.address(), client));
    world.until([&] {
        go_on();
        return accepting.over() && connecting.over();
    });
    CHECK(client);
    CHECK(server);
    // Before any of them had the tenth of its time for which it keeps its place.
    CHECK(world.on.now() - begin < few.handshake_timeout / 10);
    CHECK(std::count_if(kept.begin(), kept.end(), [](const raw_peer& one) { return one.ended(); }) <= 1);
}

TEST_CASE("a flood of strangers from one host costs a slow client of another host nothing") {
    tcp_options few;
    few.most_waiting = 8;
    few.handshake_timeout = std::chrono::seconds(10);
    tcp_world world(few);
    tcp_listener listener = world.listen("0.0.0.0:0");
    const std::string port = listener.address().substr(listener.address().rfind(':'));
    raw_peer slow = raw_peer::towards("127.0.0.2" + port, "127.0.0.3");
    world.until([&] { return world.server.sockets() == 2; });
    std::vector<raw_peer> flood;
    for (unsigned i = 0; i < 14; ++i) flood.push_back(raw_peer::towards("127.0.0.1" + port));
    const auto dropped = [&] {
        return std::count_if(flood.begin(), flood.end(), [](const raw_peer& one) { return one.ended(); });
    };
    world.until([&] { return dropped() >= 7; });  // each of its places was taken again
    REQUIRE_FALSE(slow.ended());
    detail::tcp_greeting greeting;
    greeting.nonce = 4711;
    slow.send(world, greeting.store());
    CHECK(world.on.run(listener.accept()));
}

TEST_CASE("a listener on all addresses takes clients of both families, and names each as its client would") {
    tcp_world world;
    const std::string host = GENERATE("*", "");
    tcp_listener listener = world.listen("tcp://" + host + ":0");
    const std::string port = listener.address().substr(listener.address().rfind(':'));
    const bool has_v6 = listener.address().find('[') != std::string::npos;
    CHECK(has_v6 == (::access("/proc/net/if_inet6", F_OK) == 0));
    for (const std::string to : {"127.0.0.1", "[::1]"}) {
        if (to == "[::1]" && !has_v6) continue;
        const tcp_connection client = world.on.run(world.client.connect(to + port));
        tcp_connection server = world.on.run(listener.accept());
        tcp_end end;
        end.link = std::make_unique<recorded_link>(std::move(server), end.sink);
        CHECK_THAT(end.link->peer_name(), Catch::Matchers::StartsWith("tcp://" + to + ":"));
    }
}

TEST_CASE("a port that a listener of one family has is refused to a listener on all addresses") {
    tcp_world world;
    const std::string one = GENERATE("127.0.0.1:0", "[::1]:0");
    if (one.front() == '[' && ::access("/proc/net/if_inet6", F_OK) != 0) SKIP_TEST("no v6 here");
    tcp_listener listener = world.listen(one);
    errc code = errc::ok;
    static_cast<void>(why_not(world, "*" + listener.address().substr(listener.address().rfind(':')), code));
    CHECK(code == errc::address_in_use);
}

}  // namespace test_transport_tcp_listener
