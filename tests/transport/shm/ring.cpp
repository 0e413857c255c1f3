#include <rdmacoro/transport/shm/ring.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include <sys/stat.h>

namespace test_transport_shm_ring {

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;

// The layout of shared memory is part of the protocol between two processes.
static_assert(most_in_cell == 48 && most_in_ring == 1008 && record_prefix == 16);
static_assert(cells_for(0) == 1 && cells_for(48) == 1 && cells_for(49) == 2 && cells_for(112) == 2 &&
              cells_for(113) == 3);
static_assert(cells_for(most_in_ring) == 16);
static_assert(frame_word::make(3, record_type::message, 48) == 0x03000030);
static_assert(frame_word::make(255, record_type::put_reply, 0xfffff) == 0xff5fffff);
static_assert(frame_word::turn(0x03100005) == 3 && frame_word::length(0x03100005) == 5);
static_assert(frame_word::type(0x03100005) == record_type::block);
static_assert(frame_word::next_turn(1) == 2 && frame_word::next_turn(255) == 1);

namespace {

/// Both ends of a direction, each with a mapping of its own, as two processes have.
struct both_ends {
    unique_fd file;
    segment of_producer;
    segment of_consumer;
    ring_producer out;
    ring_consumer in;

    explicit both_ends(const geometry& made_as = {.cells = 64, .blocks = 4, .block_bytes = 4096})
        : file(segment::create(made_as)) {
        of_producer.map(file.get(), made_as);
        of_consumer.map(file.get(), made_as);
        out.attach(of_producer, 0);
        in.attach(of_consumer, 0);
    }
};

message_header numbered(std::uint64_t n) {
    message_header h{};
    std::memcpy(h.data() + 4, &n, sizeof n);
    return h;
}
std::uint64_t record_number(const message_header& h) {
    std::uint64_t n = 0;
    std::memcpy(&n, h.data() + 4, sizeof n);
    return n;
}

/// Payload that looks like frame words of every turn, so that a cell in the middle of a record is taken for one if it can.
std::vector<std::byte> misleading(std::size_t bytes, std::uint64_t n) {
    std::vector<std::byte> made(bytes);
    for (std::size_t i = 0; i < bytes; ++i) {
        const auto word =
            frame_word::make(static_cast<std::uint32_t>((n + i / 64) % 256), record_type::message, 8);
        made[i] = static_cast<std::byte>(word >> (8 * (i % 4)));
    }
    return made;
}

}  // namespace

TEST_CASE(
    "what its consumer tells of reading reaches the producer's choice, and blocks come whole either way") {
    both_ends ends({.cells = 64, .blocks = 4, .block_bytes = 32768});
    const auto payload = misleading(32768, 1);
    unsigned past = 0;
    constexpr unsigned blocks = write_choice::first_try + 2 * write_choice::tries;
    for (unsigned n = 0; n < blocks; ++n) {
        // Whatever writing takes here: a way of which reading is known beats one of which it is not.
        const std::uint8_t cost = ends.out.writes_past_caches() ? 1 : 0;
        past += ends.out.writes_past_caches() ? 1 : 0;
        REQUIRE(ends.out.put(record_type::message, numbered(n), const_buffers(payload)));
        record r;
        REQUIRE(ends.in.peek(r) == ring_consumer::found::record);
        if (!std::equal(r.payload.begin(), r.payload.end(), payload.begin(), payload.end()))
            FAIL("block " << n);
        ends.in.advance(r, false, cost);
    }
    CHECK(past >= write_choice::tries);
    CHECK(ends.out.writes_past_caches());
    CHECK_FALSE(ends.out.violated());
}

TEST_CASE("an empty ring shows nothing") {
    both_ends ends;
    record r;
    ring_consumer::small m;
    CHECK(ends.in.peek(r) == ring_consumer::found::nothing);
    CHECK(ends.in.nothing_new());
    CHECK_FALSE(ends.in.small_message(m));
    CHECK(ends.out.has_room());
}

TEST_CASE("a short record is these bytes of one cell") {
    both_ends ends;
    const std::byte payload[] = {std::byte{0xaa}, std::byte{0xbb}};
    message_header header{};
    for (std::size_t i = 0; i < header.size(); ++i) header[i] = static_cast<std::byte>(i + 1);
    REQUIRE(ends.out.put(record_type::message, header, const_buffers(payload)));
    const std::byte* cell = ends.of_consumer.ring(0);
    const unsigned golden[] = {0x02, 0x00, 0x00, 0x01, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xaa, 0xbb};
    for (std::size_t i = 0; i < std::size(golden); ++i) CHECK(cell[i] == static_cast<std::byte>(golden[i]));
}

TEST_CASE(
    "records of random sizes over many laps agree with a queue, also when their payload looks like records") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    for (const std::uint32_t cells : {64u, 128u, 1024u}) {
        both_ends ends({.cells = cells, .blocks = 6, .block_bytes = 8192});
        struct expected {
            std::uint64_t number;
            record_type type;
            std::size_t bytes;
        };
        std::deque<expected> model;
        std::vector<std::uint32_t> kept;
        std::uint64_t next = 0;
        std::uint64_t refused = 0;
        // Enough for the turn counter to go around: 255 laps and more.
        const std::uint64_t records = cells * 80;
        while (next < records || !model.empty()) {
            const bool write = next < records && random() % 2 == 0;
            if (random() % 32 == 0) static_cast<void>(ends.out.return_memory());
            if (write) {
                const auto kind = static_cast<unsigned>(random() % 10);
                const std::size_t bytes = kind < 5   ? random() % (most_in_cell + 1)
                                          : kind < 9 ? random() % (most_in_ring + 1)
                                                     : random() % 8193;
                const auto payload = misleading(bytes, next);
                const auto type = random() % 8 == 0 ? record_type::get_reply : record_type::message;
                // Sometimes gathered from three pieces.
                const std::size_t cut = bytes / 3;
                const std::span<const std::byte> pieces[] = {std::span(payload).first(cut),
                                                             std::span(payload).subspan(cut, cut),
                                                             std::span(payload).subspan(2 * cut)};
                const const_buffers buffers =
                    random() % 3 == 0 ? const_buffers(std::span<const std::span<const std::byte>>(pieces))
                                      : const_buffers(payload);
                if (ends.out.put(type, numbered(next), buffers)) {
                    model.push_back({next, type, bytes});
                    ++next;
                } else {
                    ++refused;
                    CHECK_FALSE(ends.out.violated());
                    REQUIRE((!model.empty() || !kept.empty()));  // an empty ring has room
                }
            } else {
                ring_consumer::small small;
                if (!model.empty() && random() % 2 == 0 && ends.in.small_message(small)) {
                    REQUIRE(record_number(*small.header) == model.front().number);
                    REQUIRE(model.front().type == record_type::message);
                    const auto payload = misleading(model.front().bytes, model.front().number);
                    REQUIRE(std::equal(small.payload.begin(), small.payload.end(), payload.begin(),
                                       payload.end()));
                    ends.in.advance_small();
                    model.pop_front();
                } else {
                    record r;
                    const auto found = ends.in.peek(r);
                    if (model.empty()) {
                        REQUIRE(found == ring_consumer::found::nothing);
                        REQUIRE(ends.in.nothing_new());
                    } else {
                        REQUIRE(found == ring_consumer::found::record);
                        REQUIRE(r.type == model.front().type);
                        REQUIRE(record_number(*r.header) == model.front().number);
                        const auto payload = misleading(model.front().bytes, model.front().number);
                        REQUIRE(
                            std::equal(r.payload.begin(), r.payload.end(), payload.begin(), payload.end()));
                        const bool keep = r.block >= 0 && ends.in.may_keep() && random() % 2 == 0;
                        if (r.block >= 0 && !keep)
                            ends.in.unshare_block(static_cast<std::uint32_t>(r.block), r.bytes_to_unshare());
                        ends.in.advance(r, keep);
                        if (keep) kept.push_back(static_cast<std::uint32_t>(r.block));
                        model.pop_front();
                    }
                }
                if (!kept.empty() && random() % 4 == 0) {
                    const std::size_t which = random() % kept.size();
                    ends.in.free_block(kept[which]);
                    kept[which] = kept.back();
                    kept.pop_back();
                }
            }
        }
        CHECK(refused > 0);
        CHECK_FALSE(ends.out.violated());
    }
}

