#include <rdmacoro/transport/shm/peer_memory.hpp>

#include <rdmacoro/transport/shm/domain.hpp>

#include "support/catch.hpp"
#include "support/child_process.hpp"
#include "support/counting_new.hpp"
#include "support/recording_sink.hpp"

#include <cstdint>
#include <cstdio>
#include <deque>
#include <string>
#include <system_error>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_transport_shm_peer_memory {

using namespace rdmacoro;
using namespace rdmacoro::detail::shm;

namespace {

/// This process as its own peer.
struct own_memory {
    scheduler on;
    domain_base domain;
    peer_memory peer;

    explicit own_memory(const shm_options& options = {}) : domain(on, options) {
        peer.map_table(domain.table_file(), domain.options().max_regions, domain.regions().salt());
        domain.shared_arena().open();
        peer.map_arena(domain.shared_arena().file(),
                       reinterpret_cast<std::uint64_t>(domain.shared_arena().base()),
                       domain.shared_arena().bytes());
    }
    bool reach_self() {
        const unique_fd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
        peer.reach_through(peer_process(self.get(), ::getpid()));
        return peer.vm_allowed();
    }
};

/// Whether this process has a page for the address in its page table.
bool has_page(const void* address) {
    const unique_fd table(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    REQUIRE(table);
    std::uint64_t entry = 0;
    const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(address) / page_bytes * sizeof entry);
    REQUIRE(::pread(table.get(), &entry, sizeof entry, at) == sizeof entry);
    return entry >> 63 != 0;
}

}  // namespace

TEST_CASE("a process is read only where it can be reached, and may be") {
    own_memory m;
    CHECK_FALSE(m.peer.vm_allowed());
    m.peer.reach_through(peer_process());
    CHECK_FALSE(m.peer.vm_allowed());
    CHECK(m.reach_self());
    m.peer.forbid_process_vm();
    CHECK_FALSE(m.peer.vm_allowed());
}

