#include <rdmacoro/protocol/message_store.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <cstring>
#include <optional>
#include <random>
#include <vector>

using namespace rdmacoro;
using detail::message_store;
using detail::unexpected_message;

namespace {

/// A store as a mailbox holds it.
struct owned_store {
    message_store* store = new message_store;
    owned_store() = default;
    owned_store(const owned_store&) = delete;
    owned_store& operator=(const owned_store&) = delete;
    ~owned_store() {
        if (store != nullptr) store->abandon();
    }
};

void fill(unexpected_message& m, std::size_t bytes, int value) {
    std::memset(m.payload(), value, bytes);
    m.stored = m.bytes = bytes;
}

}  // namespace

TEST_CASE("a message of any size has its payload's room, aligned, apart from all others") {
    owned_store own;
    std::vector<std::pair<unexpected_message*, std::size_t>> made;
    int value = 0;
    for (std::size_t bytes = 0; bytes < 3'000'000; bytes = bytes * 3 / 2 + 1) {
        for (int twice = 0; twice < 2; ++twice) {
            unexpected_message* m = own.store->make(bytes);
            REQUIRE(m != nullptr);
            CHECK(m->block_bytes == detail::storage_bytes(bytes));
            CHECK(reinterpret_cast<std::uintptr_t>(m) % 64 == 0);
            fill(*m, bytes, ++value % 256);
            made.emplace_back(m, bytes);
        }
    }
    CHECK(own.store->live() == made.size());
    value = 0;
    for (const auto& [m, bytes] : made) {
        ++value;
        for (std::size_t i = 0; i < bytes; i += 97) {
            if (m->payload()[i] != static_cast<std::byte>(value % 256)) FAIL("overwritten");
        }
        message_store::release(*m);
    }
    CHECK(own.store->live() == 0);
}

TEST_CASE("released blocks are used again for messages of their class") {
    owned_store own;
    unexpected_message* first = own.store->make(1000);
    message_store::release(*first);
    const std::size_t footprint = own.store->footprint();
    for (int n = 0; n < 10000; ++n)
        message_store::release(*own.store->make(1000 + static_cast<std::size_t>(n % 20)));
    CHECK(own.store->footprint() == footprint);
    if (test::counts_allocations) {
        const std::size_t before = test::allocations();
        for (int n = 0; n < 1000; ++n) message_store::release(*own.store->make(1000));
        CHECK(test::allocations() == before);
    }
}

TEST_CASE("classes that hold nothing give their memory back") {
    owned_store own;
    for (const std::size_t bytes :
         {std::size_t{100}, std::size_t{5000}, std::size_t{300000}, std::size_t{5} << 20}) {
        std::vector<unexpected_message*> made;
        for (std::size_t total = 0; total < (std::size_t{20} << 20); total += bytes)
            made.push_back(own.store->make(bytes));
        CHECK(own.store->footprint() >= (std::size_t{20} << 20));
        for (unexpected_message* m : made) message_store::release(*m);
        CHECK(own.store->footprint() <= 4 * (std::size_t{2} << 20));
    }
}

TEST_CASE("what is kept in full use of a budget takes at most the budget and a slab for each class") {
    // Each message is charged what `message_cost` says; the sum bounds the memory.
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    owned_store own;
    constexpr std::size_t budget = std::size_t{8} << 20;
    std::size_t used = 0;
    std::vector<std::pair<unexpected_message*, std::size_t>> kept;
    for (int step = 0; step < 20000; ++step) {
        const std::size_t bytes = random() % (random() % 10 == 0 ? 100000 : 2000);
        const std::size_t cost = detail::message_cost(bytes) * detail::credit_bytes;
        while (used + cost > budget) {
            const std::size_t victim = random() % kept.size();
            message_store::release(*kept[victim].first);
            used -= kept[victim].second;
            kept[victim] = kept.back();
            kept.pop_back();
        }
        kept.emplace_back(own.store->make(bytes), cost);
        used += cost;
    }
    // Slabs of one class are freed together, so a class may hold what it once needed.
    CHECK(own.store->footprint() <= 3 * budget);
    for (const auto& [m, cost] : kept) message_store::release(*m);
    CHECK(own.store->live() == 0);
}

TEST_CASE("a lent message outlives its store's owner") {
    std::optional<lent_buffer> loan;
    {
        owned_store own;
        unexpected_message* m = own.store->make(100);
        fill(*m, 100, 7);
        loan.emplace(message_store::lend(*m));
        message_store::release(*own.store->make(5));
    }
    CHECK(loan->bytes().size() == 100);
    CHECK(loan->bytes()[99] == std::byte{7});
    loan.reset();  // the store goes with it, as leak checkers see
}
