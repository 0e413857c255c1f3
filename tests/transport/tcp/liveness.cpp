#include <rdmacoro/transport/tcp/liveness.hpp>

#include <rdmacoro/coro/sleep_for.hpp>

#include "support/catch.hpp"
#include "support/tcp_pair.hpp"

#include <chrono>

namespace test_transport_tcp_liveness {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

TEST_CASE("a peer that reads nothing for several times the limit keeps its link, and gets everything then") {
    tcp_options options;
    options.peer_timeout = 1s;
    raw_pair p(options);
    const auto payload = pattern(detail::tcp_most_message);
    std::vector<recording_completion> completions(16);
    for (auto& c : completions) {
        const post_result answer = p.b.link->post(header_of(1), payload, c);
        REQUIRE((answer == post_result::done || answer == post_result::posted));
    }
    p.on.run([](const recording_sink& seen) -> task<> {
        for (int n = 0; n < 100 && seen.downs == 0; ++n) co_await sleep_for(60ms);
    }(p.b.sink));
    CHECK(p.b.sink.downs == 0);
    REQUIRE(completions.back().calls == 0);  // the socket was full all the time
    const std::size_t all = completions.size() * (detail::tcp_message_head + detail::tcp_most_message);
    CHECK(p.peer.receive(p, all).size() == all);
    p.until([&] { return completions.back().calls == 1; });
    CHECK_FALSE(completions.back().outcome);
}

}  // namespace test_transport_tcp_liveness
