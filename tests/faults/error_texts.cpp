// The texts of errors of operations: the operation, its peer, tag and lengths; as numbers, and in the text.

#include "conformance/transports.hpp"
#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <optional>

namespace test_faults_error_texts {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;

namespace {

constexpr duration case_limit = 60s;

template <class T>
struct ends {
    endpoint<T> a;
    endpoint<T> b;
};

/// Runs `body(ends)` on a connection within one scheduler, with an end.
template <class Variant, class Body>
void over(Body body) {
    using T = typename Variant::transport_type;
    scheduler on;
    const auto domain = Variant::open(on);
    on.run([](typename T::domain& here, std::string address, Body what) -> task<> {
        auto listening = co_await listen<T>(here, address);
        auto accepting = start(listening.accept());
        auto a = co_await connect<T>(here, listening.address());
        auto b = co_await accepting;
        ends<T> both{std::move(a), std::move(b)};
        co_await timeout(what(both), case_limit);
    }(*domain, Variant::address(), body));
}

/// The error of an operation that fails.
template <class Op>
task<error> failure(Op op) {
    std::optional<error> seen;
    try {
        co_await std::move(op);
    } catch (const error& failed) {
        seen.emplace(failed);
    }
    if (!seen) throw std::runtime_error("it did not fail");
    co_return *seen;
}

}  // namespace

TEMPLATE_LIST_TEST_CASE("a truncated message is told with its peer, its tag and both lengths", "",
                        every_kind) {
    over<TestType>([](auto& of) -> task<> {
        for (const std::size_t bytes : {std::size_t{70}, std::size_t{3000}, std::size_t{100'000}}) {
            CAPTURE(bytes);
            const std::vector<std::byte> data(bytes);
            std::byte room[64];
            auto sending = start(as_result(of.a.send(data, 7)));
            const error seen = co_await failure(of.b.recv(room, 7));
            static_cast<void>(co_await sending);
            CHECK(seen.code() == errc::truncated);
            CHECK(seen.info() == bytes);
            CHECK(seen.facts().bytes == sizeof room);
            CHECK(seen.facts().tag == 7);
            CHECK(seen.facts().tag_mask == ~tag_type{0});
            CHECK(seen.facts().peer == 0);
            CHECK(std::string(seen.what()) ==
                  "recv from " + of.b.peer_name() + ", peer 0, tag 7, into 64 bytes, of a message of " +
                      std::to_string(bytes) +
                      " bytes: the message is longer than the receive buffer; it was consumed");
        }
    });
}

TEMPLATE_LIST_TEST_CASE("a limit that was passed is told with what it was for", "", every_kind) {
    over<TestType>([](auto& of) -> task<> {
        std::byte room[64];
        const error seen = co_await failure(timeout(of.b.recv(room, {0x10, 0xf0}), 2ms));
        CHECK(seen.code() == errc::timed_out);
        CHECK(seen.facts().tag == 0x10);
        CHECK(seen.facts().tag_mask == 0xf0);
        CHECK_THAT(std::string(seen.what()),
                   contains("recv from " + of.b.peer_name() + ", peer 0, tag 16 of mask 240") &&
                       contains("into 64 bytes, in 2 ms: "));
        const auto value = co_await as_result(timeout(of.b.recv(room, 7), 2ms));
        CHECK(value.error() == errc::timed_out);
        CHECK(value.facts().tag == 7);
        const error probed = co_await failure(timeout(of.b.probe(9), 2ms));
        CHECK_THAT(std::string(probed.what()), contains("probe of a peer, peer 0, tag 9, in 2 ms: "));
    });
}

TEMPLATE_LIST_TEST_CASE("operations that are canceled, before and after they began, tell what they were", "",
                        every_kind) {
    over<TestType>([](auto& of) -> task<> {
        std::byte room[64];
        local_stop_source stop;
        auto waits = start(failure(with_stop(of.b.recv(room), stop.get_token())));
        co_await yield();
        stop.request_stop();
        const error late = co_await waits;
        CHECK(late.code() == errc::canceled);
        CHECK_THAT(std::string(late.what()),
                   contains("recv from " + of.b.peer_name() + ", peer 0, any tag, into 64 bytes: "));
        const error early = co_await failure(with_stop(of.b.send(room, 3), stop.get_token()));
        CHECK(early.code() == errc::canceled);
        CHECK_THAT(std::string(early.what()), contains("send of 64 bytes to its peer, tag 3: "));
    });
}

TEMPLATE_LIST_TEST_CASE("the end of a link is told with its peer, also when the link is gone", "",
                        every_kind) {
    over<TestType>([](auto& of) -> task<> {
        std::byte room[64];
        const std::string name = of.b.peer_name();
        auto waits = start(failure(of.b.recv(room, 7)));
        co_await yield();
        of.b = {};  // the operation ends; its error is looked at when the connection is no more
        const error closed = co_await waits;
        CHECK(closed.code() == errc::closed);
        CHECK_THAT(std::string(closed.what()),
                   contains("recv from " + name + ", peer 0, tag 7, into 64 bytes: "));
        const std::string other = of.a.peer_name();
        const error lost = co_await failure(of.a.recv(room, 8));
        CHECK(lost.code() == errc::peer_lost);
        CHECK_THAT(std::string(lost.what()),
                   contains("recv from " + other + ", peer 0, tag 8, into 64 bytes: "));
        const error sent = co_await failure(of.a.send(std::span(room).first(5), 9));
        CHECK(sent.code() == errc::peer_lost);
        CHECK_THAT(std::string(sent.what()), contains("send of 5 bytes to " + other + ", peer 0, tag 9: "));
    });
}

TEMPLATE_LIST_TEST_CASE("a receive of any message tells which peer's it was, and its tag", "", every_kind) {
    over<TestType>([](auto& of) -> task<> {
        using T = typename TestType::transport_type;
        mailbox<T> peers;
        const peer_id id = peers.attach(std::move(of.b));
        const std::byte data[100] = {};
        std::byte room[64];
        co_await of.a.send(data, 7);
        const error seen = co_await failure(peers.recv(room));
        CHECK(seen.code() == errc::truncated);
        CHECK(seen.facts().peer == id);
        CHECK_THAT(std::string(seen.what()), contains("recv from " + peers.peer_name(id) +
                                                      ", peer 0, tag 7, into 64 bytes, of a message of 100"));
        const error none = co_await failure(timeout(peers.recv(room), 1ms));
        CHECK(none.facts().peer == error_facts::no_peer);
        CHECK_THAT(std::string(none.what()), contains("recv from any peer, any tag"));
    });
}

TEMPLATE_LIST_TEST_CASE("an error that is taken as a value allocates nothing", "", every_kind) {
    if (!counts_allocations) SKIP_TEST("a sanitizer has operator new");
    over<TestType>([](auto& of) -> task<> {
        const std::byte data[100] = {};
        std::byte room[64];
        std::size_t most = 0;
        for (int round = 0; round < 20; ++round) {
            co_await of.a.send(data, 7);
            co_await of.a.send(data, 8);
            const received waits = co_await of.b.probe(8);
            CHECK(waits.bytes == 100);
            const std::size_t before = allocations();
            const auto ended = co_await as_result(of.b.recv(room, 7));
            const auto lent = co_await as_result(timeout(of.b.recv(room, 8), 1h));
            const std::size_t made = allocations() - before;
            CHECK(ended.error() == errc::truncated);
            CHECK(ended.info() == 100);
            CHECK(ended.facts().bytes == 64);
            CHECK(lent.error() == errc::truncated);
            if (round >= 10) most = std::max(most, made);  // once warm
        }
        CHECK(most == 0);
    });
}

TEMPLATE_LIST_TEST_CASE("a get and a put that fail are told with their peer and their length", "",
                        every_kind) {
    over<TestType>([](auto& of) -> task<> {
        std::vector<std::byte> memory(100);
        const remote_region nowhere{.address = 0, .length = 100, .key = 0xdead'beef'0000'0001};
        const std::string peer = of.a.peer_name().substr(0, 40);
        for (const bool read : {true, false}) {
            CAPTURE(read);
            const std::string what = read ? "rdma_get of " : "rdma_put of ";
            const auto attempt = [&](const remote_region& there) -> task<> {
                if (read) {
                    co_await of.a.rdma_get(there, memory);
                } else {
                    co_await of.a.rdma_put(memory, there);
                }
            };
            remote_region longer = nowhere;
            longer.length = 200;
            const error lengths = co_await failure(attempt(longer));
            CHECK(lengths.code() == errc::invalid_argument);
            CHECK_THAT(lengths.what(), contains(what + "200 bytes with ") && contains(peer) &&
                                           contains(", peer 0, memory of 100 bytes: "));
            CHECK(lengths.facts().bytes == 200);
            CHECK(lengths.info() == 100);
            of.b.abort();
            static_cast<void>(co_await as_result(timeout(of.a.recv(memory), 10s)));
            const error gone = co_await failure(attempt(nowhere));
            CHECK_THAT(gone.what(),
                       contains(what + "100 bytes with ") && contains(peer) && contains(", peer 0: "));
            CHECK(gone.facts().bytes == 100);
            CHECK(gone.facts().peer == 0);
        }
        // As a value, and for one that never began.
        endpoint<typename TestType::transport_type> nobody;
        const auto none = co_await as_result(nobody.rdma_get(nowhere, memory));
        CHECK(none.error() == errc::invalid_argument);
        CHECK(none.facts().bytes == 100);
        CHECK(none.facts().peer == error_facts::no_peer);
        const error unbegun = co_await failure(
            [](auto op) -> task<> { co_await std::move(op); }(nobody.rdma_get(nowhere, memory)));
        CHECK_THAT(unbegun.what(), contains("rdma_get of 100 bytes with its peer: "));
    });
}

}  // namespace test_faults_error_texts