TEST_CASE("a consumer has written each line that it gives back except of blocks that were written past the "
          "caches") {
    both_ends ends;
    const auto first_word = [](const std::byte* line) {
        std::uint32_t word = 0;
        std::memcpy(&word, line, sizeof word);
        return word;
    };
    const std::vector<std::byte> payload(3000, std::byte{0x5a});
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{900}, payload.size()}) {
        const std::byte* const cell = ends.of_consumer.ring(0) + ends.in.position() * cell_bytes;
        REQUIRE(ends.out.put(record_type::message, numbered(bytes),
                             const_buffers(std::span<const std::byte>(payload.data(), bytes))));
        REQUIRE(first_word(cell) != 0);
        std::uint32_t cells = 1;
        if (ring_consumer::small m; ends.in.small_message(m)) {
            ends.in.advance_small();
        } else {
            record r;
            REQUIRE(ends.in.peek(r) == ring_consumer::found::record);
            cells = r.cells;
            if (r.block >= 0) {
                CHECK(r.bytes_to_unshare() == bytes);
                ends.in.unshare_block(static_cast<std::uint32_t>(r.block), r.bytes_to_unshare());
                for (std::size_t at = 0; at < bytes; at += cell_bytes)
                    CHECK(first_word(r.payload.data() + at) == 0);
                r.in_caches = false;
                CHECK(r.bytes_to_unshare() == 0);
            }
            ends.in.advance(r, false);
        }
        for (std::uint32_t n = 0; n < cells; ++n) CHECK(first_word(cell + std::size_t{n} * cell_bytes) == 0);
    }
    CHECK_FALSE(ends.out.violated());
}

