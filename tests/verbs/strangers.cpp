#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <chrono>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

// Clients that connect and do not go on, where queue pairs find each other by TCP.

namespace {

/// A TCP connection of somebody to a listener.
class stranger {
public:
    explicit stranger(const std::string& to) {
        const auto address = rdmacoro::detail::verbs::parse_address(to);
        const auto resolved = rdmacoro::detail::inet_resolved::ask(address, AI_NUMERICHOST);
        REQUIRE(resolved.endpoints.size() == 1);
        fd_ = ::socket(resolved.endpoints[0].address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        REQUIRE(fd_ >= 0);
        REQUIRE(::connect(fd_, resolved.endpoints[0].get(), resolved.endpoints[0].bytes) == 0);
    }
    stranger(stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    stranger& operator=(stranger&&) = delete;
    ~stranger() {
        if (fd_ >= 0) ::close(fd_);
    }

    /// What a client says first.
    void send_card() const {
        rdmacoro::detail::verbs::queue_pair_info card;
        rdmacoro::detail::verbs::greeting hello;
        hello.slot_bytes = 8192;
        hello.credits = 64;
        card.hello = hello.store();
        card.number = 77;
        card.mtu = IBV_MTU_1024;
        card.read_depth = 1;
        card.gid.raw[10] = card.gid.raw[11] = 0xff;
        card.gid.raw[12] = 10;
        std::byte raw[rdmacoro::detail::verbs::queue_pair_info::wire_bytes];
        card.store(raw);
        REQUIRE(::send(fd_, raw, sizeof raw, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof raw));
    }

private:
    int fd_ = -1;
};

verbs_options by_tcp(verbs_options o) {
    o.connect_by = verbs_connect::tcp;
    return o;
}

task<> connect_within(verbs_domain* by, const verbs_listener* to, duration limit) {
    verbs_connection made = co_await timeout(by->connect(to->address()), limit);
    CHECK(static_cast<bool>(made));
}

}  // namespace

TEST_CASE("two hundred connections that say nothing do not keep a client out for a second") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    verbs_world w(by_tcp(way.options));
    const verbs_listener listening = w.on.run(w.server.listen("127.0.0.1:0"));
    std::vector<stranger> silent;
    for (int n = 0; n < 200; ++n) silent.emplace_back(listening.address());
    w.until([&] { return w.server.connections() >= 150; });
    w.turns(500);
    w.on.run(connect_within(&w.client, &listening, 1s));
}

TEST_CASE(
    "clients that begin to connect and do not go on hold a part of the links, and others get their turn") {
    FOR_EACH_VERBS_DEVICE_BUT_IWARP(way);
    verbs_options o = by_tcp(way.options);
    o.most_links = 64;
    verbs_world w(o);
    const verbs_listener listening = w.on.run(w.server.listen("127.0.0.1:0"));
    std::vector<stranger> begun;
    for (int n = 0; n < 200; ++n) {
        begun.emplace_back(listening.address());
        begun.back().send_card();
    }
    w.until([&] { return w.server.connections() >= 150; });
    w.turns(500);
    for (int n = 0; n < 3; ++n) w.on.run(connect_within(&w.client, &listening, 3s));
}
