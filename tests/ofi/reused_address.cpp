// Endpoints that get the address of a former one, over a provider that remembers that: they are refused at once, with the reason.

#include "ofi/stranger.hpp"

#include "support/child_process.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

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

/// The file of shm's memory of an endpoint: "fi_shm://4711:0:2" has /dev/shm/4711:0:2.
std::string memory_of(const std::vector<std::byte>& of) {
    const std::string address(reinterpret_cast<const char*>(of.data()));
    return "/dev/shm/" + address.substr(address.find("://") + 3);
}

/// Connects, sends the address of its endpoint, and waits for its end.
void name_own_address(const std::string& address) {
    scheduler on;
    ofi_any_domain domain(on, ofi_here("shm"));
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(on.run(domain.connect(address)), end.sink);
    const std::string described = domain.describe();
    const std::size_t first = described.find("fi_shm://");
    std::string own = described.substr(first, described.find(',', first) - first);
    const auto text = std::as_bytes(std::span(own.c_str(), own.size() + 1));
    on.run_until([&] { return end.link->post_copied(header_of(1), text) == post_result::done; });
    on.run_until([&] { return end.sink.downs == 1; });
}

/// Another name of a file, until it is destroyed.
class other_name {
public:
    other_name(const std::string& file, std::string name) : name_(std::move(name)) {
        REQUIRE(::link(file.c_str(), name_.c_str()) == 0);
    }
    other_name(const other_name&) = delete;
    other_name& operator=(const other_name&) = delete;
    ~other_name() { ::unlink(name_.c_str()); }

private:
    std::string name_;
};

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

TEST_CASE("over shm messages reach a process that has the number of a killed peer") {
    child_process child([](const std::string& address) { name_own_address(address); });
    besieged w("shm");
    child.tell(w.listening.address());
    ofi_end killed;
    killed.link = std::make_unique<ofi_recorded_link>(w.on.run(w.listening.accept()), killed.sink);
    w.on.run_until([&] { return killed.sink.count == 1; });
    const std::vector<std::byte> address = killed.sink.messages.front().payload;
    // Another process: its memory has the file of the killed one from now on.
    stranger later(w.on, "shm");
    fabric::connect_info shown = later.connect_info();
    REQUIRE(address.size() <= shown.address.size());
    shown.address_bytes = static_cast<std::uint32_t>(address.size());
    std::copy(address.begin(), address.end(), shown.address.begin());
    {
        caller early;
        CHECK(verdict_on(w, shown, early) == fabric::verdict::reused_address);
    }
    child.kill();
    static_cast<void>(child.wait());
    ::unlink(memory_of(address).c_str());
    const other_name taken(memory_of(later.device().own_address()), memory_of(address));
    w.on.run_until([&] { return killed.sink.downs == 1 && w.domain.connections() == 1; });
    killed.link.reset();
    w.on.run_until([&] { return w.domain.connections() == 0; });
    later.meet(w.listening.address(), shown);
    later.frame(fabric::frame_kind::hello);
    w.on.run_until([&] { return later.received() == 1; });
    ofi_end end;
    end.link = std::make_unique<ofi_recorded_link>(w.on.run(w.listening.accept()), end.sink);
    REQUIRE(end.link->post_copied(header_of(1), {}) == post_result::done);
    w.on.run_until([&] { return later.received() == 2; });
    CHECK(later.words().back().kind == fabric::frame_kind::message);
}

TEST_CASE("a domain over shm that finds the memory of a killed process of its number names the file") {
    ofi_options options = ofi_here("shm");
    fabric::device one(provider::shm, options);
    const std::string memory = memory_of(one.own_address());
    const std::size_t number = memory.rfind(':') + 1;
    const std::string next = memory.substr(0, number) + std::to_string(std::stoul(memory.substr(number)) + 1);
    {
        const other_name left(memory, next);
        try {
            const fabric::device none(provider::shm, options);
            FAIL("it opened");
        } catch (const std::system_error& refused) {
            CHECK(refused.code() == std::errc::device_or_resource_busy);
            CAPTURE(refused.what());
            CHECK(std::string(refused.what()).find(" the file " + next + "; remove it") != std::string::npos);
        }
    }
    fabric::device other(provider::shm, options);
    other.close_endpoint();
    one.close_endpoint();
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
