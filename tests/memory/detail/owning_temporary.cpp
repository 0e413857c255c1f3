#include <rdmacoro/memory/detail/owning_temporary.hpp>

#include <rdmacoro/memory/memory.hpp>

#include "support/catch.hpp"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace test_memory_detail_owning_temporary {

using namespace rdmacoro;

namespace {

template <class Arg>
constexpr bool owns(Arg&&) {
    return detail::owning_temporary<Arg>;
}

/// Converts to bytes, and owns them.
struct packet {
    std::vector<std::byte> bytes;
    operator std::span<const std::byte>() const { return bytes; }
};

/// Converts to bytes of something else.
struct view_of_packet {
    const packet* of;
    operator std::span<const std::byte>() const { return of->bytes; }
};

}  // namespace

TEST_CASE("a temporary owns its memory unless it is a view, and what has a name is no temporary") {
    std::vector<std::byte> bytes(3);
    const std::vector<std::byte> constant(3);
    std::byte array[4] = {};
    packet held{bytes};

    CHECK(owns(std::vector<std::byte>(3)));
    CHECK(owns(std::move(bytes)));
    CHECK(owns(std::move(constant)));
    CHECK(owns(std::string("text")));
    CHECK(owns(std::array<std::byte, 4>()));
    CHECK(owns(packet{}));

    CHECK_FALSE(owns(bytes));
    CHECK_FALSE(owns(constant));
    CHECK_FALSE(owns(array));
    CHECK_FALSE(owns("text"));
    CHECK_FALSE(owns(held));
    CHECK_FALSE(owns(std::span(bytes)));
    CHECK_FALSE(owns(std::string_view("text")));
    CHECK_FALSE(owns(view_of_packet{&held}));
    CHECK_FALSE(owns(const_buffers(bytes)));
    CHECK_FALSE(owns(gather(bytes, constant)));
    CHECK_FALSE(owns(strided(bytes.data(), 1, 2, 1)));
}

}  // namespace test_memory_detail_owning_temporary
