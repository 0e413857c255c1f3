#include <rdmacoro/transport/shm.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace test_transport_shm {

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

TEST_CASE("options that peers would refuse are refused where the domain is made") {
    scheduler on;
    const auto refused = [&](const shm_options& options) {
        try {
            const shm::domain made(on, options);
        } catch (const error& why) {
            CHECK(why.code() == errc::invalid_argument);
            return std::string(why.what());
        }
        return std::string();
    };
    for (const std::size_t count : {std::size_t{0}, std::size_t{65537}}) {
        shm_options options;
        options.max_regions = count;
        CHECK_THAT(refused(options), test::contains("max_regions"));
    }
    shm_options no_arena;
    no_arena.arena_bytes = 0;
    CHECK_THAT(refused(no_arena), test::contains("arena_bytes"));
    CHECK(refused({}).empty());
}

TEST_CASE("a handshake limit without end is none") {
    scheduler on;
    shm_options patient;
    patient.handshake_limit = duration::max();
    shm::domain here(on, patient);
    on.run([](shm::domain& domain) -> task<> {
        auto listening =
            co_await rdmacoro::listen<shm>(domain, "shm://patient-" + std::to_string(::getpid()));
        auto accepting = start(listening.accept());
        auto client =
            co_await timeout(rdmacoro::connect<shm>(domain, listening.address()), std::chrono::seconds(10));
        auto server = co_await accepting;
        co_await client.send({}, 1);
        static_cast<void>(co_await server.recv({}, 1));
    }(here));
}

TEST_CASE("an address with another scheme is refused with what is known, not with what a name is") {
    scheduler on;
    shm::domain here(on);
    on.run([](shm::domain& domain) -> task<> {
        std::string said;
        try {
            static_cast<void>(co_await domain.connect("smh://a"));
        } catch (const error& refused) {
            said = refused.what();
            CHECK(refused.code() == errc::address_invalid);
        }
        CHECK_THAT(said, test::contains("\"smh://a\"") && test::contains("did you mean shm://a?") &&
                             !test::contains("'/'"));
    }(here));
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

TEST_CASE("each end of a link names the address and the process of its peer") {
    scheduler on;
    shm::domain here(on);
    on.run([](shm::domain& domain) -> task<> {
        const std::string name = "shm://both-" + std::to_string(::getpid());
        auto listening = co_await rdmacoro::listen<shm>(domain, name);
        auto accepting = start(listening.accept());
        auto near = co_await rdmacoro::connect<shm>(domain, name);
        auto far = co_await accepting;
        const std::string process = " (process " + std::to_string(::getpid()) + ")";
        CHECK(far.peer_name() == name + process);
        CHECK(near.peer_name() == name + process);
    }(here));
}

TEST_CASE("memory of the domain's allocator is reached by plain copies, without the kernel and the peer") {
    scheduler on;
    shm_options without;
    without.use_process_vm = false;
    shm::domain here(on, without);
    shm::domain there(on, without);
    on.run([](shm::domain& near, shm::domain& far) -> task<> {
        auto listening = co_await listen<shm>(far, "shm://arena-" + std::to_string(::getpid()));
        auto accepting = start(listening.accept());
        auto a = co_await connect<shm>(near, listening.address());
        auto b = co_await accepting;
        const shared_memory memory = far.allocate_shared(3'000'000);
        region open = far.register_memory(memory.bytes());
        for (const std::size_t bytes :
             {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{5000}, std::size_t{2'999'967}}) {
            CAPTURE(bytes);
            const std::vector<std::byte> data(bytes, static_cast<std::byte>(bytes % 251));
            std::fill(memory.bytes().begin(), memory.bytes().end(), std::byte{0xee});
            co_await a.rdma_put(data, open.remote().part(33, bytes));
            CHECK(std::equal(data.begin(), data.end(), memory.bytes().begin() + 33));
            CHECK(memory.bytes()[32] == std::byte{0xee});
            if (bytes + 33 < memory.bytes().size()) CHECK(memory.bytes()[33 + bytes] == std::byte{0xee});
            std::vector<std::byte> back(bytes);
            co_await a.rdma_get(open.remote().part(33, bytes), back);
            CHECK(back == data);
        }
        CHECK(b.counts().messages_received == 0);
        std::vector<std::byte> one(1);
        const auto beyond = co_await as_result(a.rdma_get(
            {open.remote().address + 2'999'999, 2, open.remote().key, access_rights::all}, std::span(one)));
        CHECK(beyond.error());
        region readable = far.register_memory(memory.bytes(), access_rights::remote_read);
        const auto denied = co_await as_result(a.rdma_put(one, readable.remote().part(0, 1)));
        CHECK(denied.error() == errc::access_denied);
        const remote_region old = open.remote().part(0, 1);
        open.reset();
        const auto revoked = co_await as_result(a.rdma_get(old, one));
        CHECK(revoked.error() == errc::bad_key);
    }(here, there));
}

}  // namespace test_transport_shm
