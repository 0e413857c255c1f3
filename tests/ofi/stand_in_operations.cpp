// The stand-ins, part two: order, atomic operations, tags, remote data, cancelling and closing.

#include "support/gni_provider/bare_pair.hpp"

#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

namespace test_ofi_stand_in_operations {

using namespace rdmacoro::test;

namespace {

bool asked_for() { return std::getenv("FI_PROVIDER_PATH") != nullptr; }
const std::string not_asked = "FI_PROVIDER_PATH names no directory with the stand-ins";

/// Sets variables for a domain that is opened next.
class with_order {
public:
    with_order(const char* order, int seed) {
        ::setenv("RDMACORO_STAND_IN_ORDER", order, 1);
        ::setenv("RDMACORO_STAND_IN_SEED", std::to_string(seed).c_str(), 1);
    }
    with_order(const with_order&) = delete;
    with_order& operator=(const with_order&) = delete;
    ~with_order() {
        ::unsetenv("RDMACORO_STAND_IN_ORDER");
        ::unsetenv("RDMACORO_STAND_IN_SEED");
    }
};

/// The contexts of completions, which here are places in an array that begins at `first`.
std::vector<int> order_of(const std::vector<fi_cq_data_entry>& done, const int* first) {
    std::vector<int> order;
    for (const fi_cq_data_entry& each : done)
        order.push_back(static_cast<int>(static_cast<const int*>(each.op_context) - first));
    return order;
}

struct orders {
    std::vector<int> sent;
    std::vector<int> received;
};

/// In which order sixteen sends and their receives complete; every `long_one`-th message is too long to be eager.
orders orders_of(const char* how, int seed, int long_one) {
    const with_order chosen(how, seed);
    bare_pair pair("gni");
    constexpr int count = 16;
    constexpr std::size_t longest = 40'000;
    const std::vector<std::byte> out(longest);
    std::vector<std::vector<std::byte>> in(count, std::vector<std::byte>(longest));
    std::array<int, count> sends{}, receives{};
    for (std::size_t i = 0; i != count; ++i) {
        REQUIRE(fi_recv(pair.there.endpoint.get(), in[i].data(), longest, nullptr, FI_ADDR_UNSPEC,
                        &receives[i]) == 0);
        const bool is_long = static_cast<int>(i) % long_one == long_one - 1;
        REQUIRE(pair.posted([&] {
            return fi_send(pair.here.endpoint.get(), out.data(), is_long ? longest : 200, nullptr,
                           pair.to_there, &sends[i]);
        }) == 0);
    }
    pair.until([&] { return pair.done_here.size() == count && pair.done_there.size() == count; });
    return {order_of(pair.done_here, sends.data()), order_of(pair.done_there, receives.data())};
}

bool is_whole(std::vector<int> order) {
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i != order.size(); ++i)
        if (order[i] != static_cast<int>(i)) return false;
    return true;
}

}  // namespace

TEST_CASE("completions come in any order that the hardware allows, each once") {
    if (!asked_for()) SKIP_TEST(not_asked);
    bool sends_shuffled = false, long_overtaken = false, all_shuffled = false;
    for (int seed = 1; seed != 9; ++seed) {
        const orders eager = orders_of("hardware", seed, 1000);
        CHECK(is_whole(eager.sent));
        CHECK(is_whole(eager.received));
        CHECK(std::is_sorted(eager.received.begin(), eager.received.end()));
        sends_shuffled |= !std::is_sorted(eager.sent.begin(), eager.sent.end());

        const orders mixed = orders_of("hardware", seed, 4);
        CHECK(is_whole(mixed.received));
        long_overtaken |= !std::is_sorted(mixed.received.begin(), mixed.received.end());
        // Those that are eager keep their order among themselves.
        std::vector<int> eager_ones;
        for (const int i : mixed.received)
            if (i % 4 != 3) eager_ones.push_back(i);
        CHECK(std::is_sorted(eager_ones.begin(), eager_ones.end()));

        const orders any = orders_of("any", seed, 1000);
        CHECK(is_whole(any.received));
        all_shuffled |= !std::is_sorted(any.received.begin(), any.received.end());
    }
    CHECK(sends_shuffled);
    CHECK(long_overtaken);
    CHECK(all_shuffled);
    const orders kept = orders_of("kept", 1, 1000);
    CHECK(std::is_sorted(kept.sent.begin(), kept.sent.end()));
    CHECK(std::is_sorted(kept.received.begin(), kept.received.end()));
}

