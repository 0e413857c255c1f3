// Endpoints that get the address of a former one, over a provider that remembers that: they are refused at once, with the reason.

#include "ofi/stranger.hpp"

#include <string>

namespace test_ofi_reused_address {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Shows a connect_info, and returns the listener's verdict.
fabric::verdict verdict_on(besieged& w, const fabric::connect_info& shown, caller& by) {
    by.connect(w.listening.address());
    by.show(shown);
    w.on.run_until([&] {
        by.hear();
        return by.heard().size() == fabric::connect_info::wire_bytes + 1;
    });
    return static_cast<fabric::verdict>(by.heard().back());
}

/// A listening socket that answers its first client with a connect_info.
class imposter {
public:
    imposter() {
        sockaddr_in own{};
        own.sin_family = AF_INET;
        own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t bytes = sizeof own;
        REQUIRE(::bind(listening_, reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
        REQUIRE(::listen(listening_, 1) == 0);
        REQUIRE(::getsockname(listening_, reinterpret_cast<sockaddr*>(&own), &bytes) == 0);
        port_ = ntohs(own.sin_port);
    }
    imposter(const imposter&) = delete;
    imposter& operator=(const imposter&) = delete;
    ~imposter() {
        ::close(listening_);
        if (client_ >= 0) ::close(client_);
    }
    [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
    /// False: no client has come yet.
    bool answers(const fabric::connect_info& with) {
        client_ = ::accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
        if (client_ < 0) return false;
        std::vector<std::byte> raw(fabric::connect_info::wire_bytes);
        with.store(raw.data());
        return ::send(client_, raw.data(), raw.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(raw.size());
    }

private:
    int listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int client_ = -1;
    int port_ = 0;
};

task<std::string> refusal_of(ofi_any_domain& client, imposter& listener, fabric::connect_info shown) {
    auto connecting = start(client.connect(listener.address()));
    while (!listener.answers(shown)) co_await yield();
    std::string text;
    try {
        static_cast<void>(co_await connecting);
    } catch (const error& refused) {
        CHECK(refused.code() == errc::connection_refused);
        text = refused.what();
    }
    co_return text;
}

}  // namespace

TEST_CASE("a listener refuses an endpoint with the address of a former one at once, where the provider would "
          "not reach it, and nowhere else") {
    const std::string provider = GENERATE(as<std::string>{}, "udp", "tcp", "shm");
    CAPTURE(provider);
    besieged w(provider);
    const stranger former(w.on, provider);
    const fabric::connect_info known = former.connect_info();
    fabric::connect_info later = known;
    later.nonce ^= 1;
    caller first;
    CHECK(verdict_on(w, known, first) == fabric::verdict::welcome);
    caller again;
    CHECK(verdict_on(w, known, again) == fabric::verdict::welcome);
    first.hang_up();
    again.hang_up();
    w.on.run_until([&] { return w.domain.connections() == 0; });
    caller reused;
    CHECK(verdict_on(w, later, reused) ==
          (provider == "udp" ? fabric::verdict::reused_address : fabric::verdict::welcome));
}

TEST_CASE("a client refuses a listener with the address of a former one at once, and says why") {
    besieged w("udp");
    ofi_any_domain client(w.on, ofi_here("udp"));
    w.on.run([](ofi_any_domain& from, ofi_listener& to) -> task<> {
        auto accepting = start(to.accept());
        const ofi_connection made = co_await from.connect(to.address());
        const ofi_connection taken = co_await accepting;
    }(client, w.listening));
    // The listener's own connect_info.
    const stranger other(w.on, "udp");
    caller curious;
    REQUIRE(verdict_on(w, other.connect_info(), curious) == fabric::verdict::welcome);
    fabric::connect_info shown;
    shown.load(curious.heard().data());
    shown.nonce ^= 1;
    imposter later;
    const std::string text = w.on.run(refusal_of(client, later, shown));
    CAPTURE(text);
    CHECK(text.find("udp;ofi_rxd still remembers") != std::string::npos);
    CHECK(text.find("open the domain") != std::string::npos);
}

}  // namespace test_ofi_reused_address
