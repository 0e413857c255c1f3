#include "conformance.hpp"

#include <algorithm>
#include <deque>
#include <random>

namespace test_conformance_matching {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Sends a number with a tag.
task<> say(peer& from, std::uint64_t number, tag_type tag) { co_await from.send(bytes_of(number), tag); }

/// Receives a number and checks that it is `number`.
task<> hears(peer& at, tag_match wanted, std::uint64_t number) {
    std::uint64_t value = 0;
    const received got = co_await at.recv(room_for(value), wanted);
    CHECK(got.bytes == sizeof value);
    CHECK(wanted.accepts(got.tag));
    CHECK(value == number);
}

/// Waits until a message with this tag lies unexpected at `at`.
task<> until_there(peer& at, tag_type tag) { co_await at.probe(tag); }

task<> exact_tags(two_domains& w) {
    auto p = co_await w.connected();
    for (tag_type tag = 1; tag <= 100; ++tag) co_await say(p.a, tag * 10, tag);
    co_await until_there(p.b, 100);
    for (tag_type tag = 100; tag >= 1; --tag) co_await hears(p.b, tag, tag * 10);
    // Tags that differ in the highest bit alone, and the two ends of the range.
    const unsigned bits = w.is().tag_bits;
    const tag_type most = ~tag_type{0} >> (64 - bits);
    const tag_type far[] = {0, most, tag_type{1} << (bits - 1), most >> 1};
    for (const tag_type tag : far) co_await say(p.a, tag ^ 5, tag);
    co_await until_there(p.b, far[3]);
    for (int i = 3; i >= 0; --i) co_await hears(p.b, far[i], (far[i] ^ 5));
}
CONFORMANCE_CASE("an exact tag takes its message from among the others", every_transport) {
    conform(over, exact_tags);
}

task<> masks(two_domains& w) {
    auto p = co_await w.connected();
    co_await say(p.a, 1, 0x11);
    co_await say(p.a, 2, 0x21);
    co_await say(p.a, 3, 0x12);
    co_await say(p.a, 4, 0x22);
    co_await until_there(p.b, 0x22);
    co_await hears(p.b, tag_match(0x02, 0x0f), 3);
    co_await hears(p.b, tag_match(0x20, 0xf0), 2);
    co_await hears(p.b, any_tag, 1);
    co_await hears(p.b, any_tag, 4);
    // Posted before they come.
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    auto first = start(p.b.recv(room_for(low), tag_match(0x05, 0x0f)));
    auto second = start(p.b.recv(room_for(high), tag_match(0x70, 0xf0)));
    co_await say(p.a, 5, 0x73);
    co_await say(p.a, 6, 0x75);
    {
        const auto got = co_await first;
        CHECK(got.tag == 0x75);
    }
    {
        const auto got = co_await second;
        CHECK(got.tag == 0x73);
    }
    CHECK(low == 6);
    CHECK(high == 5);
}
CONFORMANCE_CASE("a mask takes the first message that agrees in its bits", every_transport) {
    conform(over, masks);
}

task<> posted_order(two_domains& w) {
    auto p = co_await w.connected();
    std::uint64_t values[6] = {};
    auto r0 = start(p.b.recv(room_for(values[0]), any_tag));
    auto r1 = start(p.b.recv(room_for(values[1]), 7));
    auto r2 = start(p.b.recv(room_for(values[2]), tag_match(0, 1)));
    auto r3 = start(p.b.recv(room_for(values[3]), 7));
    auto r4 = start(p.b.recv(room_for(values[4]), 8));
    auto r5 = start(p.b.recv(room_for(values[5]), any_tag));
    co_await say(p.a, 1, 8);  // r0: posted first
    co_await say(p.a, 2, 7);  // r1
    co_await say(p.a, 3, 7);  // r3: r2 wants even tags
    co_await say(p.a, 4, 8);  // r2, which is older than r4
    co_await say(p.a, 5, 7);  // r5
    co_await say(p.a, 6, 8);  // r4
    co_await r0;
    co_await r1;
    co_await r2;
    co_await r3;
    co_await r4;
    co_await r5;
    CHECK(values[0] == 1);
    CHECK(values[1] == 2);
    CHECK(values[2] == 4);
    CHECK(values[3] == 3);
    CHECK(values[4] == 6);
    CHECK(values[5] == 5);
}
CONFORMANCE_CASE("of the receives that accept a message the one posted first gets it", every_transport) {
    conform(over, posted_order);
}

task<> agrees_with_a_model(two_domains& w) {
    // Random sends and receives in any order; a list-based model tells which receive each message matches.
    for (const std::uint32_t seed : {1u, 2u, 3u}) {
        CAPTURE(seed);
        auto p = co_await w.connected();
        std::mt19937 random(seed);
        struct model_receive {
            std::size_t index;
            tag_match wanted;
        };
        std::deque<model_receive> posted;
        std::deque<std::pair<std::uint64_t, tag_type>> waiting;
        struct slot {
            std::uint64_t value = 0;
            std::uint64_t expected = 0;
            started<any_operation<received>> op;
            slot(peer& at, tag_match wanted) : op(at.recv(room_for(value), wanted)) {}
        };
        std::deque<slot> slots;
        std::uint64_t number = 0;
        const auto random_match = [&] {
            switch (random() % 4) {
                case 0: return tag_match(any_tag);
                case 1: return tag_match(random() % 4, 3);
                default: return tag_match(random() % 8);
            }
        };
        for (int step = 0; step < 400; ++step) {
            if (random() % 2 == 0) {
                const tag_type tag = random() % 8;
                ++number;
                const auto taker = std::find_if(posted.begin(), posted.end(), [&](const model_receive& r) {
                    return r.wanted.accepts(tag);
                });
                if (taker != posted.end()) {
                    slots[taker->index].expected = number;
                    posted.erase(taker);
                } else {
                    waiting.emplace_back(number, tag);
                }
                co_await p.a.send(bytes_of(number), tag);
            } else {
                const tag_match wanted = random_match();
                slots.emplace_back(p.b, wanted);
                const auto message = std::find_if(waiting.begin(), waiting.end(),
                                                  [&](const auto& m) { return wanted.accepts(m.second); });
                if (message != waiting.end()) {
                    slots.back().expected = message->first;
                    waiting.erase(message);
                } else {
                    posted.push_back({slots.size() - 1, wanted});
                }
            }
        }
        // Each receive that is still posted gets a message.
        while (!posted.empty()) {
            const model_receive r = posted.front();
            posted.pop_front();
            slots[r.index].expected = ++number;
            co_await p.a.send(bytes_of(number), r.wanted.tag);
        }
        std::size_t wrong = 0;
        for (slot& s : slots) {
            co_await s.op;
            if (s.value != s.expected) ++wrong;
        }
        CHECK(wrong == 0);
        for (const auto& [value, tag] : waiting) {
            std::uint64_t got = 0;
            co_await p.b.recv(room_for(got), tag);
            CHECK(got == value);
        }
    }
}
CONFORMANCE_CASE("random sends and receives match as a naive model does", every_transport) {
    conform(over, agrees_with_a_model);
}

// ---- unexpected and posted

task<> unexpected_then_posted(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{4000}, std::size_t{100000}, std::size_t{4} << 20}) {
        const auto data = pattern(bytes, 3);
        std::vector<std::byte> into(bytes);
        auto sending = start(p.a.send(data, 2));
        co_await until_there(p.b, 2);
        const received got = co_await p.b.recv(into, 2);
        CHECK(got.bytes == bytes);
        CHECK(same_bytes(into, data));
        co_await sending;
    }
    CHECK(p.b.counts().unexpected == 4);
}
CONFORMANCE_CASE("a message that came before its receive is kept for it", every_transport) {
    conform(over, unexpected_then_posted);
}