TEST_CASE("lines are taken further ahead once a lap was written and little read") {
    both_ends ends;
    ring_producer out;
    ring_producer back;
    ring_consumer beside;
    out.attach(ends.of_producer, 0, &beside);
    back.attach(ends.of_consumer, 1);
    beside.attach(ends.of_producer, 1);
    const auto lap = [&](unsigned answered_each) {
        for (unsigned n = 0; n < 64; ++n) {
            REQUIRE(out.put(record_type::message, numbered(n), {}));
            ring_consumer::small m;
            REQUIRE(ends.in.small_message(m));
            ends.in.advance_small();
            if (n % answered_each != 0) continue;
            REQUIRE(back.put(record_type::message, numbered(n), {}));
            REQUIRE(beside.small_message(m));
            beside.advance_small();
        }
        return out.cells_ahead();
    };
    const std::uint32_t at_first = out.cells_ahead();
    CHECK(lap(2) == at_first);
    const std::uint32_t one_way = lap(16);
    CHECK(one_way > at_first);
    CHECK(lap(16) == one_way);
    CHECK(lap(1) == at_first);
}

TEST_CASE("a full ring refuses, keeps what it has, and goes on where the consumer frees cells") {
    both_ends ends;
    std::uint64_t put = 0;
    while (ends.out.put(record_type::message, numbered(put), {})) ++put;
    CHECK(put >= 62);
    CHECK(put < 64);
    CHECK_FALSE(ends.out.has_room());
    for (std::uint64_t n = 0; n < put; ++n) {
        record r;
        REQUIRE(ends.in.peek(r) == ring_consumer::found::record);
        CHECK(record_number(*r.header) == n);
        ends.in.advance(r, false);
    }
    CHECK(ends.out.has_room());
    CHECK(ends.out.put(record_type::message, numbered(0), {}));
}

TEST_CASE("a producer knows of records that were surely not read") {
    both_ends ends;  // 64 cells, 4 blocks
    record r;
    const std::vector<std::byte> in_block(most_in_ring + 1);
    const auto put = [&](std::span<const std::byte> bytes) {
        CHECK(ends.out.put(record_type::message, numbered(0), const_buffers(bytes)));
    };
    const auto read = [&] {
        REQUIRE(ends.in.peek(r) == ring_consumer::found::record);
        ends.in.advance(r, false);
    };
    CHECK_FALSE(ends.out.unread());
    for (int n = 0; n < 9; ++n) put({});
    CHECK(ends.out.unread());
    for (int n = 0; n < 9; ++n) read();
    CHECK_FALSE(ends.out.unread());
    for (int n = 0; n < 3; ++n) put(in_block);
    CHECK(ends.out.unread());
    for (int n = 0; n < 3; ++n) read();
    CHECK_FALSE(ends.out.unread());
    // One that has stopped to poll has given back all that it read.
    put({});
    read();
    ends.in.want_notice(1);
    CHECK_FALSE(ends.out.unread());
    put({});
    CHECK(ends.out.unread());
    ends.in.want_notice(0);
    CHECK_FALSE(ends.out.unread());
}

