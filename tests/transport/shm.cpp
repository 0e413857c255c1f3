#include <rdmacoro/transport/shm.hpp>

#include <rdmacoro/coro/as_result.hpp>

#include "support/catch.hpp"

#include <string>
#include <string_view>

#include <unistd.h>

using namespace rdmacoro;

static_assert(transport<shm>);
static_assert(one_sided_link<shm::link<rdmacoro::detail::sink_archetype>>);
static_assert(shm::static_capabilities.inline_bytes == 48, "a cache line less frame word and header");

TEST_CASE("shared memory goes by the scheme shm") { CHECK(std::string_view(shm::name) == "shm"); }

TEST_CASE("a name that can't be one is refused with what a name is") {
    scheduler on;
    shm::domain here(on);
    for (const std::string& name : {std::string("shm://"), std::string("shm://a/b"), std::string(200, 'x')}) {
        CAPTURE(name);
        std::string said;
        try {
            on.run([](shm::domain& domain, std::string address) -> task<> {
                static_cast<void>(co_await domain.listen(address));
            }(here, name));
        } catch (const error& refused) {
            said = refused.what();
            CHECK(refused.code() == errc::address_invalid);
        }
        CHECK(said.find("shared-memory") != std::string::npos);
    }
}

TEST_CASE("a listener's address is what connect takes, and is free again when the listener is gone") {
    scheduler on;
    shm::domain here(on);
    on.run([](shm::domain& domain) -> task<> {
        const std::string name = "shm://name-" + std::to_string(::getpid());
        {
            auto listening = co_await domain.listen(name);
            CHECK(std::string(listening.address()) == name);
            const auto again = co_await as_result(domain.listen(name));
            CHECK(again.error() == errc::address_in_use);
            auto near = co_await domain.connect(listening.address());
            auto far = co_await listening.accept();
        }
        const auto refused = co_await as_result(domain.connect(name));
        CHECK(refused.error() == errc::connection_refused);
        static_cast<void>(co_await domain.listen(name));
    }(here));
}