task<> posted_then_arrived(two_domains& w) {
    auto p = co_await w.connected();
    std::uint64_t copies = 0;
    for (const std::size_t bytes :
         {std::size_t{8}, std::size_t{4000}, std::size_t{100000}, std::size_t{4} << 20}) {
        const auto data = pattern(bytes, 3);
        std::vector<std::byte> into(bytes);
        auto receiving = start(p.b.recv(into, 2));
        co_await p.a.send(data, 2);
        co_await receiving;
        CHECK(same_bytes(into, data));
        // At most once: straight into the receiver's memory.
        CHECK(p.b.counts().bytes_copied - copies <= bytes);
        copies = p.b.counts().bytes_copied;
    }
    CHECK(p.b.counts().unexpected == 0);
}
CONFORMANCE_CASE("a message that finds its receive posted is never kept and copied at most once",
                 every_transport) {
    conform(over, posted_then_arrived);
}

// ---- ssend

task<> ssend_waits(two_domains& w) {
    auto p = co_await w.connected();
    for (const std::size_t bytes :
         {std::size_t{0}, std::size_t{8}, std::size_t{4000}, std::size_t{300000}, std::size_t{4} << 20}) {
        CAPTURE(bytes);
        const auto data = pattern(bytes, 4);
        std::vector<std::byte> into(bytes);
        auto sending = start(p.a.ssend(data, 1));
        // A message sent after it can be received before it, while it still waits for its match.
        co_await p.a.send(bytes_of(bytes), 2);
        std::size_t other = 1;
        co_await p.b.recv(room_for(other), 2);
        CHECK(other == bytes);
        CHECK_FALSE(sending.done());
        const received seen = co_await p.b.probe(1);
        CHECK(seen.bytes == bytes);
        CHECK_FALSE(sending.done());
        const received got = co_await p.b.recv(into, 1);
        CHECK(got.bytes == bytes);
        CHECK(same_bytes(into, data));
        co_await sending;

        auto receiving = start(p.b.recv(into, 1));
        co_await p.a.ssend(data, 1);
        {
            const auto matched = co_await receiving;
            CHECK(matched.bytes == bytes);
        }
    }
}
CONFORMANCE_CASE("a synchronous send ends when it is matched and not before", every_transport) {
    conform(over, ssend_waits);
}

