#include <rdmacoro/transport/shm/segment.hpp>

#include <rdmacoro/transport/shm/domain.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"

#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_transport_shm_segment {

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;

// Both processes must agree on where each word lies.
static_assert(alignof(direction_words) == 64 && sizeof(direction_words) == 3 * 64 + 512);
static_assert(sizeof(shared_copy_words) == 128);
static_assert(segment_header_bytes % page_bytes == 0);

namespace {

constexpr geometry small{.cells = 64, .blocks = 4, .block_bytes = 4096};

errc map_fails(int fd) {
    try {
        segment mapped;
        mapped.map(fd, small);
    } catch (const error& refused) {
        return static_cast<errc>(refused.code().value());
    }
    return errc::ok;
}

}  // namespace

TEST_CASE("a descriptor is closed once, by the last that owns it") {
    const int fd = ::memfd_create("test", 0);
    unique_fd first(fd);
    unique_fd second(std::move(first));
    CHECK_FALSE(first);
    CHECK(second.get() == fd);
    first = std::move(second);
    CHECK(::fcntl(fd, F_GETFD) >= 0);
    first.reset();
    CHECK(::fcntl(fd, F_GETFD) < 0);
}

TEST_CASE("only geometries that a ring and its blocks can have are acceptable") {
    CHECK(geometry{}.acceptable());
    CHECK(small.acceptable());
    for (const std::uint32_t cells : {0u, 32u, 65u, 1u << 21}) {
        geometry g = small;
        g.cells = cells;
        CHECK_FALSE(g.acceptable());
    }
    for (const std::uint32_t blocks : {0u, 3u, geometry::most_blocks + 1}) {
        geometry g = small;
        g.blocks = blocks;
        CHECK_FALSE(g.acceptable());
    }
    for (const std::uint32_t bytes : {0u, 2048u, 4097u, 1u << 20}) {
        geometry g = small;
        g.block_bytes = bytes;
        CHECK_FALSE(g.acceptable());
    }
}

TEST_CASE("two mappings of a segment show the same bytes, and a ring follows itself") {
    const unique_fd file = segment::create(small);
    segment one;
    segment other;
    one.map(file.get(), small);
    other.map(file.get(), small);
    for (const unsigned direction : {0u, 1u}) {
        std::byte* ring = one.ring(direction);
        ring[0] = std::byte{static_cast<unsigned char>(7 + direction)};
        CHECK(other.ring(direction)[0] == ring[0]);
        CHECK(ring[small.ring_bytes()] == ring[0]);
        one.blocks(direction)[small.block_area_bytes() - 1] = std::byte{9};
        CHECK(other.blocks(direction)[small.block_area_bytes() - 1] == std::byte{9});
        one.words(direction).cells_freed = 5 + direction;
        CHECK(other.words(direction).cells_freed == 5 + direction);
        one.copies(direction)[shared_copies_open - 1].claimed = 11;
        CHECK(other.copies(direction)[shared_copies_open - 1].claimed == 11);
    }
}

TEST_CASE("a segment's file can't be made shorter, and one that could be is refused") {
    const unique_fd file = segment::create(small);
    CHECK(::ftruncate(file.get(), 0) != 0);
    CHECK(map_fails(file.get()) == errc::ok);

    const unique_fd unsealed(::memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(unsealed.get(), static_cast<off_t>(segment::file_bytes(small))) == 0);
    CHECK(map_fails(unsealed.get()) == errc::protocol_violation);

    const unique_fd too_short(::memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::fcntl(too_short.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    CHECK(map_fails(too_short.get()) == errc::protocol_violation);

    const unique_fd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
    REQUIRE(device);
    CHECK(map_fails(device.get()) == errc::protocol_violation);
}

TEST_CASE("a file longer than the process's files may be is refused with what to do and ends no process") {
    test::child_process child([](const std::string&) {
        rlimit longest{};
        if (::getrlimit(RLIMIT_FSIZE, &longest) != 0) ::_exit(2);
        const auto refused = [](const char* option, auto make) {
            try {
                make();
            } catch (const error& e) {
                return e.code() == errc::no_resources &&
                       std::string_view(e.what()).find(option) != std::string_view::npos &&
                       std::string_view(e.what()).find("ulimit -f") != std::string_view::npos;
            }
            return false;
        };
        scheduler on;
        domain_base domain(on, {});
        longest.rlim_cur = page_bytes;
        if (::setrlimit(RLIMIT_FSIZE, &longest) != 0) ::_exit(2);
        if (!refused("shm_options::shape", [] { static_cast<void>(segment::create(small)); })) ::_exit(3);
        if (!refused("shm_options::arena_bytes", [&] { domain.shared_arena().open(); })) ::_exit(4);
        if (!refused("shm_options::max_regions", [&] { const domain_base another(on, {}); })) ::_exit(5);
        // As long as files may be is not longer.
        if (!make_memfd("test", page_bytes, "a file", "nothing")) ::_exit(6);
    });
    child.tell("go");
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("an error names what failed, and with which code") {
    try {
        errno = EMFILE;
        throw_errno("socket for ", "shm://a");
        FAIL("not thrown");
    } catch (const error& thrown) {
        CHECK(thrown.code() == std::error_code(EMFILE, std::system_category()));
        CHECK_THAT(std::string(thrown.what()), test::contains("socket for shm://a"));
    }
    try {
        throw_named(errc::address_in_use, "shm://a", ": taken");
        FAIL("not thrown");
    } catch (const error& thrown) {
        CHECK(thrown.code() == errc::address_in_use);
        CHECK_THAT(std::string(thrown.what()), test::contains("shm://a: taken"));
    }
}

}  // namespace test_transport_shm_segment