TEST_CASE("blocks that are kept are not written again until they are given back") {
    both_ends ends;
    const std::vector<std::byte> payload(4096, std::byte{1});
    std::vector<record> kept;
    while (ends.in.may_keep()) {
        REQUIRE(ends.out.put(record_type::message, {}, const_buffers(payload)));
        record r;
        REQUIRE(ends.in.peek(r) == ring_consumer::found::record);
        REQUIRE(r.block >= 0);
        ends.in.advance(r, true);
        kept.push_back(r);
    }
    CHECK(kept.size() == 2);  // half of four
    const std::vector<std::byte> other(4096, std::byte{2});
    for (int n = 0; n < 20; ++n) {
        REQUIRE(ends.out.put(record_type::message, {}, const_buffers(other)));
        record r;
        REQUIRE(ends.in.peek(r) == ring_consumer::found::record);
        ends.in.advance(r, false);
    }
    for (const record& r : kept)
        CHECK(std::equal(r.payload.begin(), r.payload.end(), payload.begin(), payload.end()));
    for (const record& r : kept) ends.in.free_block(static_cast<std::uint32_t>(r.block));
    int room = 0;
    while (ends.out.put(record_type::message, {}, const_buffers(other))) ++room;
    CHECK(room == 4);
}

TEST_CASE("a consumer that reads random words never leaves the segment") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    int violations = 0;
    int records = 0;
    const geometry made_as{.cells = 64, .blocks = 4, .block_bytes = 4096};
    for (int round = 0; round < 400; ++round) {
        both_ends ends(made_as);
        auto* words = reinterpret_cast<std::uint32_t*>(ends.of_producer.ring(0));
        const bool likely = round % 2 == 0;  // words that have the right turn more often than not
        for (std::size_t i = 0; i < made_as.ring_bytes() / 4; ++i) {
            words[i] = static_cast<std::uint32_t>(random());
            if (likely && random() % 4 != 0) {
                words[i] = frame_word::make(1 + random() % 2, static_cast<record_type>(random() % 7),
                                            random() % 1100);
            }
        }
        const std::byte* ring = ends.of_consumer.ring(0);
        const std::byte* blocks = ends.of_consumer.blocks(0);
        std::vector<std::uint32_t> kept;
        for (int step = 0; step < 200; ++step) {
            record r;
            const auto found = ends.in.peek(r);
            if (found != ring_consumer::found::record) {
                violations += found == ring_consumer::found::violation;
                break;
            }
            ++records;
            const std::byte* begin = r.payload.data();
            const std::byte* end = begin + r.payload.size();
            if (r.block >= 0) {
                REQUIRE(begin >= blocks);
                REQUIRE(end <= blocks + made_as.block_area_bytes());
            } else {
                REQUIRE(begin >= ring);
                REQUIRE(end <= ring + 2 * made_as.ring_bytes());  // mapped twice
            }
            REQUIRE(r.cells >= 1);
            REQUIRE(r.cells <= 16);
            const bool keep = r.block >= 0 && ends.in.may_keep();
            if (r.block >= 0 && !keep)
                ends.in.unshare_block(static_cast<std::uint32_t>(r.block), r.bytes_to_unshare());
            ends.in.advance(r, keep);
            if (keep) kept.push_back(static_cast<std::uint32_t>(r.block));
        }
        for (const std::uint32_t block : kept) ends.in.free_block(block);
    }
    CHECK(violations > 100);
    CHECK(records > 10);
}

