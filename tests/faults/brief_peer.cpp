// Peers that say what they have to say, and close, before a slow listener has had its turn.

#include "support/catch.hpp"
#include "support/nodes.hpp"

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/messaging/connect.hpp>

#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace test_faults_brief_peer {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

/// A source of the user's that takes its time: between what coroutines do and the polls of links others do much.
class slow_source final : public progress_source {
public:
    slow_source() { scheduler::current()->add_source(*this); }
    bool poll() noexcept override {
        std::this_thread::sleep_for(1ms);
        return true;
    }
};

template <class T>
task<> say_and_close(std::string where) {
    for (const bool says : {false, true}) {
        auto peer = co_await connect<T>(where);
        if (says) co_await peer.send(std::string_view("my word"), 1);
        co_await peer.close();
    }
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a peer that closes before a slow listener has had its turn is accepted, and heard",
                        "", node_transports) {
    run_nodes([]() -> task<> {
        const slow_source before_links;
        auto listening = co_await listen<TestType>(fresh_url<TestType>());
        const std::jthread other([where = listening.address()] {
            scheduler on;
            on.run(say_and_close<TestType>(where));
        });
        for (const bool says : {false, true}) {
            auto accepted = co_await as_result(timeout(listening.accept(), 10s));
            CHECK(listening.refused() == 0);
            REQUIRE(accepted);
            endpoint<TestType> peer = std::move(*accepted);
            if (says) {
                const message got = co_await peer.recv_lent();
                CHECK(std::string_view(reinterpret_cast<const char*>(got.bytes().data()), got.size()) ==
                      "my word");
            }
            const auto next = co_await as_result(peer.recv_lent());
            CHECK(next.error() == errc::closed);
        }
    });
}

}  // namespace test_faults_brief_peer