TEST_CASE("a send may overtake a put that was posted before it") {
    if (!asked_for()) SKIP_TEST(not_asked);
    bare_pair pair("gni");
    std::vector<std::byte> remote(64), ones(64, std::byte{1}), in(8);
    const owned<fid_mr> exposed = pair.there.expose(remote);
    bool overtaken = false;
    for (unsigned round = 0; round != 200 && !overtaken; ++round) {
        std::fill(remote.begin(), remote.end(), std::byte{0});
        const std::size_t here = pair.done_here.size(), there = pair.done_there.size();
        REQUIRE(fi_recv(pair.there.endpoint.get(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, nullptr) ==
                0);
        REQUIRE(pair.posted([&] {
            return fi_write(pair.here.endpoint.get(), ones.data(), ones.size(), nullptr, pair.to_there,
                            pair.there.address_of(remote.data(), remote), fi_mr_key(exposed.get()), nullptr);
        }) == 0);
        const auto send = [&] {
            return fi_send(pair.here.endpoint.get(), ones.data(), 8, nullptr, pair.to_there, nullptr);
        };
        REQUIRE((round == 0 ? pair.posted(send) : send()) == 0);  // the first connects
        // Only the other side is polled until the message is there.
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
        while (pair.done_there.size() == there && std::chrono::steady_clock::now() < end)
            pair.poll(pair.there, pair.done_there);
        overtaken = pair.done_there.size() > there && remote.back() == std::byte{0};
        pair.until([&] { return pair.done_here.size() == here + 2 && pair.done_there.size() == there + 1; });
        CHECK(remote == ones);
    }
    CHECK(overtaken);
}

TEST_CASE("atomic operations are those of the hardware") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    for (const std::string name : {"gni", "cxi", "efa"}) {
        CAPTURE(name);
        bare_pair pair(name);
        alignas(8) std::array<std::int64_t, 4> remote{40, 0, 0, 0};
        const std::span<std::byte> memory = std::as_writable_bytes(std::span(remote));
        const owned<fid_mr> exposed = pair.there.expose(memory);
        const std::uint64_t at = pair.there.address_of(memory.data(), memory), key = fi_mr_key(exposed.get());
        fid_ep* const ep = pair.here.endpoint.get();
        std::int64_t two = 2, old = 0, expected = 42, fresh = 7;
        REQUIRE(pair.posted([&] {
            return fi_fetch_atomic(ep, &two, 1, nullptr, &old, nullptr, pair.to_there, at, key, FI_INT64,
                                   FI_SUM, nullptr);
        }) == 0);
        pair.until([&] { return pair.done_here.size() == 1; });
        CHECK(old == 40);
        CHECK(remote[0] == 42);
        REQUIRE(pair.posted([&] {
            return fi_compare_atomic(ep, &fresh, 1, nullptr, &expected, nullptr, &old, nullptr, pair.to_there,
                                     at, key, FI_INT64, FI_CSWAP, nullptr);
        }) == 0);
        pair.until([&] { return pair.done_here.size() == 2; });
        CHECK(old == 42);
        CHECK(remote[0] == 7);
        REQUIRE(pair.posted([&] {
            return fi_inject_atomic(ep, &two, 1, pair.to_there, at, key, FI_INT64, FI_SUM);
        }) == 0);
        pair.until([&] { return remote[0] == 9; });
        CHECK(log.take() == "");

        std::size_t count = 0;
        CHECK(fi_atomicvalid(ep, FI_INT64, FI_SUM, &count) == 0);
        CHECK(count >= 1);
        CHECK(fi_compare_atomicvalid(ep, FI_INT64, FI_CSWAP, &count) == 0);
        const bool aries = name == "gni";
        CHECK(fi_atomicvalid(ep, FI_DOUBLE, FI_SUM, &count) == (aries ? -FI_EOPNOTSUPP : 0));
        CHECK(fi_fetch_atomicvalid(ep, FI_UINT64, FI_MAX, &count) == (aries ? -FI_EOPNOTSUPP : 0));
        CHECK(fi_compare_atomicvalid(ep, FI_INT64, FI_CSWAP_LT, &count) == (aries ? -FI_EOPNOTSUPP : 0));
        if (!aries) continue;
        double half = 0.5;
        CHECK(fi_atomic(ep, &half, 1, nullptr, pair.to_there, at, key, FI_DOUBLE, FI_SUM, nullptr) ==
              -FI_EOPNOTSUPP);
        CHECK(log.take() == "atomic");
        std::array<std::int64_t, 2> both{1, 2};
        CHECK(fi_atomic(ep, both.data(), 2, nullptr, pair.to_there, at, key, FI_INT64, FI_SUM, nullptr) ==
              -FI_EINVAL);
        CHECK(log.take() == "atomic_count");
        CHECK(fi_atomic(ep, both.data(), 1, nullptr, pair.to_there, at + 4, key, FI_INT64, FI_SUM, nullptr) ==
              -FI_EINVAL);
        CHECK(log.take() == "atomic_alignment");
    }
}