TEST_CASE("memory is copied both ways, and what is not mapped is out of bounds") {
    own_memory m;
    REQUIRE(m.reach_self());
    const std::vector<std::byte> content = test::pattern(10'000);
    std::vector<std::byte> there = content;
    std::vector<std::byte> here(content.size());
    const auto address = reinterpret_cast<std::uint64_t>(there.data());
    CHECK(m.peer.reaches(address, there.size()));
    CHECK(m.peer.copy(true, address, here.data(), here.size()) == errc::ok);
    CHECK(here == content);
    std::vector<std::byte> other = test::pattern(10'000, 2);
    CHECK(m.peer.copy(false, address, other.data(), other.size()) == errc::ok);
    CHECK(there == other);
    CHECK(m.peer.copy(true, 64, here.data(), 8) == errc::out_of_bounds);
}

TEST_CASE("the peer's arena is reached without the kernel's permission, and only the arena") {
    own_memory m;
    const shared_memory piece = m.domain.allocate_shared(100);
    const auto address = reinterpret_cast<std::uint64_t>(piece.bytes().data());
    CHECK(m.peer.reaches(address, piece.bytes().size()));
    std::uint64_t word = 77;
    CHECK(m.peer.copy(false, address, reinterpret_cast<std::byte*>(&word), sizeof word) == errc::ok);
    CHECK(piece.bytes()[0] == std::byte{77});
    const auto end =
        reinterpret_cast<std::uint64_t>(m.domain.shared_arena().base()) + m.domain.shared_arena().bytes();
    CHECK(m.peer.reaches(end - 8, 8));
    CHECK_FALSE(m.peer.reaches(end - 8, 9));
    CHECK_FALSE(m.peer.reaches(address, static_cast<std::uint64_t>(-1)));
    CHECK_FALSE(m.peer.reaches(reinterpret_cast<std::uint64_t>(&word), sizeof word));
}

TEST_CASE("a process that locks what it maps takes no memory for an arena but for what is touched") {
    test::child_process child([](const std::string&) {
        shm_options options;
        options.arena_bytes = std::size_t{64} << 20;
        if (::mlockall(MCL_FUTURE) != 0) ::_exit(77);
        try {
            own_memory m(options);
            const shared_memory piece = m.domain.allocate_shared(100);
            const auto address = reinterpret_cast<std::uint64_t>(piece.bytes().data());
            std::uint64_t word = 77;
            if (m.peer.copy(false, address, reinterpret_cast<std::byte*>(&word), sizeof word) != errc::ok)
                ::_exit(2);
            struct stat used{};
            if (::fstat(m.domain.shared_arena().file(), &used) != 0) ::_exit(3);
            ::_exit(used.st_blocks * 512 < (8 << 20) ? 0 : 4);
        } catch (const error& none) {
            ::_exit(none.code().category() == std::system_category() ? 77 : 5);  // more than it may lock
        }
    });
    child.tell("go");
    const int status = child.wait();
    REQUIRE(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) SKIP_TEST("this process may not lock as much memory");
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("the peer's table of regions says what is allowed, from the moment it changes") {
    own_memory m;
    std::vector<std::byte> memory(100);
    region open = m.domain.register_memory(memory, access_rights::remote_read);
    const remote_region there = open.remote();
    CHECK(m.peer.check(there, access_rights::remote_read) == errc::ok);
    CHECK(m.peer.check(there, access_rights::remote_write) == errc::access_denied);
    remote_region beyond = there;
    beyond.length = 101;
    CHECK(m.peer.check(beyond, access_rights::remote_read) == errc::out_of_bounds);
    open.reset();
    CHECK(m.peer.check(there, access_rights::remote_read) == errc::bad_key);
}

TEST_CASE("a table or an arena of impossible size is refused") {
    own_memory m;
    peer_memory other;
    for (const std::uint64_t entries : {std::uint64_t{0}, std::uint64_t{65'537}, ~std::uint64_t{0}})
        CHECK_THROWS_AS(other.map_table(m.domain.table_file(), entries, {}), error);
    for (const std::uint64_t bytes : {std::uint64_t{0}, ~std::uint64_t{0}})
        CHECK_THROWS_AS(other.map_arena(m.domain.shared_arena().file(), 0, bytes), error);
    CHECK_FALSE(other.reaches(0, 1));
    CHECK(other.arena_mapped() == 0);
    CHECK(m.peer.arena_mapped() == m.domain.shared_arena().bytes());
}

TEST_CASE("the peer's arena takes address space when it is first used, and its board lives on") {
    own_memory m;
    const auto mapped_bytes = [] {
        unsigned long pages = 0;
        std::FILE* const file = std::fopen("/proc/self/statm", "r");
        REQUIRE(file != nullptr);
        CHECK(std::fscanf(file, "%lu", &pages) == 1);
        std::fclose(file);
        return pages * page_bytes;
    };
    const std::size_t arena = m.domain.shared_arena().bytes();
    peer_memory peer;
    const std::size_t before = mapped_bytes();
    peer.map_arena(m.domain.shared_arena().file(),
                   reinterpret_cast<std::uint64_t>(m.domain.shared_arena().base()), arena);
    CHECK(mapped_bytes() - before < arena / 2);
    peer.board()->mark(3);
    auto piece = m.domain.allocate_shared(page_bytes);
    piece.bytes()[7] = std::byte{42};
    const auto address = reinterpret_cast<std::uint64_t>(piece.bytes().data());
    REQUIRE(peer.reaches(address, page_bytes));
    std::byte there{};
    CHECK(peer.copy(true, address + 7, &there, 1) == errc::ok);
    CHECK(there == std::byte{42});
    CHECK(mapped_bytes() - before >= arena);
    peer.board()->mark(4);
    CHECK(m.domain.shared_arena().board()->marked_links[0].load() == 0b11000);
    peer.touch_board()->keep_marked(65);
    CHECK(m.domain.shared_arena().touch_board()->marked_links[1].load() == 2);
    CHECK(m.domain.shared_arena().board()->marked_links[1].load() == 0);
}

TEST_CASE("arenas that are in use take a part of the address space at most, and leave it to others when they "
          "end") {
    const own_memory offered;  // and not used: it takes none
    CHECK(offered.peer.arena_mapped() != 0);
    const unique_fd vast(::memfd_create("vast", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(vast.get(), static_cast<off_t>(peer_memory::most_arena + notice_board_bytes)) == 0);
    REQUIRE(::fcntl(vast.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    constexpr std::uint64_t base = peer_memory::most_arena;  // no memory of this process
    const auto opens = [](peer_memory& one) {
        std::byte there{};
        return one.copy(true, base, &there, 1) == errc::ok;
    };
    constexpr std::size_t most = peer_memory::most_arenas / peer_memory::most_arena;
    std::deque<peer_memory> peers(most + 1);
    for (peer_memory& one : peers) one.map_arena(vast.get(), base, peer_memory::most_arena);
    std::size_t opened = 0;
    while (opened < peers.size() && opens(peers[opened])) ++opened;
    CHECK(opened <= most);
    if (test::counts_allocations) CHECK(opened == most);  // a sanitizer takes most of the address space
    REQUIRE(opened < peers.size());
    CHECK(peers[opened].arena_mapped() == 0);  // it is reached like the rest of the peer's memory
    if (opened == 0) return;
    peers.pop_front();
    peers.emplace_back().map_arena(vast.get(), base, peer_memory::most_arena);
    CHECK(opens(peers.back()));
}

TEST_CASE("memory of an arena that finds no room is not reached by the number of a process that could not be "
          "opened") {
    // This process as the one that the number names by now.
    std::vector<std::byte> memory(3 * peer_process::most_by_descriptor, std::byte{1});
    const std::vector<std::byte> content = memory;
    const auto address = reinterpret_cast<std::uint64_t>(memory.data());
    const std::uint64_t base = address / page_bytes * page_bytes;
    const unique_fd vast(::memfd_create("vast", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(vast.get(), static_cast<off_t>(peer_memory::most_arena + notice_board_bytes)) == 0);
    REQUIRE(::fcntl(vast.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    for (const std::size_t bytes : {std::size_t{64}, memory.size()}) {
        for (const bool read : {true, false}) {
            CAPTURE(bytes, read);
            std::vector<std::byte> other(bytes, std::byte{9});
            std::deque<peer_memory> peers;
            errc outcome = errc::ok;
            do {  // until no further arena is mapped
                REQUIRE(peers.size() <= peer_memory::most_arenas / peer_memory::most_arena);
                peer_memory& one = peers.emplace_back();
                one.reach_through(peer_process(-1, ::getpid()));
                one.map_arena(vast.get(), base, peer_memory::most_arena);
                REQUIRE(one.reaches(address, bytes));
                outcome = one.copy(read, address, other.data(), bytes);
                other.assign(bytes, std::byte{9});
            } while (peers.back().arena_mapped() != 0);
            CHECK(outcome == errc::unsupported);
            CHECK_FALSE(peers.back().reaches(address, bytes));
            CHECK(memory == content);
        }
    }
}

TEST_CASE("pages of the peer's that were used are given up on request, and hold what they held when they are "
          "used again") {
    own_memory m;
    CHECK_FALSE(m.peer.uses_pages());
    CHECK_FALSE(m.peer.used_lately());
    m.peer.use_pages();
    m.peer.board()->mark(4);
    CHECK(m.peer.uses_pages());
    CHECK(m.peer.used_lately());
    CHECK_FALSE(m.peer.used_lately());
    void* const board = m.peer.board();
    CHECK(has_page(board));
    m.peer.release_pages();
    CHECK_FALSE(m.peer.uses_pages());
    CHECK_FALSE(has_page(board));
    CHECK(m.peer.board()->marked_links[0].load() == 0b10000);
    CHECK(has_page(board));
    // Without a use since the last time nothing is asked of the system.
    m.peer.release_pages();
    CHECK(has_page(board));
}

}  // namespace test_transport_shm_peer_memory
