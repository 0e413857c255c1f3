#include <rdmacoro/transport/tcp/engine.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace test_transport_tcp_engine {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;

namespace {
struct many_ends {
    std::vector<std::unique_ptr<tcp_end>> from;
    std::vector<std::unique_ptr<tcp_end>> to;
};
/// So many links, which rest.
many_ends connect_many(tcp_world& w, tcp_listener& listener, std::size_t links) {
    many_ends all;
    for (std::size_t n = 0; n < links; ++n) {
        tcp_world::connected made = w.connect(listener);
        all.from.push_back(std::make_unique<tcp_end>());
        all.to.push_back(std::make_unique<tcp_end>());
        all.from[n]->link = std::make_unique<recorded_link>(std::move(made.client), all.from[n]->sink);
        all.to[n]->link = std::make_unique<recorded_link>(std::move(made.server), all.to[n]->sink);
    }
    w.turns(100);
    return all;
}
}  // namespace

TEST_CASE("an engine owns its sockets until they are abandoned and the kernel has let go of them") {
    scheduler on;
    tcp_engine engine(on, {});
    engine.enable();
    engine.enable();
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    tcp_session& one = engine.add_socket(fds[0]);
    tcp_session& other = engine.add_socket(fds[1]);
    CHECK(engine.sockets() == 2);
    CHECK(&one.engine() == &engine);
    one.abandon();
    other.abandon();
    for (int n = 0; n < 1000 && engine.sockets() != 0; ++n) engine.poll();
    CHECK(engine.sockets() == 0);
    CHECK(::write(fds[0], "", 1) < 0);  // closed
}

TEST_CASE(
    "a socket with a request in the kernel counts until that has ended, and its descriptor is open as long") {
    scheduler on;
    tcp_engine engine(on, {});
    engine.enable();
    const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::listen(listening, 1) == 0);
    tcp_session& one = engine.add_socket(listening);
    one.start_accept();
    engine.poll();  // with the kernel
    CHECK(one.awaits_outcome());
    one.abandon();
    CHECK(engine.sockets() == 1);
    for (int n = 0; n < 1000 && engine.sockets() != 0; ++n) engine.poll();
    CHECK(engine.sockets() == 0);
    CHECK(::fcntl(listening, F_GETFD) < 0);  // closed
}

TEST_CASE("the table of regions is the engine's own, and an idle poll moves nothing") {
    scheduler on;
    tcp_engine engine(on, {});
    engine.enable();
    std::vector<std::byte> memory(10);
    const remote_region made = engine.regions().add(memory, access_rights::remote_read);
    CHECK(engine.regions().registered() == 1);
    engine.deregister(made.key);
    CHECK(engine.regions().registered() == 0);
    CHECK_FALSE(engine.poll());
    engine.arm();
    CHECK_FALSE(engine.poll());
    engine.disarm();
    CHECK(engine.chunks().in_use() == 0);
}

TEST_CASE(
    "one poll hands up a bounded number of messages of many links, however they receive, and each link has "
    "its turn") {
    tcp_options options;
    options.features = GENERATE(tcp_feature::all, tcp_feature::none);
    tcp_world w(options);
    tcp_listener listener = w.listen();
    constexpr std::size_t links = 20;
    constexpr std::uint64_t each = 200;
    const auto [from, to] = connect_many(w, listener, links);
    for (std::uint64_t n = 0; n < each; ++n) {
        for (auto& one : from) REQUIRE(one->link->post_copied(header_of(n), {}) == post_result::done);
    }
    std::uint64_t before = 0;
    std::uint64_t most = 0;
    std::uint64_t with_messages = 0;
    const time_point limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (before < links * each && std::chrono::steady_clock::now() < limit) {
        w.turns(1);
        std::uint64_t now = 0;
        std::uint64_t last = each;
        std::uint64_t first = 0;
        for (auto& one : to) {
            now += one->sink.count;
            last = std::min(last, one->sink.count);
            first = std::max(first, one->sink.count);
        }
        most = std::max(most, now - before);
        with_messages += now != before;
        // All links have messages: none is ahead of another by more than a turn, once each has had one.
        if (last != 0 && first != each) CHECK(first - last <= 2 * messages_of_a_link);
        before = now;
    }
    CHECK(before == links * each);
    CHECK(most >= messages_of_a_link);  // else nothing was bounded
    CHECK(most <= messages_of_a_poll + messages_of_a_link);
    CHECK(with_messages <= 4 * links * each / messages_of_a_poll);
}

TEST_CASE("one poll hands the kernel a bounded number of bytes of many links, and each link has its turn") {
    tcp_world w;
    tcp_listener listener = w.listen();
    constexpr std::size_t links = 100;
    constexpr std::size_t bytes = 256 * 1024;
    const auto [from, to] = connect_many(w, listener, links);
    // Each link is asked for as much.
    std::vector<std::byte> memory(bytes);
    const region open = w.server.register_memory(memory, access_rights::all);
    std::vector<std::vector<std::byte>> into(links, std::vector<std::byte>(bytes));
    std::vector<recording_completion> got(links);
    for (std::size_t n = 0; n < links; ++n)
        REQUIRE(from[n]->link->get(open.remote(), into[n], got[n]) == post_result::posted);
    const auto done = [&] {
        return static_cast<std::size_t>(
            std::count_if(got.begin(), got.end(), [](const auto& one) { return one.calls != 0; }));
    };
    unsigned turns = 0;
    const time_point limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (; done() < links && std::chrono::steady_clock::now() < limit; ++turns) w.turns(1);
    CHECK(done() == links);
    CHECK(turns >= links * bytes / (1024 * 1024 + bytes));
}

TEST_CASE("a message that comes as its link lets others gather is received when the link sends no more") {
    tcp_options options;
    options.features = tcp_feature::all - tcp_feature::multishot_receive;
    options.most_polled = 0;
    tcp_world w(options);
    tcp_listener listener = w.listen();
    const auto [clients, servers] = connect_many(w, listener, 2);
    // Polls that move something, all the time: else messages don't wait.
    constexpr std::uint64_t many = 5000;
    for (std::uint64_t n = 0; n < many; ++n)
        REQUIRE(servers[1]->link->post_copied(header_of(n), {}) != post_result::failed);
    std::uint64_t posted = 0;
    unsigned gathered = 0;
    for (unsigned turn = 0; turn < 40; ++turn) {
        const std::uint64_t before = servers[0]->sink.count;
        for (unsigned n = 0; n < 3; ++n, ++posted)
            REQUIRE(clients[0]->link->post_copied(header_of(posted), {}) != post_result::failed);
        if (turn == 12) REQUIRE(servers[0]->link->post_copied(header_of(7), {}) == post_result::done);
        w.turns(1);
        if (turn >= 12 && servers[0]->sink.count == before) ++gathered;
    }
    CHECK(gathered > 20);                  // polls that let the messages wait
    CHECK(clients[1]->sink.count < many);  // and each of them moved something
    w.turns(1000);
    CHECK(servers[0]->sink.count == posted);
    CHECK(clients[0]->sink.count == 1);
}

}  // namespace test_transport_tcp_engine
