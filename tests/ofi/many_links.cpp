// Domains with more links than the provider takes receives for, at the usual credits.

#include <rdmacoro/transport/ofi.hpp>

#include "ofi/pair.hpp"

#include <memory>
#include <string>
#include <vector>

namespace test_ofi_many_links {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct linked {
    ofi_end a;
    ofi_end b;
    std::uint64_t sent_by_a = 0;
    std::uint64_t sent_by_b = 0;
};

/// Each end sends as much as it has credit for, while no other side takes anything.
void flood(ofi_world& w, std::vector<std::unique_ptr<linked>>& all) {
    const auto each = [&](auto what) {
        for (const auto& one : all) {
            what(one->a, one->b, one->sent_by_a);
            what(one->b, one->a, one->sent_by_b);
        }
    };
    std::uint64_t posted = 0;
    each([&](ofi_end& from, ofi_end&, std::uint64_t& sent) {
        recording_completion none;
        for (; from.link->post(header_of(sent), {}, none) == post_result::done; ++posted) ++sent;
    });
    CHECK(posted >= all.size());
    each([&](ofi_end& from, ofi_end& to, std::uint64_t& sent) {
        w.until([&] { return to.sink.count == sent || from.sink.downs + to.sink.downs != 0; });
        CHECK(to.sink.count == sent);
        CHECK(from.sink.downs + to.sink.downs == 0);
    });
}

}  // namespace

TEST_CASE("links beyond what the provider takes receives for get fewer credits, and all that they send at a "
          "time arrives") {
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi", "udp");
    CAPTURE(provider);
    ofi_world w(ofi_here(provider));
    std::vector<std::unique_ptr<linked>> all;
    std::uint32_t sum = 0;
    for (std::size_t i = 0; i < 36; ++i) {
        all.push_back(std::make_unique<linked>());
        w.link(all.back()->a, all.back()->b);
        CHECK(all.back()->a.link->credits() >= 4);
        sum += all.back()->a.link->credits();
    }
    CHECK(sum > 200);
    for (int n = 0; n < 3; ++n) flood(w, all);
}

TEST_CASE(
    "a link for which the provider has too few receives left is refused, with the reason and the remedy") {
    ofi_options o = ofi_here("cxi");
    ofi_world w(o);
    std::vector<std::unique_ptr<linked>> all;
    std::string text;
    std::error_code code;
    while (text.empty()) {
        REQUIRE(all.size() < 512 / 8);
        auto next = std::make_unique<linked>();
        try {
            w.link(next->a, next->b);
            all.push_back(std::move(next));
        } catch (const error& refused) {
            code = refused.code();
            text = refused.what();
        }
    }
    CHECK(all.size() > 30);
    CHECK(code == errc::no_resources);
    CHECK(text.find("511") != std::string::npos);
    CHECK(text.find("fewer credits") != std::string::npos);
    flood(w, all);
    // Room that a link leaves is another's.
    all.pop_back();
    w.until([&] { return w.client.connections() == all.size() && w.server.connections() == all.size(); });
    all.push_back(std::make_unique<linked>());
    w.link(all.back()->a, all.back()->b);
    flood(w, all);
}

TEST_CASE("options may ask for more receives or fewer, and for more than the provider takes they are refused "
          "by name") {
    ofi_options o = ofi_here("cxi");
    o.receives = 128;
    {
        ofi_world w(o);
        linked one;
        w.link(one.a, one.b);
        CHECK(one.a.link->credits() <= 8);
    }
    o.receives = 513;
    scheduler on{impatient{}};
    try {
        const ofi_any_domain none(on, o);
        FAIL("it opened");
    } catch (const error& refused) {
        CHECK(refused.code() == errc::unsupported);
        CHECK(std::string(refused.what()).find("rx_attr.size: options ask for 513 receives") !=
              std::string::npos);
    }
}

}  // namespace test_ofi_many_links
