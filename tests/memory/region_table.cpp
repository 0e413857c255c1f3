#include <rdmacoro/memory/region_table.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace test_memory_region_table {

using namespace rdmacoro;
using detail::check_access;
using detail::key_source;
using detail::region_entry;
using detail::region_salt;
using detail::region_table;

TEST_CASE("an access is allowed inside the region and for the rights it carries, and only then") {
    std::vector<region_entry> storage(8);
    region_table table(storage);
    std::vector<std::byte> memory(1000);
    const remote_region r = table.add(memory, access_rights::remote_read);
    CHECK(r.address == reinterpret_cast<std::uint64_t>(memory.data()));
    CHECK(r.length == 1000);
    const auto check = [&](std::uint64_t address, std::uint64_t length,
                           rdmacoro::access_rights wanted = rdmacoro::access_rights::remote_read) {
        return table.check(r.key, address, length, wanted);
    };
    CHECK(check(r.address, 1000) == errc::ok);
    CHECK(check(r.address + 999, 1) == errc::ok);
    CHECK(check(r.address + 1000, 0) == errc::ok);
    CHECK(check(r.address, 0) == errc::ok);
    CHECK(check(r.address, 1001) == errc::out_of_bounds);
    CHECK(check(r.address + 1, 1000) == errc::out_of_bounds);
    CHECK(check(r.address - 1, 1) == errc::out_of_bounds);
    CHECK(check(r.address - 1, 0) == errc::out_of_bounds);
    CHECK(check(r.address + 1001, 0) == errc::out_of_bounds);
    CHECK(check(0, 1) == errc::out_of_bounds);
    CHECK(check(r.address, ~std::uint64_t{0}) == errc::out_of_bounds);
    CHECK(check(~std::uint64_t{0}, 2) == errc::out_of_bounds);
    CHECK(check(r.address + 10, ~std::uint64_t{0} - 5) == errc::out_of_bounds);
    CHECK(check(r.address, 10, access_rights::remote_write) == errc::access_denied);
    CHECK(check(r.address, 10, access_rights::all) == errc::access_denied);
}

TEST_CASE("wrong keys are refused, whatever slot they name") {
    std::vector<region_entry> storage(4);
    region_table table(storage);
    std::vector<std::byte> memory(10);
    const remote_region r = table.add(memory, access_rights::all);
    CHECK(table.check(0, r.address, 1, access_rights::remote_read) == errc::bad_key);
    for (int bit = 0; bit < 64; ++bit) {
        CHECK(table.check(r.key ^ (std::uint64_t{1} << bit), r.address, 1, access_rights::remote_read) ==
              errc::bad_key);
    }
    CHECK(table.check(~std::uint64_t{0}, r.address, 1, access_rights::remote_read) == errc::bad_key);
    CHECK(check_access({}, {}, r.key, r.address, 1, access_rights::remote_read) == errc::bad_key);
}

TEST_CASE("what one table shows of a key is nothing that another table shows, or takes") {
    const region_salt salts[2] = {region_salt::random(), region_salt::random()};
    CHECK((salts[0].low != salts[1].low && salts[0].high != salts[1].high));
    std::vector<region_entry> storage(1);
    region_table table(storage, salts[0]);
    std::vector<std::byte> memory(10);
    const remote_region r = table.add(memory, access_rights::all);
    const auto check = [&](const region_salt& by) {
        return check_access(storage, by, r.key, r.address, 10, access_rights::remote_read);
    };
    CHECK(check(salts[0]) == errc::ok);
    CHECK(check(salts[1]) == errc::bad_key);
    CHECK(check({}) == errc::bad_key);
    CHECK(table.check(r.key, r.address, 10, access_rights::remote_read) == errc::ok);
    CHECK(storage[0].proof.load() == detail::proof_of_key(r.key, salts[0]));
    CHECK(storage[0].proof.load() != detail::proof_of_key(r.key, salts[1]));
}