TEST_CASE("a producer that is told nonsense notices") {
    const std::vector<std::byte> large(4096);
    const auto put_until_refused = [&](both_ends& ends) {
        while (ends.out.put(record_type::message, {}, const_buffers(large))) {}
        while (ends.out.put(record_type::message, {}, {})) {}
        static_cast<void>(ends.out.has_room());
    };
    SECTION("more cells given back than were written") {
        both_ends ends;
        put_until_refused(ends);
        CHECK_FALSE(ends.out.violated());
        ends.of_consumer.words(0).cells_freed.store(1000);
        CHECK_FALSE(ends.out.has_room());
        CHECK(ends.out.violated());
    }
    SECTION("cells taken back again") {
        both_ends ends;
        put_until_refused(ends);
        ends.of_consumer.words(0).cells_freed.store(20);
        CHECK(ends.out.has_room() == false);
        ends.of_consumer.words(0).cells_freed.store(10);
        static_cast<void>(ends.out.has_room());
        CHECK(ends.out.violated());
    }
    SECTION("more blocks given back than there are") {
        both_ends ends;
        ends.of_consumer.words(0).blocks_freed.store(5);
        static_cast<void>(ends.out.has_room());
        CHECK(ends.out.violated());
    }
    SECTION("a block given back that was never lent") {
        both_ends ends;
        ends.of_consumer.words(0).freed_blocks[0].store(2);
        ends.of_consumer.words(0).blocks_freed.store(1);
        static_cast<void>(ends.out.has_room());
        CHECK(ends.out.violated());
    }
    SECTION("a block that does not exist") {
        both_ends ends;
        put_until_refused(ends);
        ends.of_consumer.words(0).freed_blocks[0].store(4);
        ends.of_consumer.words(0).blocks_freed.store(1);
        static_cast<void>(ends.out.has_room());
        CHECK(ends.out.violated());
    }
    SECTION("one block given back twice") {
        both_ends ends;
        put_until_refused(ends);
        ends.of_consumer.words(0).freed_blocks[0].store(3);
        ends.of_consumer.words(0).freed_blocks[1].store(3);
        ends.of_consumer.words(0).blocks_freed.store(2);
        static_cast<void>(ends.out.has_room());
        CHECK(ends.out.violated());
    }
}

TEST_CASE("random words of a consumer never make a producer write outside its ring") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    int violated = 0;
    for (int round = 0; round < 300; ++round) {
        both_ends ends;
        direction_words& words = ends.of_consumer.words(0);
        for (int step = 0; step < 100; ++step) {
            if (random() % 4 == 0)
                words.cells_freed.store(random() % 3 == 0 ? static_cast<std::uint32_t>(random())
                                                          : static_cast<std::uint32_t>(random() % 200));
            if (random() % 4 == 0)
                words.blocks_freed.store(random() % 3 == 0 ? static_cast<std::uint32_t>(random())
                                                           : static_cast<std::uint32_t>(random() % 6));
            words.freed_blocks[random() % geometry::most_blocks].store(
                static_cast<std::uint16_t>(random() % 8));
            const std::vector<std::byte> payload(random() % 4097, std::byte{1});
            static_cast<void>(ends.out.put(record_type::message, {}, const_buffers(payload)));
            static_cast<void>(ends.out.has_room());
        }
        violated += ends.out.violated();
        // The words of the other direction, and its ring, are as they were.
        CHECK(ends.of_consumer.words(1).cells_freed.load() == 0);
        const std::byte* other = ends.of_consumer.ring(1);
        CHECK(std::all_of(other, other + 64 * cell_bytes, [](std::byte b) { return b == std::byte{0}; }));
        const std::byte* blocks = ends.of_consumer.blocks(1);
        CHECK(std::all_of(blocks, blocks + 4 * 4096, [](std::byte b) { return b == std::byte{0}; }));
    }
    CHECK(violated > 100);
}

namespace {

/// Memory that the segment takes.
std::size_t pages(const both_ends& of) {
    struct stat facts{};
    REQUIRE(::fstat(of.file.get(), &facts) == 0);
    return static_cast<std::size_t>(facts.st_blocks) * 512 / page_bytes;
}
/// Reads all that there is.
std::uint64_t read_all(both_ends& ends) {
    std::uint64_t read = 0;
    for (record r; ends.in.peek(r) == ring_consumer::found::record; ++read) ends.in.advance(r, false);
    return read;
}

}  // namespace

TEST_CASE("one message is enough for a ring to hold memory, all of which is returned once it was read") {
    both_ends ends({.cells = 2048, .blocks = 8, .block_bytes = 8192});
    static_cast<void>(ends.out.return_memory());  // looks at the words beside the ring
    const std::size_t before = pages(ends);
    CHECK_FALSE(ends.out.holds_memory());
    const std::vector<std::byte> short_one(8, std::byte{1});
    REQUIRE(ends.out.put(record_type::message, {}, const_buffers(short_one)));
    CHECK(ends.out.holds_memory());
    CHECK(pages(ends) > before);
    ends.in.want_notice(1);
    ends.out.announce();
    CHECK(ends.in.announced());
    CHECK(read_all(ends) == 1);
    CHECK_FALSE(ends.in.announced());
    ends.in.want_notice(1);
    CHECK(ends.out.return_memory());
    CHECK(pages(ends) == before);
    // To look whether there is one does not take the memory again.
    CHECK_FALSE(ends.in.announced());
    CHECK(pages(ends) == before);
}

