#include <rdmacoro/transport/verbs_rc/number_table.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>

namespace test_transport_verbs_rc_number_table {

using rdmacoro::detail::verbs::number_table;

namespace {

struct numbered {
    explicit numbered(std::uint32_t of) noexcept : number_(of) {}
    [[nodiscard]] std::uint32_t number() const noexcept {
        ++asked;
        return number_;
    }
    numbered* next_of_bucket = nullptr;

    inline static std::size_t asked = 0;

private:
    std::uint32_t number_;
};

}  // namespace

TEST_CASE("connections are found by their numbers and one that is removed is not") {
    number_table<numbered> table(4);
    // The first three share a bucket.
    std::deque<numbered> all;
    for (const std::uint32_t number : {7u, 7u + 256, 7u + 512, 8u, 0xffffffu}) all.emplace_back(number);
    CHECK(table.find(7) == nullptr);
    for (numbered& one : all) table.add(one);
    for (numbered& one : all) CHECK(table.find(one.number()) == &one);
    CHECK(table.find(7 + 768) == nullptr);
    for (const std::size_t gone : {1u, 2u, 0u, 3u, 4u}) {
        table.remove(all[gone]);
        CHECK(table.find(all[gone].number()) == nullptr);
        table.remove(all[gone]);  // once more does nothing
    }
    numbered again(7);
    table.add(again);
    CHECK(table.find(7) == &again);
}

TEST_CASE(
    "each of as many connections as there may be is found by looking at one where their numbers come in a "
    "row") {
    for (const std::size_t most : {1u, 1000u, 65536u}) {
        CAPTURE(most);
        number_table<numbered> table(most);
        std::deque<numbered> all;
        for (std::size_t n = 0; n < most; ++n) {
            all.emplace_back(static_cast<std::uint32_t>(1234567 + n));
            table.add(all.back());
        }
        numbered::asked = 0;
        std::size_t found = 0;
        for (std::size_t n = 0; n < most; ++n)
            found += table.find(static_cast<std::uint32_t>(1234567 + n)) == &all[n] ? 1 : 0;
        CHECK(found == most);
        CHECK(numbered::asked == most);
    }
}

}  // namespace test_transport_verbs_rc_number_table