TEST_CASE("a table shows no key to what reads it, and what it shows opens nothing") {
    // The reference implementation's first test vector.
    CHECK(detail::siphash_of_nothing(0x0706050403020100, 0x0f0e0d0c0b0a0908) == 0x726fdb47dd0e0e31);
    std::vector<region_entry> storage(64);
    region_table table(storage);
    std::vector<std::byte> memory(10);
    std::set<std::uint64_t> shown;
    for (std::size_t n = 0; n < storage.size(); ++n) {
        const remote_region r = table.add(memory, access_rights::all);
        for (const region_entry& entry : storage) {
            for (const std::uint64_t word : {entry.proof.load(), entry.address.load(), entry.length.load()}) {
                CHECK(word >> key_source::slot_bits != r.key >> key_source::slot_bits);
                CHECK(word << key_source::slot_bits >> key_source::slot_bits !=
                      r.key >> key_source::slot_bits);
            }
        }
        const std::uint64_t proof = storage[key_source::slot_of(r.key)].proof.load();
        CHECK(proof != 0);
        CHECK(shown.insert(proof).second);
        CHECK(table.check(proof, r.address, 1, access_rights::remote_read) == errc::bad_key);
        const std::uint64_t guess = proof << key_source::slot_bits | key_source::slot_of(r.key);
        CHECK(table.check(guess, r.address, 1, access_rights::remote_read) == errc::bad_key);
        CHECK(table.check(r.key, r.address, 1, access_rights::remote_read) == errc::ok);
    }
}

TEST_CASE("a removed region's key stays refused when its slot is used again") {
    std::vector<region_entry> storage(1);
    region_table table(storage);
    std::vector<std::byte> memory(10);
    std::set<std::uint64_t> keys;
    for (int n = 0; n < 1000; ++n) {
        const remote_region r = table.add(memory, access_rights::all);
        CHECK(keys.insert(r.key).second);
        CHECK(table.registered() == 1);
        table.remove(r.key);
        CHECK(table.check(r.key, r.address, 1, access_rights::remote_read) == errc::bad_key);
    }
    const remote_region last = table.add(memory, access_rights::all);
    for (const std::uint64_t old : keys)
        CHECK(table.check(old, last.address, 1, access_rights::remote_read) == errc::bad_key);
}

TEST_CASE("a full table says so, and has room again after a removal") {
    std::vector<region_entry> storage(3);
    region_table table(storage);
    std::vector<std::byte> memory(10);
    std::vector<remote_region> all;
    for (int n = 0; n < 3; ++n) all.push_back(table.add(memory, access_rights::all));
    CHECK_THROWS_AS(table.add(memory, access_rights::all), error);
    table.remove(all[1].key);
    all[1] = table.add(memory, access_rights::all);
    CHECK(table.registered() == 3);
    for (const remote_region& r : all)
        CHECK(table.check(r.key, r.address, 10, access_rights::all) == errc::ok);
}

TEST_CASE("random registrations agree with a map") {
    const std::uint32_t seed = rdmacoro::test::seed() + 1;
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::vector<region_entry> storage(40);
    region_table table(storage);
    std::vector<std::byte> memory(4096);
    std::map<std::uint64_t, remote_region> model;
    std::vector<remote_region> removed;
    for (int step = 0; step < 5000; ++step) {
        if (model.size() < 40 && random() % 2 == 0) {
            const std::size_t offset = random() % 4096;
            const auto part = std::span(memory).subspan(offset, random() % (4096 - offset + 1));
            const remote_region r = table.add(part, static_cast<rdmacoro::access_rights>(random() % 4));
            CHECK(model.emplace(r.key, r).second);
        } else if (!model.empty()) {
            auto victim = std::next(model.begin(), static_cast<std::ptrdiff_t>(random() % model.size()));
            table.remove(victim->first);
            removed.push_back(victim->second);
            model.erase(victim);
        }
        CHECK(table.registered() == model.size());
        if (!model.empty()) {
            const remote_region& r =
                std::next(model.begin(), static_cast<std::ptrdiff_t>(random() % model.size()))->second;
            const auto wanted = static_cast<rdmacoro::access_rights>(1 + random() % 3);
            CHECK((table.check(r.key, r.address, r.length, wanted) == errc::ok) == allows(r.rights, wanted));
        }
        if (!removed.empty()) {
            const remote_region& r = removed[random() % removed.size()];
            CHECK(table.check(r.key, r.address, 0, access_rights::none) == errc::bad_key);
        }
    }
}

TEST_CASE("keys are not zero and name their slot") {
    key_source keys;
    std::set<std::uint64_t> seen;
    for (std::size_t n = 0; n < 2000; ++n) {
        const std::uint64_t key = keys.next(n % 7);
        CHECK((key >> key_source::slot_bits) != 0);
        CHECK(key_source::slot_of(key) == n % 7);
        CHECK(seen.insert(key).second);
    }
}

}  // namespace test_memory_region_table
