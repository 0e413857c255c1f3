// The words of `scheduler::describe` at each stage of a message's way by each protocol, over every transport: nothing that is pending is missing, nothing
// is there twice, and who must act next is named.

#include "described.hpp"

#include <algorithm>
#include <cstring>
#include <optional>

namespace test_conformance_policies_describe {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

task<> unreceived_sends(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    const auto data = pattern(long_bytes, 1);
    const std::uint64_t number = 5;
    auto long_one = start(p.a.send(data, 7));
    auto matched = start(p.a.ssend(bytes_of(number), 8));
    co_await settle();
    // What may come unasked is still on its way.
    for (int n = 0;
         n < 2000 && !found(w, "send", 7).empty() && found(w, "send", 7)[0].next != next_actor::peer_receive;
         ++n)
        co_await settle();
    INFO(w.on().describe().text());
    CHECK(found(w, "send", 7).size() == (long_one.done() ? 0 : 1));
    for (const pending_operation& one : found(w, "send", 7)) {
        CHECK(one.next == next_actor::peer_receive);
        CHECK(one.bytes == long_bytes);
        CHECK_FALSE(one.peer.empty());
    }
    REQUIRE(found(w, "ssend", 8).size() == 1);
    CHECK(found(w, "ssend", 8)[0].next == next_actor::peer_receive);
    std::vector<std::byte> into(long_bytes);
    co_await p.b.recv(into, 7);
    co_await p.b.recv(into, 8);
    co_await long_one;
    co_await matched;
    CHECK(found(w, "send", 7).empty());
    CHECK(found(w, "ssend", 8).empty());
}

/// At every stage of a message's way both of its operations are described, once each, as long as they are pending.
task<> all_the_way(two_domains& w, list_name list) {
    auto p = co_await w.connected_with(list);
    const auto data = pattern(long_bytes, 1);
    std::vector<std::byte> into(long_bytes);
    std::size_t looks = 0;
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{3000}, std::size_t{40000}, long_bytes}) {
        for (const int way : {0, 1, 2, 3}) {  // send or ssend; which comes first
            const tag_type tag = 10;
            const std::string what = way % 2 == 0 ? "send" : "ssend";
            const auto from = std::span<const std::byte>(data).first(bytes);
            const auto send = [&] { return way % 2 == 0 ? p.a.send(from, tag) : p.a.ssend(from, tag); };
            const auto look = [&](bool sending, bool receiving) {
                const description all = w.on().describe();
                const auto sends = found(all, what, tag);
                const auto receives = found(all, "recv", tag);
                INFO(bytes << " bytes, way " << way << "\n" << all.text());
                CHECK(sends.size() == (sending ? 1 : 0));
                CHECK(receives.size() == (receiving ? 1 : 0));
                if (sending && receiving && way < 2) CHECK(receives[0].next != next_actor::this_program);
                ++looks;
            };
            if (way < 2) {
                auto receiving = start(p.b.recv(into, tag));
                auto sending = start(send());
                while (!sending.done() || !receiving.done()) {
                    look(!sending.done(), !receiving.done());
                    co_await yield();
                }
                co_await sending;
                co_await receiving;
            } else {
                auto sending = start(send());
                look(!sending.done(), false);
                co_await yield();
                look(!sending.done(), false);
                auto receiving = start(p.b.recv(into, tag));
                while (!sending.done() || !receiving.done()) {
                    look(!sending.done(), !receiving.done());
                    co_await yield();
                }
                co_await sending;
                co_await receiving;
            }
            look(false, false);
        }
    }
    CHECK(looks > 16);
}

constexpr list_name lists[] = {
    list_name::standard, list_name::eager_and_pieces, list_name::get,         list_name::put,
    list_name::by_size,  list_name::cooperative,      list_name::reuse_aware, list_name::speculative_get,
    list_name::staged,   list_name::speculative_put};

}  // namespace

CONFORMANCE_CASE("describe: a send that ends when it is received waits for the peer to receive",
                 every_transport) {
    for (const list_name list : lists) {
        INFO(static_cast<int>(list));
        conform(over, list, unreceived_sends);
    }
}
CONFORMANCE_CASE("describe: at every stage of a message both operations are there, once each",
                 every_transport) {
    for (const list_name list : lists) {
        INFO(static_cast<int>(list));
        conform(over, list, all_the_way);
    }
}

}  // namespace test_conformance_policies_describe
