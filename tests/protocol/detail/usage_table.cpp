#include <rdmacoro/protocol/detail/usage_table.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace test_protocol_detail_usage_table {

using namespace rdmacoro;
using namespace rdmacoro::detail;

namespace {

/// Memory at a made-up address: the table never reads it.
std::span<const std::byte> at(std::uintptr_t address, std::size_t bytes) {
    return {reinterpret_cast<const std::byte*>(address), bytes};
}
std::span<const std::byte> numbered(std::size_t n, std::size_t bytes = 1000) {
    return at(0x7000'0000'0000 + n * 4096, bytes);
}

/// Uses of memory that is never used again.
class one_shots {
public:
    void use(usage_table& table, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) static_cast<void>(table.use(numbered(next_++)));
    }

private:
    std::size_t next_ = 1'000'000;
};

}  // namespace

TEST_CASE("uses are counted by address and class of length") {
    usage_table table;
    REQUIRE(table.open());
    for (unsigned n = 1; n <= 5; ++n) {
        const usage_table::entry* e = table.use(numbered(1, 600 + n));
        REQUIRE(e != nullptr);
        CHECK(e->uses == n);
    }
    CHECK(table.use(numbered(1, 2000))->uses == 1);
    CHECK(table.use(numbered(2, 600))->uses == 1);
    CHECK(table.use(numbered(1, 600))->uses == 6);
    usage_table::entry* e = table.use(numbered(1, 600));
    usage_table::take_back(*e);
    CHECK(table.use(numbered(1, 600))->uses == 7);
    CHECK(table.statistics().lookups == 10);
}

TEST_CASE("counts age: what is not used any more goes cold") {
    usage_table table;
    REQUIRE(table.open());
    for (unsigned n = 0; n < 40; ++n) static_cast<void>(table.use(numbered(1)));
    CHECK(table.use(numbered(1))->uses == 41);
    constexpr std::size_t round = usage_table::sets * usage_table::uses_per_ageing;
    for (std::size_t n = 0; n < round; ++n) static_cast<void>(table.use(numbered(2)));
    CHECK(table.use(numbered(1))->uses == 41 / 2 + 1);
    for (std::size_t n = 0; n < 10 * round; ++n) static_cast<void>(table.use(numbered(2)));
    CHECK(table.use(numbered(1))->uses == 1);
}

TEST_CASE("ageing bounds the count of what is sent all the time") {
    usage_table table;
    REQUIRE(table.open());
    std::uint32_t most = 0;
    for (std::size_t n = 0; n < 200'000; ++n)
        most = std::max<std::uint32_t>(most, table.use(numbered(1))->uses);
    constexpr std::size_t round = usage_table::sets * usage_table::uses_per_ageing;
    CHECK(most > round);
    CHECK(most <= 2 * round);
}

TEST_CASE("memory that is used once does not drive out memory that is used often") {
    usage_table table;
    REQUIRE(table.open());
    for (unsigned n = 0; n < 50; ++n) {
        for (std::size_t i = 0; i < 100; ++i) static_cast<void>(table.use(numbered(i)));
    }
    one_shots crowd;
    crowd.use(table, 3000);
    std::size_t kept = 0;
    for (std::size_t i = 0; i < 100; ++i) {
        const usage_table::entry* e = table.use(numbered(i));
        if (e != nullptr && e->uses > 20) ++kept;
    }
    CHECK(kept >= 95);
    CHECK(table.statistics().replaced > 0);
}

TEST_CASE("cold entries make room, ready ones, too") {
    usage_table table;
    REQUIRE(table.open());
    for (std::size_t i = 0; i < 100; ++i) table.make_ready(*table.use(numbered(i)), 1000);
    CHECK(table.ready_entries() == 100);
    one_shots crowd;
    crowd.use(table, usage_table::window - 200);
    CHECK(table.ready_entries() < 100);
    std::size_t still_ready = 0;
    for (std::size_t i = 0; i < 100; ++i) {
        const usage_table::entry* e = table.use(numbered(i));
        if (e != nullptr && e->ready()) ++still_ready;
    }
    CHECK(still_ready <= table.ready_entries());
}

TEST_CASE("memory that is not what it was starts anew") {
    usage_table table;
    REQUIRE(table.open());
    for (unsigned n = 0; n < 20; ++n) static_cast<void>(table.use(numbered(1)));
    usage_table::entry* e = table.use(numbered(1));
    table.make_ready(*e, 1000);
    table.make_ready(*e, 1001);
    CHECK(table.ready_entries() == 1);
    table.start_anew(*e);
    CHECK(table.ready_entries() == 0);
    CHECK_FALSE(e->ready());
    CHECK(table.use(numbered(1))->uses == 2);
}

TEST_CASE("a crowd of buffers of which little is reused stops adding, for longer each time") {
    usage_table table;
    REQUIRE(table.open());
    one_shots crowd;
    crowd.use(table, 2 * usage_table::window);
    CHECK(table.statistics().stopped == 1);
    std::vector<std::uint64_t> paused;  // lookups that were left out, from one stop to the next
    std::uint64_t before = table.statistics().lookups;
    std::uint64_t uses_before = 2 * usage_table::window;
    std::uint64_t uses = uses_before;
    for (std::uint64_t stops = 2; stops <= 5; ++stops) {
        while (table.statistics().stopped < stops) {
            crowd.use(table, 1);
            ++uses;
        }
        paused.push_back((uses - uses_before) - (table.statistics().lookups - before));
        before = table.statistics().lookups;
        uses_before = uses;
    }
    for (std::size_t i = 1; i < paused.size(); ++i) CHECK(paused[i] > paused[i - 1]);
    CHECK(table.statistics().resumed >= 4);
    // A little, with nothing to fight for, and it adds again for good.
    while (!table.adding()) crowd.use(table, 1);
    for (std::size_t n = 0; n < 4 * usage_table::window; ++n) {
        static_cast<void>(table.use(numbered(n % 16)));
    }
    CHECK(table.adding());
    CHECK(table.use(numbered(3))->uses > 100);
}

TEST_CASE("while stopped, ready entries work on and are counted") {
    usage_table table;
    REQUIRE(table.open());
    for (unsigned n = 0; n < 500; ++n) static_cast<void>(table.use(numbered(1)));
    table.make_ready(*table.use(numbered(1)), 1000);
    one_shots crowd;
    while (table.adding()) crowd.use(table, 1);
    usage_table::entry* e = table.use(numbered(1));
    REQUIRE(e != nullptr);
    CHECK(e->ready());
    CHECK(table.use(numbered(2)) == nullptr);
    const std::uint64_t lookups = table.statistics().lookups;
    table.start_anew(*e);
    // None is ready: nothing is looked up any more.
    CHECK(table.use(numbered(1)) == nullptr);
    CHECK(table.statistics().lookups == lookups);
}

}  // namespace test_protocol_detail_usage_table