task<> ssend_keeps_order(two_domains& w) {
    auto p = co_await w.connected();
    const std::uint64_t numbers[] = {1, 2, 3};
    auto first = start(p.a.ssend(bytes_of(numbers[0]), 9));
    auto second = start(p.a.send(bytes_of(numbers[1]), 9));
    auto third = start(p.a.ssend(bytes_of(numbers[2]), 9));
    co_await hears(p.b, 9, 1);
    co_await hears(p.b, any_tag, 2);
    co_await hears(p.b, 9, 3);
    co_await first;
    co_await second;
    co_await third;
}
CONFORMANCE_CASE("synchronous and plain sends keep one order", every_transport) {
    conform(over, ssend_keeps_order);
}

// ---- probe

task<> probes(two_domains& w) {
    auto p = co_await w.connected();
    auto waiting = start(p.b.probe(tag_match(0x40, 0xf0)));
    auto exact = start(p.b.probe(0x41));
    CHECK_FALSE(waiting.done());
    co_await say(p.a, 1, 0x31);
    co_await say(p.a, 2, 0x41);
    const received seen = co_await waiting;
    CHECK(seen.tag == 0x41);
    CHECK(seen.bytes == 8);
    {
        const auto got = co_await exact;
        CHECK(got.tag == 0x41);
    }
    // The message is still there, for any number of probes and one receive.
    {
        const auto got = co_await p.b.probe(0x41);
        CHECK(got.bytes == 8);
    }
    {
        const auto got = co_await p.b.probe();
        CHECK(got.tag == 0x31);
    }
    co_await hears(p.b, 0x41, 2);
    co_await hears(p.b, any_tag, 1);
    // A probe does not see a message that a posted receive takes.
    std::uint64_t value = 0;
    auto receiving = start(p.b.recv(room_for(value), 5));
    auto blind = start(p.b.probe(5));
    co_await say(p.a, 3, 5);
    co_await receiving;
    CHECK_FALSE(blind.done());
    co_await say(p.a, 4, 5);
    co_await blind;
    co_await hears(p.b, 5, 4);
}
CONFORMANCE_CASE("a probe tells of a message that waits and leaves it where it is", every_transport) {
    conform(over, probes);
}

}  // namespace

}  // namespace test_conformance_matching
