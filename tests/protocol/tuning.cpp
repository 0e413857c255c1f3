#include <rdmacoro/protocol/tuning.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"
#include "support/loopback.hpp"
#include "support/run.hpp"

#include <cstdlib>
#include <string>
#include <vector>

namespace test_protocol_tuning {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Sets a variable for as long as it lives.
struct variable {
    variable(const char* which, const char* value) : name(which) { ::setenv(name, value, 1); }
    ~variable() { ::unsetenv(name); }
    const char* name;
};

using list = protocols<eager<>, get_rendezvous<up_to_transport, from_transport>, segmented<>>;

metrics sent_with(const tuning& limits, std::size_t bytes) {
    virtual_time world;
    return world.run([](tuning with, std::size_t length) -> task<metrics> {
        mailbox_options options;
        options.limits = with;
        auto listening = co_await listen<loopback, list>("tuned", options);
        auto a = co_await connect<loopback, list>("tuned", options);
        auto b = co_await listening.accept();
        std::vector<std::byte> from(length, std::byte{7});
        std::vector<std::byte> into(length);
        auto sending = start(a.send(from));
        co_await b.recv(into);
        co_await sending;
        CHECK(from == into);
        co_return a.counts();
    }(limits, bytes));
}

}  // namespace

TEST_CASE("nothing in the environment sets nothing") { CHECK_FALSE(tuning::from_environment().any()); }

TEST_CASE("sizes are bytes, or with a unit") {
    const variable a("RDMACORO_EAGER_LIMIT", "1234");
    const variable b("RDMACORO_RENDEZVOUS_LIMIT", "64K");
    const variable c("RDMACORO_GET_LIMIT", "2M");
    const variable d("RDMACORO_SEGMENT_BYTES", "1GiB");
    const tuning t = tuning::from_environment();
    CHECK(t.eager_limit == 1234);
    CHECK(t.rendezvous_limit == 64u << 10);
    CHECK(t.get_limit == 2u << 20);
    CHECK(t.segment_bytes == 1u << 30);
}

TEST_CASE("what is no size is refused by name") {
    for (const char* text : {"many", "-1", "1.5K", "12Q", "K", "99999999999999999999", "99999999999G"}) {
        const variable wrong("RDMACORO_GET_LIMIT", text);
        try {
            static_cast<void>(tuning::from_environment());
            FAIL("accepted " << text);
        } catch (const error& e) {
            CHECK(e.code() == errc::invalid_argument);
            CHECK(std::string(e.what()).find("RDMACORO_GET_LIMIT") != std::string::npos);
        }
    }
}

TEST_CASE("what a program sets goes before the environment") {
    tuning program;
    program.eager_limit = 1;
    tuning environment;
    environment.eager_limit = 2;
    environment.get_limit = 3;
    const tuning both = program.or_else(environment);
    CHECK(both.eager_limit == 1);
    CHECK(both.get_limit == 3);
    CHECK(both.segment_bytes == tuning::unset);
}

TEST_CASE("limits stay within what the link can carry") {
    capabilities link{.max_message = 100, .eager_bytes = 10, .segment_bytes = 50};
    tuning t;
    t.segment_bytes = 1000;
    CHECK(t.applied_to(link).segment_bytes == 100);
    t.segment_bytes = 0;
    CHECK(t.applied_to(link).segment_bytes == 1);
    t.eager_limit = 1000;
    CHECK(eager<>::longest(t.applied_to(link)) == 100);
}

TEST_CASE("a raised eager limit sends eagerly what went otherwise") {
    CHECK(sent_with({}, 5000).get_sent == 1);
    tuning t;
    t.eager_limit = 8000;
    CHECK(sent_with(t, 5000).eager_sent == 1);
    CHECK(sent_with(t, 8001).get_sent == 1);
}

TEST_CASE("a rendezvous limit leaves shorter messages to the next policy") {
    tuning t;
    t.rendezvous_limit = 100000;
    CHECK(sent_with(t, 99999).segmented_sent == 1);
    CHECK(sent_with(t, 100000).get_sent == 1);
}

TEST_CASE("a get limit leaves longer messages to the next policy") {
    tuning t;
    t.get_limit = 6000;
    CHECK(sent_with(t, 6000).get_sent == 1);
    CHECK(sent_with(t, 6001).segmented_sent == 1);
}

TEST_CASE("a limit that the list states itself stays") {
    capabilities link{.max_message = 1 << 20, .eager_bytes = 4096, .one_sided = true};
    tuning t;
    t.eager_limit = 100;
    t.get_limit = 100;
    CHECK(eager<up_to<2000>>::longest(t.applied_to(link)) == 2000);
    CHECK(get_rendezvous<up_to<2000>>::longest(t.applied_to(link)) == 2000);
}

}  // namespace test_protocol_tuning
