// Messages of 64 MiB over the stand-ins: a rendezvous in each direction at a time, by gets and by puts.

#include <rdmacoro/transport/ofi.hpp>

#include <rdmacoro/messaging/messaging.hpp>

#include "ofi/pair.hpp"

#include "support/pattern.hpp"

#include <string>
#include <vector>

namespace test_ofi_long_messages {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

task<> exchange(ofi_any_domain& client, ofi_any_domain& server, bool gets) {
    auto listening = co_await listen<ofi_any>(server, "127.0.0.1:0");
    auto accepting = start(listening.accept());
    endpoint<ofi_any> a = co_await connect<ofi_any>(client, listening.address());
    endpoint<ofi_any> b = co_await accepting;
    const auto from_a = rdmacoro::test::pattern(std::size_t{64} << 20, 1u);
    const auto from_b = rdmacoro::test::pattern(std::size_t{64} << 20, 2u);
    std::vector<std::byte> to_a(from_b.size());
    std::vector<std::byte> to_b(from_a.size());
    auto one = start(b.recv(to_b, 1));
    auto other = start(a.recv(to_a, 2));
    auto sending = start(a.send(from_a, 1));
    co_await b.send(from_b, 2);
    co_await sending;
    const received got_b = co_await one;
    const received got_a = co_await other;
    CHECK(got_b.bytes == from_a.size());
    CHECK(got_a.bytes == from_b.size());
    CHECK(same_bytes(to_b, from_a));
    CHECK(same_bytes(to_a, from_b));
    CHECK((gets ? a.counts().get_sent : a.counts().put_sent) == 1);
    co_await a.close();
}

}  // namespace

TEST_CASE("messages of 64 MiB go whole in both directions at a time, by gets and by puts") {
    const std::string provider = GENERATE(as<std::string>{}, "gni", "cxi", "efa");
    const bool gets = GENERATE(true, false);
    CAPTURE(provider, gets);
    scheduler on{impatient{}};
    ofi_options o = ofi_here(provider);
    o.get_bytes = gets ? static_cast<std::size_t>(-1) : 1;
    ofi_any_domain client(on, o);
    ofi_any_domain server(on, o);
    on.run(exchange(client, server, gets));
}

}  // namespace test_ofi_long_messages