TEST_CASE("tagged messages match, and tags are as wide as the hardware's") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    for (const std::string name : {"gni", "cxi", "efa"}) {
        CAPTURE(name);
        bare_pair pair(name);
        fid_ep* const from = pair.here.endpoint.get();
        fid_ep* const to = pair.there.endpoint.get();
        std::array<char, 8> red{}, blue{};
        REQUIRE(fi_trecv(to, red.data(), 8, nullptr, FI_ADDR_UNSPEC, 0x1111, 0, &red) == 0);
        REQUIRE(fi_trecv(to, blue.data(), 8, nullptr, FI_ADDR_UNSPEC, 0x2200, 0xff, &blue) == 0);
        REQUIRE(pair.posted(
                    [&] { return fi_tsend(from, "blue", 5, nullptr, pair.to_there, 0x2222, nullptr); }) == 0);
        REQUIRE(pair.posted([&] { return fi_tinject(from, "red", 4, pair.to_there, 0x1111); }) == 0);
        pair.until([&] { return pair.done_there.size() == 2; });
        CHECK(std::string(red.data()) == "red");
        CHECK(std::string(blue.data()) == "blue");

        const std::uint64_t wide = std::uint64_t{1} << 48;
        const ssize_t result =
            pair.posted([&] { return fi_tsend(from, "wide", 5, nullptr, pair.to_there, wide, nullptr); });
        if (name == "cxi") {
            CHECK(result == -FI_EINVAL);
            CHECK(fi_trecv(to, red.data(), 8, nullptr, FI_ADDR_UNSPEC, wide, 0, nullptr) == -FI_EINVAL);
            CHECK(log.take() == "tag tag");
        } else {
            REQUIRE(result == 0);
            REQUIRE(fi_trecv(to, red.data(), 8, nullptr, FI_ADDR_UNSPEC, wide, 0, nullptr) == 0);
            pair.until([&] { return pair.done_there.size() == 3; });
            CHECK(std::string(red.data()) == "wide");
        }
        if (name == "gni") {
            CHECK(fi_tinjectdata(from, "x", 2, 1, pair.to_there, 3) == -FI_ENOSYS);
            CHECK(log.take() == "tinjectdata");
        }
        CHECK(log.take() == "");
    }
}

