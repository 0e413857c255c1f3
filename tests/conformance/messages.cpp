#include "conformance.hpp"

#include <array>

namespace test_conformance_messages {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

// ---- order and sizes

task<> keeps_order(two_domains& w) {
    auto p = co_await w.connected();
    constexpr std::uint64_t messages = 5000;
    auto sender = [](peer& from) -> task<> {
        for (std::uint64_t n = 0; n < messages; ++n) co_await from.send(bytes_of(n), n % 3);
    };
    task_group group;
    group.spawn(sender, std::ref(p.a));
    std::uint64_t wrong = 0;
    for (std::uint64_t n = 0; n < messages; ++n) {
        std::uint64_t value = 0;
        const received got = co_await p.b.recv(room_for(value));
        if (value != n || got.bytes != 8 || got.tag != n % 3) ++wrong;
    }
    CHECK(wrong == 0);
    co_await group.join();
}
CONFORMANCE_CASE("messages arrive in the order sent", every_transport) { conform(over, keeps_order); }

task<> keeps_order_of_sizes(two_domains& w) {
    auto p = co_await w.connected();
    // Sizes on both sides of every limit, so that messages overtake each other if anything lets them.
    const std::vector<std::size_t> sizes{9, 200000, 0,    5000,  48,    49,   1 << 20,
                                         1, 4096,   4097, 32768, 32769, 1008, 1009};
    auto sender = [](peer& from, const std::vector<std::size_t>& all) -> task<> {
        for (std::size_t n = 0; n < all.size(); ++n) {
            const auto data = pattern(all[n], n);
            co_await from.send(data, 5);
        }
    };
    task_group group;
    group.spawn(sender, std::ref(p.a), std::cref(sizes));
    std::vector<std::byte> into(1 << 20);
    for (std::size_t n = 0; n < sizes.size(); ++n) {
        const received got = co_await p.b.recv(into, 5);
        CHECK(got.bytes == sizes[n]);
        CHECK(is_pattern(std::span(into).first(got.bytes), n));
    }
    co_await group.join();
}
CONFORMANCE_CASE("messages of different sizes with one tag do not overtake each other", every_transport) {
    conform(over, keeps_order_of_sizes);
}

task<> exchange(peer& from, peer& to, std::size_t bytes, bool expected) {
    const auto data = pattern(bytes, bytes);
    std::vector<std::byte> into(bytes + 1, std::byte{0xee});
    received got;
    if (expected) {
        auto receiving = start(to.recv(into, 3));
        co_await from.send(data, 3);
        got = co_await receiving;
    } else {
        auto sending = start(from.send(data, 3));
        const received seen = co_await to.probe(3);
        CHECK(seen.bytes == bytes);
        got = co_await to.recv(into, 3);
        co_await sending;
    }
    CHECK(got.bytes == bytes);
    CHECK(got.tag == 3);
    CHECK(is_pattern(std::span(into).first(bytes), bytes));
    CHECK(into[bytes] == std::byte{0xee});
}

task<> carries_all_sizes(two_domains& w) {
    auto p = co_await w.connected();
    const capabilities& link = p.a.link_capabilities();
    std::vector<std::size_t> sizes{0, 1, 1 << 20};
    const std::size_t quarter = mailbox_options{}.unexpected_bytes / 4;
    for (const std::size_t limit :
         {link.inline_bytes, link.eager_bytes, link.segment_bytes, link.max_message, quarter}) {
        if (limit == 0) continue;
        for (const std::size_t near : {limit - 1, limit, limit + 1}) sizes.push_back(near);
    }
    for (const std::size_t bytes : sizes) {
        for (const bool expected : {false, true}) {
            co_await exchange(p.a, p.b, bytes, expected);
            co_await exchange(p.b, p.a, bytes, expected);
        }
    }
}
CONFORMANCE_CASE("messages of all sizes arrive whole, expected or not", every_transport) {
    conform(over, carries_all_sizes);
}

task<> carries_huge(two_domains& w) {
    auto p = co_await w.connected();
    const std::size_t bytes = (std::size_t{64} << 20) + 3;
    const std::vector<std::byte> data = pattern(bytes, 1);
    std::vector<std::byte> into(bytes);
    auto receiving = start(p.b.recv(into));
    co_await p.a.send(data);
    const received got = co_await receiving;
    CHECK(got.bytes == bytes);
    CHECK(same_bytes(into, data));
}
CONFORMANCE_CASE("a message of 64 MiB and 3 bytes arrives whole", every_real_transport) {
    conform(over, carries_huge);
}

// ---- pieces

task<> gathers_and_scatters(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes : {std::size_t{40}, std::size_t{3000}, std::size_t{200000}}) {
        const auto data = pattern(bytes, 7);
        // Seven pieces, one of them empty, of different lengths on each side.
        std::vector<std::span<const std::byte>> out;
        std::vector<std::byte> into(bytes);
        std::vector<std::span<std::byte>> in;
        const std::size_t cuts_out[] = {0, 1, 5, 5, bytes / 3, bytes / 2, bytes - 1, bytes};
        const std::size_t cuts_in[] = {0, 2, 3, bytes / 4, bytes / 4 + 1, bytes - 9, bytes};
        for (std::size_t i = 0; i + 1 < std::size(cuts_out); ++i) {
            out.push_back(std::span(data).subspan(cuts_out[i], cuts_out[i + 1] - cuts_out[i]));
        }
        for (std::size_t i = 0; i + 1 < std::size(cuts_in); ++i) {
            in.push_back(std::span(into).subspan(cuts_in[i], cuts_in[i + 1] - cuts_in[i]));
        }
        const const_buffers gathered{std::span<const std::span<const std::byte>>(out)};
        const mutable_buffers scattered{std::span<const std::span<std::byte>>(in)};
        for (const bool expected : {true, false}) {
            std::fill(into.begin(), into.end(), std::byte{0});
            received got;
            if (expected) {
                auto receiving = start(p.b.recv(scattered));
                co_await p.a.send(gathered);
                got = co_await receiving;
            } else {
                auto sending = start(p.a.send(gathered));
                co_await p.b.probe();
                got = co_await p.b.recv(scattered);
                co_await sending;
            }
            CHECK(got.bytes == bytes);
            CHECK(same_bytes(into, data));
        }
    }
}
CONFORMANCE_CASE("gathered messages are received into scattered memory", every_transport) {
    conform(over, gathers_and_scatters);
}

