// Which process a shared-memory link reaches when its listener forks.

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/transport/shm.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/shm_pair.hpp"

#include <optional>
#include <stdexcept>
#include <string>

namespace test_faults_shm_process {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE(
    "a listener that was inherited by fork refuses its clients instead of lending its parent's memory") {
    scheduler theirs{impatient{}};
    shm::domain there(theirs);
    const std::string name = shm_test_name();
    auto listening = theirs.run([](shm::domain& in, std::string where) -> task<listener<shm>> {
        co_return co_await listen<shm>(in, where);
    }(there, name));
    child_process child([&](const std::string&) {
        theirs.run([](listener<shm>& at) -> task<> { co_await at.accept(); }(listening));
    });
    child.tell("go");
    scheduler on{impatient{}};
    shm::domain here(on);
    const auto connected = on.run([](shm::domain& in, std::string where) -> task<std::string> {
        try {
            co_await timeout(connect<shm>(in, where), 30s);
        } catch (const error& refused) {
            co_return refused.code() == errc::invalid_argument ? refused.what() : "another error";
        }
        co_return "connected";
    }(here, name));
    CHECK(connected.find("inherited by fork") != std::string::npos);
}

TEST_CASE("a child made by fork that destroys its copy of a listener leaves its parent's open") {
    scheduler on{impatient{}};
    shm::domain here(on);
    shm::domain there(on);
    const std::string name = shm_test_name();
    std::optional<listener<shm>> listening(
        on.run([](shm::domain& in, std::string where) -> task<listener<shm>> {
            co_return co_await listen<shm>(in, where);
        }(there, name)));
    child_process child([&](const std::string&) { listening.reset(); });
    child.tell("go");
    REQUIRE(child.wait() == 0);
    const auto met =
        on.run([](listener<shm>& at, shm::domain& from, std::string where) -> task<std::error_code> {
            auto accepting = start(as_result(timeout(at.accept(), 10s)));
            const auto connected = co_await as_result(timeout(connect<shm>(from, where), 10s));
            const auto accepted = co_await accepting;
            co_return connected ? accepted.error() : connected.error();
        }(*listening, here, name));
    CHECK(met == std::error_code());
}

TEST_CASE("a domain that was inherited by fork refuses to connect") {
    scheduler theirs{impatient{}};
    shm::domain there(theirs);
    child_process child([&](const std::string& address) {
        theirs.run([](shm::domain& in, const std::string& where) -> task<> {
            const auto connected = co_await as_result(timeout(connect<shm>(in, where), 30s));
            if (connected || connected.error() != errc::invalid_argument)
                throw std::runtime_error("was not refused");
        }(there, address));
    });
    scheduler on{impatient{}};
    shm::domain here(on);
    on.run([](shm::domain& in, child_process& other) -> task<> {
        auto listening = co_await listen<shm>(in, shm_test_name());
        other.tell(listening.address());
        int status = 0;
        while (!other.ended(status)) co_await yield();
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) == 0);
    }(here, child));
}

}  // namespace test_faults_shm_process