TEST_CASE(
    "a producer that announces records which it did not write has its ring looked at, and nothing else") {
    both_ends ends;
    const std::vector<std::byte> short_one(8, std::byte{1});
    for (const std::uint32_t lie : {1u, 64u, 65u, 0x7fffffffu}) {
        ends.of_producer.words(0).announced.store(ends.in.position() + lie, std::memory_order_release);
        CHECK(ends.in.announced() == (lie <= 64));  // more than the ring has is none
        CHECK(ends.in.nothing_new());
        record none;
        CHECK(ends.in.peek(none) == ring_consumer::found::nothing);
        REQUIRE(ends.out.put(record_type::message, {}, const_buffers(short_one)));
        CHECK(read_all(ends) == 1);
    }
}

TEST_CASE("an announcement of records that were read is none, however many were read since") {
    both_ends ends;
    const std::vector<std::byte> short_one(8, std::byte{1});
    REQUIRE(ends.out.put(record_type::message, {}, const_buffers(short_one)));
    CHECK(read_all(ends) == 1);
    for (const std::uint32_t since : {0u, 1u, 64u, 0x7fffffffu, 0x80000000u, 0x80000001u, 0xffffff00u}) {
        CAPTURE(since);
        ends.of_producer.words(0).announced.store(ends.in.position() - since, std::memory_order_release);
        CHECK_FALSE(ends.in.announced());
    }
}

TEST_CASE("the memory of what the consumer has given back is returned to the system, and of nothing else") {
    both_ends ends({.cells = 2048, .blocks = 8, .block_bytes = 8192});
    static_cast<void>(read_all(ends));
    const std::size_t before = pages(ends);
    CHECK_FALSE(ends.out.holds_memory());
    // A lap and a half, and all blocks.
    const std::vector<std::byte> short_one(8, std::byte{1});
    const std::vector<std::byte> long_one(8192, std::byte{2});
    for (int n = 0; n < 3000; ++n) {
        REQUIRE(ends.out.put(record_type::message, {}, const_buffers(short_one)));
        if (n % 1000 == 999) CHECK(read_all(ends) == 1000);
    }
    for (int n = 0; n < 8; ++n) REQUIRE(ends.out.put(record_type::message, {}, const_buffers(long_one)));
    const std::size_t used = pages(ends);
    CHECK(used >= before + 31 + 16);
    CHECK(ends.out.holds_memory());

    // Blocks with messages, and the eight cells that name them, are kept.
    CHECK(ends.out.may_return());
    CHECK_FALSE(ends.out.return_memory());
    CHECK_FALSE(ends.out.may_return());
    CHECK(pages(ends) >= before + 16);
    CHECK(pages(ends) < used);
    std::size_t whole = 0;
    for (record r; ends.in.peek(r) == ring_consumer::found::record;) {
        CHECK(std::equal(r.payload.begin(), r.payload.end(), long_one.begin(), long_one.end()));
        CHECK_FALSE(ends.out.may_return());  // blocks are returned all at once
        ++whole;
        ends.in.advance(r, false);
    }
    CHECK(whole == 8);
    CHECK(ends.out.may_return());

    // A consumer that still polls owes cells; those of one that wants notice come back whole.
    ends.in.want_notice(1);
    CHECK(ends.out.return_memory());
    CHECK_FALSE(ends.out.holds_memory());
    CHECK(ends.in.nothing_new());
    CHECK(pages(ends) <= before + 2);

    for (int n = 0; n < 5000; ++n) {
        REQUIRE(ends.out.put(record_type::message, numbered(static_cast<std::uint64_t>(n)),
                             const_buffers(n % 7 == 0 ? long_one : short_one)));
        record r;
        REQUIRE(ends.in.peek(r) == ring_consumer::found::record);
        CHECK(record_number(*r.header) == static_cast<std::uint64_t>(n));
        CHECK(r.payload.size() == (n % 7 == 0 ? long_one : short_one).size());
        ends.in.advance(r, false);
    }
}

