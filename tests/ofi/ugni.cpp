#include <rdmacoro/transport/ugni.hpp>

#include <rdmacoro/messaging/messaging.hpp>

#include "ofi/pair.hpp"

#include "support/pattern.hpp"

// On the provider gni, real or the stand-in that FI_PROVIDER_PATH names.

namespace test_ofi_ugni {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

struct ugni_pair {
    endpoint<ugni> a;
    endpoint<ugni> b;
};

task<ugni_pair> connect_both(ugni::domain& client, ugni::domain& server) {
    auto listening = co_await listen<ugni>(server, "127.0.0.1:0");
    auto accepting = start(listening.accept());
    endpoint<ugni> a = co_await connect<ugni>(client, listening.address());
    endpoint<ugni> b = co_await accepting;
    co_return ugni_pair{std::move(a), std::move(b)};
}

/// One message, from an address that is `off` past a multiple of 64.
task<> carry(ugni_pair& p, std::size_t bytes, std::size_t off) {
    alignas(64) static std::array<std::byte, (1 << 20) + 128> from;
    alignas(64) static std::array<std::byte, (1 << 20) + 128> into;
    const auto data = pattern(bytes, static_cast<unsigned>(bytes + off));
    std::copy(data.begin(), data.end(), from.begin() + static_cast<std::ptrdiff_t>(off));
    const std::span<std::byte> to = std::span(into).first(bytes);
    auto receiving = start(p.b.recv(to));
    co_await p.a.send(std::span(from).subspan(off, bytes));
    const received got = co_await receiving;
    CHECK(got.bytes == bytes);
    CHECK(std::equal(to.begin(), to.end(), data.begin()));
}

task<> paths(ugni::domain& client, ugni::domain& server) {
    ugni_pair p = co_await connect_both(client, server);
    const metrics& counted = p.a.counts();
    std::uint64_t eager = counted.eager_sent;
    std::uint64_t gets = counted.get_sent;
    std::uint64_t puts = counted.put_sent;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{4}, std::size_t{16384}})
        co_await carry(p, bytes, 0);
    CHECK(counted.eager_sent == eager + 3);
    for (const std::size_t bytes : {std::size_t{16388}, std::size_t{40000}, std::size_t{65536}})
        co_await carry(p, bytes, 0);
    CHECK(counted.get_sent == gets + 3);
    for (const std::size_t bytes : {std::size_t{65540}, std::size_t{1} << 20}) co_await carry(p, bytes, 0);
    CHECK(counted.put_sent == puts + 2);

    // What gets do not align to goes by puts.
    puts = counted.put_sent;
    gets = counted.get_sent;
    const std::uint64_t got_before = client.counts().gets + server.counts().gets;
    co_await carry(p, 40000, 1);
    co_await carry(p, 40001, 0);
    co_await carry(p, 40002, 2);
    CHECK(client.counts().gets + server.counts().gets == got_before);
    CHECK(client.counts().bounced + server.counts().bounced == 0);
    CHECK(counted.put_sent + counted.get_sent == puts + gets + 3);
    co_await p.a.close();
}

}  // namespace

TEST_CASE("messages over ugni go eagerly, are got or are put, by their length and alignment") {
    scheduler on{impatient{}};
    ugni::domain client(on);
    ugni::domain server(on);
    on.run(paths(client, server));
}

TEST_CASE("a user's get is of any bytes: unaligned ends go through a slot, the aligned middle does not") {
    ofi_options o;
    o.provider = "gni";
    ofi_world w(o);
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    alignas(64) static std::array<std::byte, 100000> there;
    alignas(64) static std::array<std::byte, 100000> here;
    const auto data = pattern(there.size());
    std::copy(data.begin(), data.end(), there.begin());
    const region open = w.server.register_memory(there, access_rights::remote_read);
    struct one {
        std::size_t from;
        std::size_t into;
        std::size_t bytes;
        std::uint64_t bounced;  // pieces
    };
    const std::size_t piece = provider::gni.slot_bytes - 8;
    const one all[] = {{0, 0, 40000, 0},     {1, 1, 40000, 2},         {1, 1, 40003, 1},
                       {3, 3, 1, 1},         {0, 0, 40001, 1},         {0, 2, 8, 1},
                       {2, 0, 3 * piece, 3}, {7, 5, 3 * piece + 1, 4}, {99999, 63, 1, 1}};
    for (const one& n : all) {
        CAPTURE(n.from, n.into, n.bytes);
        here.fill(std::byte{0x5a});
        const std::uint64_t before = a.link->counts().bounced;
        recording_completion got;
        REQUIRE(a.link->get(open.remote().part(n.from, n.bytes), std::span(here).subspan(n.into, n.bytes),
                            got) == post_result::posted);
        w.until([&] { return got.calls != 0; });
        CHECK_FALSE(got.outcome);
        const auto begin = static_cast<std::ptrdiff_t>(n.into);
        const auto end = static_cast<std::ptrdiff_t>(n.into + n.bytes);
        CHECK(std::equal(here.begin() + begin, here.begin() + end,
                         data.begin() + static_cast<std::ptrdiff_t>(n.from)));
        CHECK(std::all_of(here.begin(), here.begin() + begin,
                          [](std::byte x) { return x == std::byte{0x5a}; }));
        CHECK(std::all_of(here.begin() + end, here.end(), [](std::byte x) { return x == std::byte{0x5a}; }));
        CHECK(a.link->counts().bounced - before == n.bounced);
    }
}

TEST_CASE("atomics over ugni fetch the value before the operation") {
    ofi_options o;
    o.provider = "gni";
    ofi_world w(o);
    ofi_end a;
    ofi_end b;
    w.link(a, b);
    REQUIRE(a.link->capabilities().atomics);
    alignas(8) std::uint64_t there = 40;
    const region open =
        w.server.register_memory(std::as_writable_bytes(std::span(&there, 1)), access_rights::all);
    std::uint64_t before = 0;
    recording_completion over;
    REQUIRE(a.link->fetch_add(open.remote(), 2, before, over) == post_result::posted);
    w.until([&] { return over.calls == 1; });
    CHECK_FALSE(over.outcome);
    CHECK(before == 40);
    CHECK(there == 42);
    REQUIRE(a.link->compare_swap(open.remote(), 42, 7, before, over) == post_result::posted);
    w.until([&] { return over.calls == 2; });
    CHECK(before == 42);
    CHECK(there == 7);
    REQUIRE(a.link->compare_swap(open.remote(), 42, 9, before, over) == post_result::posted);
    w.until([&] { return over.calls == 3; });
    CHECK(before == 7);
    CHECK(there == 7);
    REQUIRE(a.link->fetch_add(open.remote().part(0, 4), 2, before, over) == post_result::posted);
    w.until([&] { return over.calls == 4; });
    CHECK(over.outcome == errc::invalid_argument);
}

}  // namespace test_ofi_ugni
