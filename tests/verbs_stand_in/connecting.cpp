#include "support/verbs_stand_in/pair.hpp"

#include "support/catch.hpp"

#include <memory>
#include <utility>

namespace test_verbs_stand_in_connecting {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace stand_in = verbs_stand_in;

namespace {

verbs_options by_cm() {
    verbs_options made = stand_in::by_tcp();
    made.connect_by = verbs_connect::rdma_cm;
    return made;
}

/// Both ends of a link. The client sends a message before the server's end is awaited.
task<> link_with_message(stand_in::world& w, stand_in::end& a, stand_in::end& b) {
    auto listening = co_await w.server.listen("*:0");
    auto accepting = start(listening.accept());
    auto client = co_await w.client.connect(listening.address());
    a.link = std::make_unique<stand_in::link_type>(std::move(client), a.sink);
    recording_completion none;
    CHECK(a.link->post(header_of(7), {}, none) == post_result::done);
    auto server = co_await accepting;
    b.link = std::make_unique<stand_in::link_type>(std::move(server), b.sink);
    while (b.sink.count == 0) co_await yield();
}

}  // namespace

TEST_CASE(
    "an accept by rdma_cm ends by the client's first message if the last one of the handshake is lost") {
    const bool lost = GENERATE(false, true);
    CAPTURE(lost);
    if (rdmacoro::detail::verbs::device_addresses().empty())
        SKIP_TEST("this machine has no network interface but the loopback one");
    std::unique_ptr<stand_in::without_ready_to_use> losing;
    if (lost) losing = std::make_unique<stand_in::without_ready_to_use>();
    stand_in::world w(by_cm());
    stand_in::end a;
    stand_in::end b;
    w.on.run(link_with_message(w, a, b));
    REQUIRE(b.sink.messages.size() == 1);
    CHECK(b.sink.messages.front().number == 7);
    CHECK(a.sink.downs + b.sink.downs == 0);
    a.link.reset();
    w.until([&] { return b.sink.downs == 1; });
    b.link.reset();
    w.until_all_gone();
}

TEST_CASE("messages over links that were connected by TCP, which bring no news of a connection, come") {
    stand_in::world w(stand_in::by_tcp());
    stand_in::end a;
    stand_in::end b;
    w.link(a, b);
    post_for_sure(w, a, 1);
    w.until([&] { return b.sink.count == 1; });
    CHECK(a.sink.downs + b.sink.downs == 0);
}

}  // namespace test_verbs_stand_in_connecting
