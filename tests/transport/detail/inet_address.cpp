#include <rdmacoro/transport/detail/inet_address.hpp>

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>

#include "support/catch.hpp"
#include "support/scripted_names.hpp"

#include <sys/resource.h>
#include <unistd.h>

namespace test_transport_detail_inet_address {

using namespace rdmacoro;
using namespace rdmacoro::test;
using rdmacoro::detail::inet_address;
using rdmacoro::detail::inet_endpoint;
using rdmacoro::detail::inet_resolved;

namespace {

inet_address parse(std::string_view text) { return inet_address::parse("net", text, ", as 10.0.0.1:7471"); }

inet_endpoint endpoint(std::string_view text) {
    return inet_resolved::ask(parse(text), AI_NUMERICHOST).endpoints.at(0);
}

task<inet_resolved> resolve(inet_address address) {
    detail::inet_resolve asking(std::move(address), 0);
    co_return co_await asking;
}

}  // namespace

TEST_CASE("addresses are host and port, with or without the scheme") {
    const inet_address plain = parse("127.0.0.1:7471");
    CHECK(plain.host == "127.0.0.1");
    CHECK(plain.port == "7471");
    const inet_address with_scheme = parse("net://node7:65535");
    CHECK(with_scheme.host == "node7");
    CHECK(with_scheme.port == "65535");
    CHECK(with_scheme.whole == "net://node7:65535");
    const inet_address v6 = parse("[::1]:80");
    CHECK(v6.host == "::1");
    CHECK(v6.port == "80");
    CHECK(parse(":0").host == "");
    CHECK(parse("*:5").host == "");
}

TEST_CASE("what is not an address is refused with the text it was and what to write") {
    const std::string text =
        GENERATE("", "host", "host:", "host:65536", "host:99999999999999999999", "host:-1", "host:8o",
                 "::1:80", "[::1:80", "[::1]", "[]:80", "shm://name", "verbs://host:1", "net://net://host:1",
                 "host:1:2", "host:+5", "host: 5", "[fe80::1]:7471", "net://[FEBF:0::2]:5");
    try {
        static_cast<void>(parse(text));
        FAIL("parsed: " << text);
    } catch (const error& e) {
        CHECK(e.code() == errc::address_invalid);
        CHECK_THAT(std::string(e.what()), contains("\"" + text + "\"") && contains("net address") &&
                                              contains("write host:port") && contains("as 10.0.0.1:7471"));
        if (text.find("[fe80") != std::string::npos || text.find("[FEBF") != std::string::npos)
            CHECK_THAT(std::string(e.what()), contains("[fe80::1%eth0]:7471"));
        if (text == "host" || text == "[::1]") CHECK_THAT(std::string(e.what()), contains(": no port;"));
    }
}

TEST_CASE("an endpoint is written as its user would write it") {
    CHECK(endpoint("127.0.0.1:7471").text() == "127.0.0.1:7471");
    CHECK(endpoint("[::1]:7471").text() == "[::1]:7471");
    CHECK(endpoint("[fe80::1%lo]:7471").text() == "[fe80::1%lo]:7471");
    CHECK(endpoint("10.0.0.1:5").url("verbs") == "verbs://10.0.0.1:5");
}

TEST_CASE("a socket has an address of its own, and one of its peer once it is connected") {
    const int listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const inet_endpoint any = endpoint("127.0.0.1:0");
    REQUIRE(::bind(listening, any.get(), any.bytes) == 0);
    REQUIRE(::listen(listening, 1) == 0);
    const inet_endpoint at = inet_endpoint::local(listening);
    CHECK(at.text() != "127.0.0.1:0");
    CHECK(inet_endpoint::peer(listening).bytes == 0);
    const int connected = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::connect(connected, at.get(), at.bytes) == 0);
    CHECK(inet_endpoint::peer(connected).text() == at.text());
    CHECK_FALSE(inet_endpoint::connected_to_itself(connected));
    ::close(connected);
    ::close(listening);
}

TEST_CASE("one host is known by its address, whatever the port, and by its loopback") {
    CHECK(endpoint("10.0.0.1:5").same_host(endpoint("10.0.0.1:6")));
    CHECK_FALSE(endpoint("10.0.0.1:5").same_host(endpoint("10.0.0.2:5")));
    CHECK(endpoint("127.0.0.1:5").same_host(endpoint("10.0.0.2:5")));
    CHECK(endpoint("[::1]:5").same_host(endpoint("[fd00::1]:5")));
    CHECK_FALSE(endpoint("[fd00::1]:5").same_host(endpoint("10.0.0.1:5")));
}

TEST_CASE("numbers are resolved at once, and names by a thread") {
    scheduler on;
    for (const char* const text : {"127.0.0.1:7471", "localhost:7471"}) {
        CAPTURE(text);
        const inet_resolved found = on.run(resolve(parse(text)));
        CHECK(found.failure == 0);
        REQUIRE_FALSE(found.endpoints.empty());
        CHECK_THAT(found.endpoints.front().text(), contains(":7471"));
    }
}

TEST_CASE("signals are not for the thread that looks a name up") {
    scripted_names names;
    names.set("signals.test", {"127.0.0.1"});
    scheduler on;
    CHECK_FALSE(on.run(resolve(parse("signals.test:7471"))).none());
    REQUIRE(names.looked_up("signals.test") == 1);
    CHECK_FALSE(names.takes_signal("signals.test", SIGTERM));
    sigset_t here;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &here);
    CHECK(sigismember(&here, SIGTERM) == 0);
}

TEST_CASE("without descriptors a name that cannot be looked up is not told as one that does not exist") {
    scheduler on;
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit none = before;
    none.rlim_cur = 3;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    const inet_address name = parse("no-such-host.invalid:7471");
    const inet_resolved found = on.run(resolve(name));
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE(found.none());
    CHECK(found.no_descriptors);
    try {
        found.throw_none("net", name);
    } catch (const error& why) {
        CHECK(why.code() == errc::no_resources);
        CHECK_THAT(std::string(why.what()), contains("ulimit -n"));
    }
    const inet_resolved again = on.run(resolve(name));
    REQUIRE(again.none());
    CHECK_FALSE(again.no_descriptors);
    CHECK_THROWS_AS(again.throw_none("net", name), error);
}

}  // namespace test_transport_detail_inet_address