TEST_CASE("a tagged message is looked for, claimed, and received") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    bare_pair pair("gni");
    fid_ep* const to = pair.there.endpoint.get();
    fi_context2 mine{};
    fi_msg_tagged look{};
    look.addr = FI_ADDR_UNSPEC;
    look.tag = 5;
    look.context = &mine;
    const auto peek = [&] {
        REQUIRE(fi_trecvmsg(to, &look, FI_PEEK | FI_CLAIM) == 0);
        const std::size_t done = pair.done_there.size(), failed = pair.errors.size();
        pair.until([&] { return pair.done_there.size() > done || pair.errors.size() > failed; });
        return pair.done_there.size() > done;
    };
    REQUIRE(!peek());
    CHECK(pair.errors.back().err == FI_ENOMSG);
    CHECK(pair.errors.back().op_context == &mine);
    REQUIRE(pair.posted([&] {
        return fi_tsend(pair.here.endpoint.get(), "found", 6, nullptr, pair.to_there, 5, nullptr);
    }) == 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    bool found = false;
    while (!found && std::chrono::steady_clock::now() < end) found = peek();
    REQUIRE(found);
    CHECK(pair.done_there.back().op_context == &mine);
    CHECK(pair.done_there.back().len == 6);
    CHECK(!peek());  // it is claimed

    std::array<char, 8> in{};
    const iovec piece{in.data(), in.size()};
    look.msg_iov = &piece;
    look.iov_count = 1;
    const std::size_t done = pair.done_there.size();
    REQUIRE(fi_trecvmsg(to, &look, FI_CLAIM) == 0);
    pair.until([&] { return pair.done_there.size() > done; });
    CHECK(std::string(in.data()) == "found");
    CHECK(log.take() == "");
}

