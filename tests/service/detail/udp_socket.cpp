#include <rdmacoro/service/detail/udp_socket.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"

#include <rdmacoro/coro/coro.hpp>

#include <string>
#include <vector>

namespace test_service_detail_udp_socket {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {
struct heard {
    std::vector<std::string> texts;
    event any;
    udp_socket* echo = nullptr;

    static void take(void* self, std::span<const std::byte> bytes, const inet_endpoint& from) noexcept {
        auto& here = *static_cast<heard*>(self);
        here.texts.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        if (here.echo != nullptr) here.echo->send(bytes, from);
        here.any.set();
    }
};
inet_endpoint address_of(const udp_socket& of) {
    return inet_resolved::ask(inet_address::parse("udp", of.address(), ""), 0).endpoints.at(0);
}
}  // namespace

TEST_CASE("datagrams are given to the function, and wake a scheduler that sleeps") {
    scheduler on;  // parks
    on.run([](scheduler& here) -> task<> {
        heard at_a, at_b;
        udp_socket a(here, "127.0.0.1:0", heard::take, &at_a);
        udp_socket b(here, "127.0.0.1:0", heard::take, &at_b);
        at_b.echo = &b;
        co_await sleep_for(5ms);
        a.send(std::as_bytes(std::span(std::string_view("hello"))), address_of(b));
        co_await timeout(at_a.any.wait(), 10s);
        CHECK(at_b.texts == std::vector<std::string>{"hello"});
        CHECK(at_a.texts == std::vector<std::string>{"hello"});
        const std::vector<std::byte> long_one(udp_socket::most_bytes + 1);
        a.send(long_one, address_of(b));
        at_a.any.reset();
        a.send(std::as_bytes(std::span(std::string_view("after it"))), address_of(b));
        co_await timeout(at_a.any.wait(), 10s);
        CHECK(at_b.texts.back() == "after it");
        CHECK(at_b.texts.size() == 2);  // what is too long is dropped
    }(on));
}

TEST_CASE("an address that is taken, or is none, is an error that names it") {
    scheduler on{impatient{}};
    on.run([](scheduler& here) -> task<> {
        heard nothing;
        udp_socket a(here, "127.0.0.1:0", heard::take, &nothing);
        CHECK_THROWS_WITH(udp_socket(here, a.address(), heard::take, &nothing), contains(a.address()));
        CHECK_THROWS_AS(udp_socket(here, "no port", heard::take, &nothing), error);
        CHECK_THROWS_AS(udp_socket(here, "a.name.of.a.host:1", heard::take, &nothing), error);
        co_return;
    }(on));
}

}  // namespace test_service_detail_udp_socket
