#include "verbs/pair.hpp"

#include "support/catch.hpp"

#include <algorithm>

namespace test_verbs_revoke {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("a transfer that lasts for long can be revoked, and its link goes on") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    std::vector<std::byte> there(std::size_t{32} << 20, std::byte{1});
    std::vector<std::byte> here(there.size());
    const region open = w.server.register_memory(there, access_rights::all);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    for (const bool get : {true, false}) {
        CAPTURE(get);
        std::fill(here.begin(), here.end(), std::byte{2});
        std::fill(there.begin(), there.end(), std::byte{1});
        const std::span<const std::byte> changes = get ? std::span(here) : std::span(there);
        recording_completion moved;
        REQUIRE((get ? a.link->get(open.remote(), here, moved) : a.link->put(here, open.remote(), moved)) ==
                post_result::posted);
        const std::byte old = get ? std::byte{2} : std::byte{1};
        w.until([&] { return changes.front() != old; });
        REQUIRE(moved.calls == 0);
        static_cast<void>(a.link->revoke(moved));
        CHECK(changes.back() == old);  // or it was over before
        // The memory belongs to its owner again.
        std::fill(here.begin(), here.end(), std::byte{0x77});
        w.turns(200);
        CHECK(std::all_of(here.begin(), here.end(), [](std::byte x) { return x == std::byte{0x77}; }));
        CHECK(moved.calls == 0);
        const auto before = b.sink.count;
        post_for_sure(w, a, 5);
        w.until([&] { return b.sink.count == before + 1; });
        CHECK(a.sink.downs + b.sink.downs == 0);
    }
}

}  // namespace test_verbs_revoke
