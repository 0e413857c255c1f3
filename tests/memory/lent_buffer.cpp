#include <rdmacoro/memory/lent_buffer.hpp>

#include "support/catch.hpp"

#include <array>
#include <utility>
#include <vector>

namespace test_memory_lent_buffer {

using namespace rdmacoro;

namespace {

struct lender {
    std::vector<std::uint64_t> given_back;
    std::array<std::byte, 4> memory{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

    lent_buffer lend(std::uint64_t token) {
        return lent_buffer(
            memory,
            [](void* self, std::uint64_t t) noexcept { static_cast<lender*>(self)->given_back.push_back(t); },
            this, token);
    }
};

}  // namespace

TEST_CASE("a lent buffer is given back once, when it goes") {
    lender from;
    {
        const lent_buffer loan = from.lend(7);
        CHECK(loan);
        CHECK(loan.bytes().data() == from.memory.data());
        CHECK(loan.bytes().size() == 4);
        CHECK(from.given_back.empty());
    }
    CHECK(from.given_back == std::vector<std::uint64_t>{7});
}

TEST_CASE("resetting gives a lent buffer back at once and empties it") {
    lender from;
    lent_buffer loan = from.lend(1);
    loan.reset();
    CHECK_FALSE(loan);
    CHECK(loan.bytes().empty());
    loan.reset();
    CHECK(from.given_back.size() == 1);
}

TEST_CASE("moving passes a lent buffer on, and assignment gives the former back") {
    lender from;
    {
        lent_buffer first = from.lend(1);
        lent_buffer second(std::move(first));
        CHECK_FALSE(first);
        CHECK(second);
        lent_buffer third = from.lend(3);
        third = std::move(second);
        CHECK(from.given_back == std::vector<std::uint64_t>{3});
        CHECK(third.bytes().size() == 4);
        lent_buffer& itself = third;
        third = std::move(itself);
        CHECK(third);
    }
    CHECK(from.given_back == std::vector<std::uint64_t>{3, 1});
    const lent_buffer nothing;
    CHECK_FALSE(nothing);
}

}  // namespace test_memory_lent_buffer
