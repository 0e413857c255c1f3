#include <rdmacoro/memory/detail/mapping_kind.hpp>

#include "support/catch.hpp"

#include <cstdint>
#include <cstdlib>

#include <sys/mman.h>
#include <unistd.h>

namespace test_memory_detail_mapping_kind {

using rdmacoro::detail::mapping_kind;

namespace {

const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));

std::uintptr_t map(std::size_t pages, int flags, int file = -1) {
    void* const got = ::mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, flags, file, 0);
    if (got == MAP_FAILED) std::abort();
    return reinterpret_cast<std::uintptr_t>(got);
}
void unmap(std::uintptr_t address, std::size_t pages) {
    ::munmap(reinterpret_cast<void*>(address), pages * page);
}

}  // namespace

TEST_CASE("only private memory of no file is private and anonymous, however the kernel is asked") {
    for (const auto how : {mapping_kind::way::query_or_text, mapping_kind::way::text}) {
        mapping_kind kinds(how);
        const std::uintptr_t own = map(4, MAP_PRIVATE | MAP_ANONYMOUS);
        CHECK(kinds.private_anonymous(own, own + 4 * page));
        CHECK(kinds.private_anonymous(own + page, own + 2 * page));

        const std::uintptr_t shared = map(2, MAP_SHARED | MAP_ANONYMOUS);
        CHECK_FALSE(kinds.private_anonymous(shared, shared + 2 * page));

        const int file = ::memfd_create("mapping_kind", MFD_CLOEXEC);
        REQUIRE(file >= 0);
        REQUIRE(::ftruncate(file, static_cast<off_t>(page)) == 0);
        const std::uintptr_t of_file = map(1, MAP_PRIVATE, file);
        CHECK_FALSE(kinds.private_anonymous(of_file, of_file + page));

        unmap(own + page, 1);  // a hole
        CHECK(kinds.private_anonymous(own, own + page));
        CHECK_FALSE(kinds.private_anonymous(own, own + 4 * page));
        CHECK_FALSE(kinds.private_anonymous(own + page, own + 2 * page));
        unmap(own, 4);
        unmap(shared, 2);
        unmap(of_file, 1);
        ::close(file);
    }
}

}  // namespace test_memory_detail_mapping_kind