task<> sends_columns(two_domains& w) {
    auto p = co_await w.connected();
    // Rows, so that a column of 8-byte elements is short, longer than any eager limit, and longer than a piece.
    const auto many = static_cast<std::size_t>(20000 / w.is().slowness);
    for (const std::size_t rows : {std::size_t{2}, std::size_t{5}, std::size_t{300}, many}) {
        constexpr std::size_t columns = 3;
        std::vector<std::uint64_t> matrix(rows * columns);
        for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = i * 0x9e3779b97f4a7c15;
        for (const bool expected : {true, false}) {
            // A column becomes a row, and that row a column of another matrix.
            std::vector<std::uint64_t> row(rows);
            std::vector<std::uint64_t> other(rows * columns, 7);
            received there;
            received back;
            if (expected) {
                auto receiving = start(p.b.recv(std::as_writable_bytes(std::span(row)), 1));
                co_await p.a.send(strided(matrix, 1, 1, columns, rows), 1);
                there = co_await receiving;
                auto returning = start(p.a.recv(strided(other, 2, 1, columns, rows), 2));
                co_await p.b.send(std::as_bytes(std::span(row)), 2);
                back = co_await returning;
            } else {
                auto sending = start(p.a.send(strided(matrix, 1, 1, columns, rows), 1));
                co_await p.b.probe(1);
                there = co_await p.b.recv(std::as_writable_bytes(std::span(row)), 1);
                co_await sending;
                auto returning = start(p.b.send(std::as_bytes(std::span(row)), 2));
                co_await p.a.probe(2);
                back = co_await p.a.recv(strided(other, 2, 1, columns, rows), 2);
                co_await returning;
            }
            CHECK(there.bytes == rows * 8);
            CHECK(back.bytes == rows * 8);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < rows; ++i) {
                if (row[i] != matrix[i * columns + 1]) ++wrong;
                if (other[i * columns + 2] != row[i]) ++wrong;
                if (other[i * columns] != 7 || other[i * columns + 1] != 7) ++wrong;
            }
            CHECK(wrong == 0);
        }
    }
}
CONFORMANCE_CASE("a column of a matrix is sent and received where it lies", every_transport) {
    conform(over, sends_columns);
}

// ---- too short

task<> truncates(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{2000}, std::size_t{100000}, std::size_t{3} << 20}) {
        const auto data = pattern(bytes, 1);
        for (const bool expected : {true, false}) {
            std::vector<std::byte> into(bytes - 1);
            std::byte guard[8] = {};
            result<received> got = errc::ok;
            if (expected) {
                auto receiving = start(p.b.recv(into, 1));
                co_await p.a.send(data, 1);
                got = co_await as_result(receiving);
            } else {
                auto sending = start(p.a.send(data, 1));
                co_await p.b.probe(1);
                got = co_await as_result(p.b.recv(into, 1));
                co_await sending;
            }
            CHECK(got.error() == errc::truncated);
            CHECK(got.info() == bytes);
            // The message is consumed and the link goes on.
            co_await p.a.send(std::as_bytes(std::span("ok")), 1);
            const received next = co_await p.b.recv(guard, 1);
            CHECK(next.bytes == 3);
        }
    }
}
CONFORMANCE_CASE("a receive that is too short ends truncated with the true length, and the link goes on",
                 every_transport) {
    conform(over, truncates);
}

task<> throws_truncated(two_domains& w) {
    auto p = co_await w.connected();
    co_await p.a.send(std::as_bytes(std::span("four")));
    std::byte into[2];
    bool thrown = false;
    try {
        co_await p.b.recv(into);
    } catch (const error& ended) {
        thrown = true;
        CHECK(ended.code() == errc::truncated);
        CHECK(ended.info() == 5);
    }
    CHECK(thrown);
}
CONFORMANCE_CASE("truncation is thrown with the true length", every_transport) {
    conform(over, throws_truncated);
}

// ---- both ways at once

task<> both_ways(two_domains& w) {
    auto p = co_await w.connected();
    auto talk = [](peer& self, std::uint64_t seed, std::uint64_t other) -> task<> {
        std::vector<std::byte> into(300000);
        for (std::size_t round = 0; round < 40; ++round) {
            const std::size_t bytes = (round * 7919) % 300000;
            const auto data = pattern(bytes, seed + round);
            auto receiving = start(self.recv(into));
            co_await self.send(data);
            const received got = co_await receiving;
            CHECK(got.bytes == bytes);
            CHECK(is_pattern(std::span(into).first(bytes), other + round));
        }
    };
    task_group group(on_child_error::stop_others);
    group.spawn(talk, std::ref(p.a), 1u, 1000u);
    group.spawn(talk, std::ref(p.b), 1000u, 1u);
    co_await group.join();
}
CONFORMANCE_CASE("both ends send long messages at once without blocking each other", every_transport) {
    conform(over, both_ways);
}

}  // namespace

}  // namespace test_conformance_messages
