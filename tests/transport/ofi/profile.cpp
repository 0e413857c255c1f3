#include <rdmacoro/transport/ofi/profile.hpp>

#include "ofi/pair.hpp"

// The providers beside tcp and shm: those that run on any machine, and the stand-ins that FI_PROVIDER_PATH names.

namespace test_transport_ofi_profile {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

std::string other_provider() { return GENERATE(as<std::string>{}, "gni", "cxi", "efa", "sockets", "udp"); }

}  // namespace

TEST_CASE("messages, gets and puts go over every provider with a profile") {
    const std::string provider = other_provider();
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    CHECK(w.client.describe().find(std::string(provider::find(provider)->provider)) == 0);
    const capabilities& link = a.link->capabilities();
    std::uint64_t sent = 0;
    for (const std::size_t bytes :
         {std::size_t{0}, link.inline_bytes, link.inline_bytes + 1, link.max_message}) {
        const auto data = pattern(bytes, static_cast<unsigned>(bytes));
        post_for_sure(w, a, ++sent, data);
        w.until([&] { return b.sink.count == sent; });
        CHECK(b.sink.messages.back().number == sent);
        CHECK(b.sink.messages.back().payload == data);
    }
    auto there = pattern(100000, 1);
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    recording_completion over;
    REQUIRE(a.link->get(open.remote(), here, over) == post_result::posted);
    w.until([&] { return over.calls == 1; });
    CHECK_FALSE(over.outcome);
    CHECK(here == there);
    here = pattern(here.size(), 2);
    REQUIRE(a.link->put(here, open.remote(), over) == post_result::posted);
    w.until([&] { return over.calls == 2; });
    CHECK_FALSE(over.outcome);
    CHECK(here == there);
    // The layers below address the same memory from the side that owns it.
    const region exposed = b.link->expose(there, access_rights::remote_read);
    REQUIRE(exposed);
    REQUIRE(a.link->get(exposed.remote().part(64, 4096), std::span(here).first(4096), over) ==
            post_result::posted);
    w.until([&] { return over.calls == 3; });
    CHECK_FALSE(over.outcome);
    CHECK(std::equal(here.begin(), here.begin() + 4096, there.begin() + 64));
}

TEST_CASE("an endpoint of any provider that is given up is replaced, with all that is bound to it") {
    const std::string provider = other_provider();
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    std::vector<std::byte> there(std::size_t{8} << 20);
    {
        ofi_end a;
        ofi_end b;
        w.link(a, b);
        const region open = w.server.register_memory(there, access_rights::all);
        const region own = w.client.register_memory(there, access_rights::all);
        // The peer lives and could still write.
        const region exposed = a.link->expose(there, access_rights::remote_write);
        REQUIRE(exposed);
        a.link->close(make_error_code(errc::closed));
        w.until([&] { return b.sink.downs == 1; });
    }
    CHECK(w.client.counts().reopened == 1);
    w.until([&] { return w.client.connections() == 0; });
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    post_for_sure(w, a, 1, pattern(a.link->capabilities().max_message));
    w.until([&] { return b.sink.count == 1; });
    const region open = w.server.register_memory(there, access_rights::all);
    const region own = w.client.register_memory(there, access_rights::all);
    std::vector<std::byte> here(4096);
    recording_completion over;
    REQUIRE(a.link->get(open.remote().part(0, 4096), here, over) == post_result::posted);
    w.until([&] { return over.calls == 1; });
    CHECK_FALSE(over.outcome);
    REQUIRE(b.link->get(own.remote().part(0, 4096), here, over) == post_result::posted);
    w.until([&] { return over.calls == 2; });
    CHECK_FALSE(over.outcome);
}

}  // namespace test_transport_ofi_profile
