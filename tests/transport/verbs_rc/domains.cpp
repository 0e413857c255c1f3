#include <rdmacoro/transport/verbs_rc/domains.hpp>

#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"
#include "verbs/spare_device.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

namespace test_transport_verbs_rc_domains {

using namespace rdmacoro;
using namespace rdmacoro::detail;
using rdmacoro::test::spare_device;

namespace {

inet_endpoint endpoint_at(const std::string& text) {
    return inet_resolved::ask(verbs::parse_address(text), AI_NUMERICHOST).endpoints.at(0);
}

std::string host(const inet_endpoint& at) {
    const std::string text = at.text();
    return text.substr(0, text.rfind(':'));
}

}  // namespace

TEST_CASE("what goes to an address of this host comes from it, and what has no route from nowhere") {
    CHECK(host(verbs::source_towards(endpoint_at("127.0.0.1:7471"))) == "127.0.0.1");
    CHECK(verbs::source_towards(endpoint_at("255.255.255.255:1")).bytes == 0);
}

TEST_CASE("the address chooses the device, each device has one domain, and a named device stays") {
    std::optional<spare_device> another;
    if (spare_device::possible()) another.emplace();
    const auto addresses = verbs::device_addresses();
    const bool several = std::any_of(addresses.begin(), addresses.end(),
                                     [&](const auto& one) { return one.device != addresses.front().device; });
    if (!several) SKIP_TEST("needs two RDMA devices with addresses");
    scheduler on;
    auto& chosen = on.service<verbs::domains>();
    const auto towards = [&](const std::string& url) -> verbs_domain& {
        return *on.run(verbs::choose_domain(chosen, url));
    };
    ::unsetenv("RDMACORO_VERBS_DEVICE");
    for (const verbs::device_address& one : addresses) {
        const std::string url = one.address.url("verbs");
        verbs_domain& domain = towards(url);
        CHECK(domain.device_name() == one.device);
        CHECK(&towards(url) == &domain);
    }
    CHECK(&towards("*:0") == &on.service<verbs_domain>());
    ::setenv("RDMACORO_VERBS_DEVICE", on.service<verbs_domain>().device_name().c_str(), 1);
    for (const verbs::device_address& one : addresses)
        CHECK(&towards(one.address.url("verbs")) == &on.service<verbs_domain>());
    ::unsetenv("RDMACORO_VERBS_DEVICE");
}

TEST_CASE("a host's name chooses the device, too, to listen on and to connect to") {
    NEEDS_SPARE_DEVICE();
    const spare_device device;
    const std::string name = "spare-ib-" + device.name;
    spare_device::run("echo '" + std::string(spare_device::address) + " " + name + "' >>/etc/hosts");
    scheduler on{rdmacoro::test::impatient{}};
    auto& chosen = on.service<verbs::domains>();
    REQUIRE(on.run(verbs::choose_domain(chosen, "*:0"))->device_name() != device.name);
    CHECK(on.run(verbs::choose_domain(chosen, name + ":1"))->device_name() == device.name);
    CHECK(on.run(verbs::choose_domain(chosen, "no-such-host.invalid:1")) == &on.service<verbs_domain>());
    on.run([](std::string host) -> task<> {
        auto listening = co_await listen<verbs_rc>(host + ":0");
        const std::string at = listening.address();
        CHECK(at.starts_with("verbs://" + std::string(spare_device::address) + ":"));
        auto accepting = start(listening.accept());
        endpoint<verbs_rc> a = co_await connect<verbs_rc>(host + at.substr(at.rfind(':')));
        endpoint<verbs_rc> b = co_await accepting;
        co_await a.send({}, 1);
        co_await b.recv({}, 1);
    }(name));
}

}  // namespace test_transport_verbs_rc_domains