TEST_CASE("remote data is as wide as the hardware's, and is where it has it") {
    if (!asked_for()) SKIP_TEST(not_asked);
    violation_log log;
    for (const std::string name : {"gni", "cxi", "efa"}) {
        CAPTURE(name);
        bare_pair pair(name);
        fid_ep* const from = pair.here.endpoint.get();
        std::vector<std::byte> remote(64), out(64, std::byte{3}), in(64);
        const owned<fid_mr> exposed = pair.there.expose(remote);
        const std::uint64_t at = pair.there.address_of(remote.data(), remote), key = fi_mr_key(exposed.get());
        const std::uint64_t narrow = 0x89abcdef, wide = 0x0123456789abcdef;
        const std::uint64_t data = name == "efa" ? narrow : wide;
        REQUIRE(fi_recv(pair.there.endpoint.get(), in.data(), 64, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        if (name == "efa") {
            CHECK(fi_senddata(from, out.data(), 8, nullptr, wide, pair.to_there, nullptr) == -FI_EINVAL);
            CHECK(log.take() == "cq_data_size");
        }
        REQUIRE(pair.posted([&] {
            return fi_senddata(from, out.data(), 8, nullptr, data, pair.to_there, nullptr);
        }) == 0);
        pair.until([&] { return pair.done_there.size() == 1; });
        CHECK(pair.done_there.back().data == data);

        const ssize_t written = pair.posted([&] {
            return fi_writedata(from, out.data(), 64, nullptr, data, pair.to_there, at, key, nullptr);
        });
        if (name == "cxi") {
            CHECK(written == -FI_ENOSYS);
            CHECK(log.take() == "rma_cq_data");
            continue;
        }
        REQUIRE(written == 0);
        pair.until([&] { return pair.done_there.size() == 2; });
        CHECK(pair.done_there.back().data == data);
        CHECK((pair.done_there.back().flags & FI_REMOTE_CQ_DATA) != 0);
        CHECK(pair.done_there.back().op_context == nullptr);
        CHECK(remote == out);
    }
    CHECK(log.take() == "");
}

TEST_CASE("a receive that is cancelled ends so") {
    if (!asked_for()) SKIP_TEST(not_asked);
    bare_pair pair("gni");
    std::array<std::byte, 16> in{};
    int first = 0, second = 0;
    fid_ep* const to = pair.there.endpoint.get();
    REQUIRE(fi_recv(to, in.data(), 16, nullptr, FI_ADDR_UNSPEC, &first) == 0);
    REQUIRE(fi_recv(to, in.data(), 16, nullptr, FI_ADDR_UNSPEC, &second) == 0);
    REQUIRE(fi_cancel(&to->fid, &first) == 0);
    pair.until([&] { return pair.errors.size() == 1; });
    CHECK(pair.errors.front().op_context == &first);
    CHECK(pair.errors.front().err == FI_ECANCELED);
    CHECK(fi_cancel(&to->fid, &in) == -FI_ENOENT);
    REQUIRE(pair.posted([&] {
        return fi_send(pair.here.endpoint.get(), in.data(), 16, nullptr, pair.to_there, nullptr);
    }) == 0);
    pair.until([&] { return pair.done_there.size() == 1; });
    CHECK(pair.done_there.front().op_context == &second);
}

TEST_CASE("completions come only for what asks for one where that was chosen") {
    if (!asked_for()) SKIP_TEST(not_asked);
    bare_endpoint::choices selective;
    selective.queue_flags = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION;
    bare_pair pair("gni", selective);
    std::array<std::byte, 16> in{};
    int told = 0;
    const iovec piece{in.data(), in.size()};
    const fi_msg message{&piece, nullptr, 1, pair.to_there, &told, 0};
    const fi_msg receive{&piece, nullptr, 1, FI_ADDR_UNSPEC, &told, 0};
    for (int i = 0; i != 3; ++i)
        REQUIRE(fi_recvmsg(pair.there.endpoint.get(), &receive, i == 2 ? FI_COMPLETION : 0) == 0);
    for (int i = 0; i != 3; ++i)
        REQUIRE(pair.posted([&] {
            return fi_sendmsg(pair.here.endpoint.get(), &message, i == 1 ? FI_COMPLETION : 0);
        }) == 0);
    pair.until([&] { return !pair.done_there.empty() && !pair.done_here.empty(); });
    CHECK(pair.done_there.size() == 1);
    CHECK(pair.done_here.size() == 1);
}

TEST_CASE("an endpoint closes with operations under way, and leaves nothing in its queue") {
    if (!asked_for()) SKIP_TEST(not_asked);
    for (int seed = 1; seed != 5; ++seed) {
        const with_order chosen("hardware", seed);
        bare_pair pair("gni");
        std::vector<std::byte> remote(4096), local(4096), in(64);
        const owned<fid_mr> exposed = pair.there.expose(remote);
        // They are connected before: what breaks off a connection that is being made leaves some of it behind.
        REQUIRE(fi_recv(pair.there.endpoint.get(), in.data(), 64, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
        REQUIRE(pair.posted([&] {
            return fi_send(pair.here.endpoint.get(), local.data(), 64, nullptr, pair.to_there, nullptr);
        }) == 0);
        pair.until([&] { return !pair.done_here.empty() && !pair.done_there.empty(); });
        const std::size_t before = pair.done_here.size();
        for (int i = 0; i != 8; ++i) {
            REQUIRE(fi_recv(pair.here.endpoint.get(), in.data(), 64, nullptr, FI_ADDR_UNSPEC, nullptr) == 0);
            REQUIRE(pair.posted([&] {
                return fi_write(pair.here.endpoint.get(), local.data(), 4096, nullptr, pair.to_there,
                                pair.there.address_of(remote.data(), remote), fi_mr_key(exposed.get()),
                                nullptr);
            }) == 0);
        }
        REQUIRE(fi_close(&pair.here.endpoint.release()->fid) == 0);
        for (int i = 0; i != 100; ++i) pair.poll(pair.here, pair.done_here);
        CHECK(pair.done_here.size() - before <= 8);  // only what had completed before
        CHECK(fi_close(&pair.here.queue.release()->fid) == 0);
    }
}

}  // namespace test_ofi_stand_in_operations