TEST_CASE(
    "cells that were unread when memory was returned are returned when they have been read and given back") {
    both_ends ends({.cells = 2048, .blocks = 8, .block_bytes = 8192});
    static_cast<void>(ends.out.return_memory());
    const std::size_t before = pages(ends);
    const std::vector<std::byte> half_a_kib(512, std::byte{1});
    const auto put = [&](int count) {
        for (; count > 0; --count) REQUIRE(ends.out.put(record_type::message, {}, const_buffers(half_a_kib)));
    };
    put(18);  // 162 cells, less than an eighth of the ring
    const std::size_t used = pages(ends);
    REQUIRE(used >= before + 3);
    CHECK_FALSE(ends.out.return_memory());
    CHECK(ends.out.holds_memory());
    CHECK(pages(ends) == used);
    CHECK(read_all(ends) == 18);
    CHECK_FALSE(ends.out.return_memory());  // the consumer polls, and has given nothing back yet
    CHECK(ends.out.holds_memory());
    CHECK_FALSE(ends.out.may_return());
    ends.in.give_back();
    CHECK(ends.out.may_return());
    CHECK(ends.out.return_memory());
    CHECK_FALSE(ends.out.holds_memory());
    CHECK(pages(ends) == before);
    CHECK_FALSE(ends.out.may_return());
    put(1);
    CHECK(ends.out.holds_memory());
    CHECK(ends.out.may_return());
    CHECK(read_all(ends) == 1);
}

TEST_CASE(
    "a producer calls the system for the memory of its ring only when the consumer has given back more") {
    both_ends ends({.cells = 2048, .blocks = 8, .block_bytes = 8192});
    const std::vector<std::byte> short_one(8, std::byte{1});
    const auto put = [&](int count) {
        for (; count > 0; --count) REQUIRE(ends.out.put(record_type::message, {}, const_buffers(short_one)));
    };
    put(200);
    for (int n = 0; n < 100; ++n) {
        record r;
        REQUIRE(ends.in.peek(r) == ring_consumer::found::record);
        ends.in.advance(r, false);
    }
    ends.in.give_back();
    CHECK_FALSE(ends.out.return_memory());
    const std::size_t unread = pages(ends);
    // A page of the ring behind all records that the system would have back with the next call.
    auto* const behind =
        reinterpret_cast<const volatile std::byte*>(ends.of_consumer.ring(0)) + 16 * page_bytes;
    CHECK(*behind == std::byte{0});
    REQUIRE(pages(ends) == unread + 1);
    for (int n = 0; n < 3; ++n) CHECK_FALSE(ends.out.return_memory());
    CHECK(pages(ends) == unread + 1);
    CHECK(read_all(ends) == 100);
    ends.in.give_back();
    CHECK(ends.out.return_memory());
    CHECK(pages(ends) < unread);
}

TEST_CASE("a producer and a consumer on two threads lose nothing and keep the order") {
    both_ends ends({.cells = 128, .blocks = 4, .block_bytes = 4096});
    constexpr std::uint64_t count = 100000;
    std::thread producer([&] {
        std::mt19937 random(5);
        for (std::uint64_t n = 0; n < count;) {
            const std::size_t bytes = random() % 50 == 0 ? random() % 4097 : random() % 200;
            const auto payload = misleading(bytes, n);
            if (n % 101 == 0) static_cast<void>(ends.out.return_memory());
            while (!ends.out.put(record_type::message, numbered(n), const_buffers(payload)))
                std::this_thread::yield();
            ++n;
        }
    });
    std::mt19937 random(5);
    std::uint64_t wrong = 0;
    for (std::uint64_t n = 0; n < count; ++n) {
        const std::size_t bytes = random() % 50 == 0 ? random() % 4097 : random() % 200;
        record r;
        auto found = ends.in.peek(r);
        while (found == ring_consumer::found::nothing) {
            std::this_thread::yield();
            found = ends.in.peek(r);
        }
        if (found != ring_consumer::found::record) {
            ++wrong;
            break;
        }
        const auto payload = misleading(bytes, n);
        if (record_number(*r.header) != n ||
            !std::equal(r.payload.begin(), r.payload.end(), payload.begin(), payload.end()))
            ++wrong;
        ends.in.advance(r, false);
    }
    producer.join();
    CHECK(wrong == 0);
}

}  // namespace test_transport_shm_ring
