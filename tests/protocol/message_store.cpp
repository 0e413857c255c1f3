#include <rdmacoro/protocol/message_store.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"

#include <cstring>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include <malloc.h>

namespace test_protocol_message_store {

using namespace rdmacoro;
using detail::message_store;
using detail::unexpected_message;

namespace {

/// A store as a mailbox holds it.
struct owned_store {
    message_store* store;
    explicit owned_store(std::size_t most_idle = message_store::usual_idle)
        : store(new message_store(most_idle)) {}
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
            CHECK(reinterpret_cast<std::uintptr_t>(m->payload()) % 16 == 0);
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

TEST_CASE("released blocks that are not used again are given back, whatever their sizes") {
    owned_store own(std::size_t{1} << 20);
    for (const std::size_t bytes :
         {std::size_t{100}, std::size_t{5000}, std::size_t{300000}, std::size_t{5} << 20}) {
        std::vector<unexpected_message*> made;
        for (std::size_t total = 0; total < (std::size_t{20} << 20); total += bytes)
            made.push_back(own.store->make(bytes));
        CHECK(own.store->footprint() >= (std::size_t{20} << 20));
        for (unexpected_message* m : made) message_store::release(*m);
        CHECK(own.store->footprint() <= std::size_t{1} << 20);
    }
}

namespace {

/// Bytes of the heap in use, by the C library's own account; nothing where a sanitizer has a heap of its own.
std::optional<std::size_t> heap_in_use() {
    if (!test::counts_allocations) return {};
    const auto all = ::mallinfo2();
    return all.uordblks + all.hblkhd;
}

/// Messages that are charged to one budget, as a peer's are.
struct charged_messages {
    explicit charged_messages(message_store& in) : store(in) { kept.reserve(1 << 15); }
    ~charged_messages() {
        for (const auto& [m, cost] : kept) message_store::release(*m);
    }
    charged_messages(const charged_messages&) = delete;
    charged_messages& operator=(const charged_messages&) = delete;

    static std::size_t cost_of(std::size_t bytes) {
        return detail::message_cost(bytes) * detail::credit_bytes;
    }
    /// False: the budget does not allow it.
    bool keep(std::size_t bytes) {
        if (used + cost_of(bytes) > budget) return false;
        kept.emplace_back(store.make(bytes), cost_of(bytes));
        used += cost_of(bytes);
        return true;
    }
    void drop(std::size_t which) {
        message_store::release(*kept[which].first);
        used -= kept[which].second;
        kept[which] = kept.back();
        kept.pop_back();
    }

    static constexpr std::size_t budget = std::size_t{4} << 20;
    message_store& store;
    std::size_t used = 0;
    std::vector<std::pair<unexpected_message*, std::size_t>> kept;
};

}  // namespace

TEST_CASE("a message left in each size class does not pin the memory that its class once had") {
    // With slabs of one class each, which are freed together, this took 65 MB.
    owned_store own(charged_messages::budget);
    charged_messages messages(*own.store);
    const std::optional<std::size_t> before = heap_in_use();
    std::size_t classes = 0;
    for (std::size_t bytes = 64; bytes < 100000; bytes += bytes / 4) {
        const std::size_t left = messages.kept.size();
        while (messages.keep(bytes)) {}
        REQUIRE(messages.kept.size() > left + 1);
        while (messages.kept.size() > left + 1) messages.drop(messages.kept.size() - 1);
        REQUIRE(own.store->footprint() <= messages.used + message_store::usual_idle);
        ++classes;
    }
    CHECK(classes > 30);
    CHECK(messages.kept.size() == classes);
    // The account of the store is that of the heap.
    if (before) CHECK(*heap_in_use() - *before <= messages.used + message_store::usual_idle);
}

TEST_CASE("a budget in full use takes no more than the budget, and the limit of idle blocks") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    owned_store own(std::size_t{1} << 20);
    charged_messages messages(*own.store);
    const std::optional<std::size_t> before = heap_in_use();
    for (int step = 0; step < 20000; ++step) {
        const std::size_t bytes = random() % (random() % 10 == 0 ? 100000 : 2000);
        while (!messages.keep(bytes)) messages.drop(random() % messages.kept.size());
        REQUIRE(own.store->footprint() <= messages.used + (std::size_t{1} << 20));
    }
    CHECK(messages.used > messages.budget * 9 / 10);
    if (before) CHECK(*heap_in_use() - *before <= messages.budget + (std::size_t{1} << 20));
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

}  // namespace test_protocol_message_store
