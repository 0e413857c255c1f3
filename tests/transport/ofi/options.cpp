#include <rdmacoro/transport/ofi/options.hpp>

#include "ofi/pair.hpp"

#include <functional>
#include <string>

namespace test_transport_ofi_options {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("the default options limit every wait, and ask for what every profile has") {
    const ofi_options o;
    CHECK(o.handshake_timeout > duration{});
    CHECK(o.peer_timeout >= ofi_options::least_peer_timeout);
    CHECK(o.most_waiting > 0);
    CHECK(o.receives == 0);
    CHECK(o.slot_bytes == 0);
}

TEST_CASE("options out of range are refused when a domain opens, by name and with the range") {
    struct wrong {
        std::function<void(ofi_options&)> set;
        const char* text;
    };
    const wrong all[] = {
        {[](ofi_options& o) { o.credits = 7; }, "credits must be 8 to 1024"},
        {[](ofi_options& o) { o.credits = 1025; }, "credits must be 8 to 1024"},
        {[](ofi_options& o) { o.slot_bytes = 4096; }, "slot_bytes must be 8192 bytes to 1 MiB"},
        {[](ofi_options& o) { o.peer_timeout = std::chrono::milliseconds(1999); },
         "peer_timeout must be 2 seconds"},
        {[](ofi_options& o) { o.peer_timeout = duration::zero(); }, "peer_timeout must be 2 seconds"},
        {[](ofi_options& o) { o.handshake_timeout = duration::zero(); },
         "handshake_timeout must be more than 0"},
        {[](ofi_options& o) { o.handshake_timeout = std::chrono::seconds(-1); },
         "handshake_timeout must be more than 0"},
        {[](ofi_options& o) { o.most_waiting = 0; }, "most_waiting must be at least 1"},
    };
    scheduler on{impatient{}};
    for (const wrong& one : all) {
        CAPTURE(one.text);
        ofi_options o = ofi_here("tcp");
        one.set(o);
        try {
            const ofi_any_domain none(on, o);
            FAIL("it opened");
        } catch (const error& refused) {
            CHECK(refused.code() == errc::invalid_argument);
            CHECK(std::string(refused.what()).find(one.text) != std::string::npos);
        }
    }
    // A side that serves reads its peer's memory into its own, wherever both are.
    ofi_options aligned = ofi_here("gni");
    aligned.one_sided = ofi_one_sided::served;
    try {
        const ofi_any_domain none(on, aligned);
        FAIL("it opened");
    } catch (const error& refused) {
        CHECK(refused.code() == errc::invalid_argument);
        CHECK(std::string(refused.what()).find("one_sided must not be served") != std::string::npos);
    }
    ofi_options least = ofi_here("tcp");
    least.peer_timeout = ofi_options::least_peer_timeout;
    least.credits = 8;
    const ofi_any_domain opened(on, least);
}

TEST_CASE("counts of links add up") {
    ofi_counts sum;
    ofi_counts one;
    one.messages = 1;
    one.posts = 2;
    one.bounced = 3;
    one.failed_injects = 4;
    one.abandoned = 5;
    sum += one;
    sum += one;
    CHECK(sum.messages == 2);
    CHECK(sum.posts == 4);
    CHECK(sum.bounced == 6);
    CHECK(sum.failed_injects == 8);
    CHECK(sum.abandoned == 10);
    CHECK(sum.gets == 0);
}

}  // namespace test_transport_ofi_options
