#include <rdmacoro/transport/ofi/link.hpp>

#include "ofi/pair.hpp"

namespace test_transport_ofi_link {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("two domains on one scheduler send messages, get and put") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "shm");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{40}, std::size_t{41},
                                    std::size_t{4000}, a.link->capabilities().max_message}) {
        const auto data = pattern(bytes, static_cast<unsigned>(bytes));
        post_for_sure(w, a, bytes, data);
        w.until([&] { return !b.sink.messages.empty(); });
        CHECK(b.sink.messages.back().number == bytes);
        CHECK(b.sink.messages.back().payload == data);
        b.sink.messages.clear();
        post_for_sure(w, b, bytes, data);
        w.until([&] { return !a.sink.messages.empty(); });
        CHECK(a.sink.messages.back().payload == data);
        a.sink.messages.clear();
    }
    auto there = pattern(100000, 1);
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    recording_completion got;
    REQUIRE(a.link->get(open.remote(), here, got) == post_result::posted);
    w.until([&] { return got.calls != 0; });
    CHECK_FALSE(got.outcome);
    CHECK(here == there);
    here = pattern(here.size(), 2);
    recording_completion put;
    REQUIRE(a.link->put(here, open.remote(), put) == post_result::posted);
    w.until([&] { return put.calls != 0; });
    CHECK_FALSE(put.outcome);
    CHECK(there == here);
}

}  // namespace test_transport_ofi_link
