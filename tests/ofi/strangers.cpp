// Clients of a listener that connect and do not go on.

#include "ofi/stranger.hpp"

#include <chrono>
#include <vector>

namespace test_ofi_strangers {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

task<> connect_within(ofi_any_domain* by, const ofi_listener* to, duration limit) {
    ofi_connection made = co_await timeout(by->connect(to->address()), limit);
    CHECK(static_cast<bool>(made));
}

}  // namespace

TEST_CASE("two hundred clients that say nothing do not keep another one out for a second") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "cxi");
    CAPTURE(provider);
    besieged w(provider);
    ofi_any_domain honest(w.on, ofi_here(provider));
    std::vector<caller> silent(200);
    for (caller& one : silent) one.connect(w.listening.address());
    w.on.run_until([&] { return w.domain.connections() == silent.size(); });
    CHECK(w.domain.counts().unfinished == 0);
    CHECK(w.domain.counts().receive_posts == 0);  // they hold a descriptor each
    for (int n = 0; n < 3; ++n) w.on.run(connect_within(&honest, &w.listening, 1s));
}

TEST_CASE("clients that show a connect_info and do not go on hold a quarter of the provider's receives at "
          "most, and give way") {
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi", "udp", "tcp");
    CAPTURE(provider);
    besieged w(provider);
    ofi_any_domain honest(w.on, ofi_here(provider));
    const ofi_options options = ofi_here(provider);
    const fabric::device one_of_them(*provider::find(provider), options);
    const fabric::connect_info known = info_of(one_of_them);
    std::vector<caller> begun(200);
    for (caller& one : begun) {
        one.connect(w.listening.address());
        one.show(known);
    }
    w.on.run_until([&] { return w.domain.connections() == begun.size(); });
    unsigned admitted = 0;
    w.on.run_until([&] {
        const unsigned before = admitted;
        admitted = 0;
        for (caller& one : begun) {
            one.hear();
            admitted += one.heard().empty() ? 0 : 1;
        }
        return admitted >= 3 && admitted == before;
    });
    CHECK(admitted <= 64);
    CHECK(w.domain.counts().unfinished >= 1);
    CHECK(w.domain.counts().unfinished <= 64);
    if (provider == "gni" || provider == "cxi") CHECK(w.domain.counts().receive_posts <= 512 / 4);
    for (int n = 0; n < 3; ++n) w.on.run(connect_within(&honest, &w.listening, 3s));
}

}  // namespace test_ofi_strangers
