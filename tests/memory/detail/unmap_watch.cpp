#include <rdmacoro/memory/detail/unmap_watch.hpp>

#include "support/catch.hpp"

#include <cstddef>
#include <thread>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_memory_detail_unmap_watch {

using namespace rdmacoro::detail;

namespace {

const std::size_t page = unmap_watch::page_bytes();

std::uintptr_t map(std::size_t pages, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1) {
    void* got = ::mmap(nullptr, pages * page, PROT_READ | PROT_WRITE, flags, file, 0);
    if (got == MAP_FAILED) std::abort();
    return reinterpret_cast<std::uintptr_t>(got);
}
void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
void unmap(std::uintptr_t address, std::size_t pages) { ::munmap(pointer(address), pages * page); }

/// A listener of the process's watch.
struct listener {
    unmap_watch& watch = unmap_watch::of_process();
    unmap_events events;
    unmap_events heard;

    listener() { watch.subscribe(events); }
    listener(const listener&) = delete;
    ~listener() { watch.unsubscribe(events); }

    /// The events of [start, end) since the last time; nothing else of this process interests here.
    std::vector<address_range> take(std::uintptr_t start, std::uintptr_t end) {
        static_cast<void>(watch.take(events, heard));
        std::vector<address_range> found;
        for (const address_range& each : heard)
            if (each.start < end && start < each.end) found.push_back(each);
        return found;
    }
};

}  // namespace

TEST_CASE("a watch that is not permitted watches nothing") {
    unmap_watch_options refused;
    refused.permitted = false;
    unmap_watch watch(refused);
    CHECK_FALSE(watch.available());
    CHECK_FALSE(watch.inherited());
    const std::uintptr_t memory = map(1);
    CHECK_FALSE(watch.watch({memory, memory + page}));
    unmap(memory, 1);
}

TEST_CASE("a listener learns what was unmapped, before the call returns, of watched memory only") {
    listener at;
    if (!at.watch.available()) SKIP_TEST("no userfaultfd here");
    CHECK(&at.watch == &unmap_watch::of_process());
    const std::uintptr_t memory = map(6);
    REQUIRE(at.watch.watch({memory + page, memory + 4 * page}));
    CHECK(at.watch.settled());
    const std::uint64_t before = at.watch.sequence();
    unmap(memory + 5 * page, 1);
    CHECK(at.take(memory, memory + 6 * page).empty());
    unmap(memory, 2);
    CHECK(at.watch.sequence() != before);
    CHECK(at.watch.settled());
    const auto first = at.take(memory, memory + 6 * page);
    REQUIRE(first.size() == 1);
    CHECK(first[0].start <= memory + page);
    CHECK(first[0].end == memory + 2 * page);
    CHECK(at.take(memory, memory + 6 * page).empty());
    ::madvise(pointer(memory + 3 * page), page, MADV_DONTNEED);
    CHECK(at.take(memory, memory + 6 * page).size() == 1);
    at.watch.unwatch({memory + page, memory + 4 * page});
    unmap(memory + 2 * page, 3);
    CHECK(at.take(memory, memory + 6 * page).empty());
}

TEST_CASE("a range is watched until its last watch has ended") {
    listener at;
    if (!at.watch.available()) SKIP_TEST("no userfaultfd here");
    const std::uintptr_t m = map(8);
    const auto pages = [&](std::size_t from, std::size_t to) {
        return address_range{m + from * page, m + to * page};
    };
    const auto watched = [&](std::size_t index) {
        ::madvise(pointer(m + index * page), page, MADV_DONTNEED);
        return !at.take(m, m + 8 * page).empty();
    };
    REQUIRE(at.watch.watch(pages(0, 4)));
    REQUIRE(at.watch.watch(pages(4, 8)));
    REQUIRE(at.watch.watch(pages(4, 6)));
    REQUIRE(at.watch.watch(pages(2, 6)));
    REQUIRE(at.watch.watch(pages(2, 6)));
    at.watch.unwatch(pages(4, 6));
    at.watch.unwatch(pages(0, 4));
    CHECK_FALSE(watched(0));
    CHECK_FALSE(watched(1));
    CHECK(watched(2));
    CHECK(watched(5));
    CHECK(watched(7));
    at.watch.unwatch(pages(2, 6));
    CHECK(watched(3));
    at.watch.unwatch(pages(4, 8));
    CHECK(watched(3));
    CHECK(watched(5));
    CHECK_FALSE(watched(6));
    at.watch.unwatch(pages(2, 6));
    for (std::size_t i = 0; i < 8; ++i) CHECK_FALSE(watched(i));
    unmap(m, 8);
}

TEST_CASE("what comes after an unmapping is watched when it is asked for, whoever still holds the old") {
    listener at;
    if (!at.watch.available()) SKIP_TEST("no userfaultfd here");
    const std::uintptr_t m = map(4);
    REQUIRE(at.watch.watch({m, m + 4 * page}));
    ::mmap(pointer(m), 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(at.take(m, m + 4 * page).size() == 1);
    REQUIRE(at.watch.watch({m, m + 4 * page}));
    at.watch.unwatch({m, m + 4 * page});
    unmap(m, 4);
    CHECK(at.take(m, m + 4 * page).size() == 1);
    at.watch.unwatch({m, m + 4 * page});  // of memory that is gone
}

TEST_CASE("holes, shared memory and mixtures are not watched") {
    listener at;
    if (!at.watch.available()) SKIP_TEST("no userfaultfd here");
    const std::uintptr_t m = map(6);
    unmap(m + page, 1);
    CHECK_FALSE(at.watch.watch({m, m + 3 * page}));
    ::mmap(pointer(m + 4 * page), page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1,
           0);
    CHECK_FALSE(at.watch.watch({m + 2 * page, m + 6 * page}));
    CHECK_FALSE(at.watch.watch({m + 4 * page, m + 5 * page}));
    CHECK(at.watch.watch({m + 2 * page, m + 4 * page}));
    at.watch.unwatch({m + 2 * page, m + 4 * page});
    unmap(m, 6);
    CHECK(at.take(m, m + 6 * page).empty());
}

TEST_CASE("both ways to ask the kernel about mappings say the same") {
    mapping_kind by_query(mapping_kind::way::query_or_text);
    mapping_kind by_text(mapping_kind::way::text);
    const auto agree = [&](std::uintptr_t start, std::uintptr_t end) {
        const bool said = by_query.private_anonymous(start, end);
        CHECK(by_text.private_anonymous(start, end) == said);
        return said;
    };
    const int file = ::memfd_create("a name with spaces\nand a new line", MFD_CLOEXEC);
    REQUIRE(::ftruncate(file, static_cast<off_t>(page)) == 0);
    const std::uintptr_t m = map(10);
    ::mprotect(pointer(m + page), page, PROT_READ);  // a mapping of its own
    ::mmap(pointer(m + 3 * page), page, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0);
    ::mmap(pointer(m + 5 * page), page, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    ::mmap(pointer(m + 7 * page), page, PROT_READ, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    unmap(m + 9 * page, 1);
    CHECK(agree(m, m + page));
    CHECK(agree(m, m + 3 * page));
    CHECK(agree(m + page / 2, m + 2 * page));
    CHECK_FALSE(agree(m, m + 4 * page));
    CHECK_FALSE(agree(m + 3 * page, m + 4 * page));
    CHECK(agree(m + 4 * page, m + 5 * page));
    CHECK_FALSE(agree(m + 5 * page, m + 6 * page));
    CHECK(agree(m + 6 * page, m + 7 * page));
    CHECK_FALSE(agree(m + 7 * page, m + 8 * page));
    CHECK(agree(m + 8 * page, m + 9 * page));
    CHECK_FALSE(agree(m + 9 * page, m + 10 * page));
    CHECK_FALSE(agree(m + 8 * page, m + 10 * page));
    int local = 0;
    const auto stack = reinterpret_cast<std::uintptr_t>(&local);
    CHECK(agree(stack, stack + sizeof local));
    unmap(m, 9);
    ::close(file);
}

TEST_CASE("a child process sees that the watch is not its own, and unmaps without a reader") {
    listener at;
    if (!at.watch.available()) SKIP_TEST("no userfaultfd here");
    const std::uintptr_t m = map(2);
    REQUIRE(at.watch.watch({m, m + 2 * page}));
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        ::alarm(10);
        const bool right = at.watch.inherited() && at.watch.sequence() == 0;
        unmap(m, 2);
        ::_exit(right ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    CHECK_FALSE(at.watch.inherited());
    CHECK(at.take(m, m + 2 * page).empty());
    at.watch.unwatch({m, m + 2 * page});
    unmap(m, 2);
}

TEST_CASE("listeners come and go while threads unmap") {
    unmap_watch& watch = unmap_watch::of_process();
    if (!watch.available()) SKIP_TEST("no userfaultfd here");
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&watch] {
            for (int i = 0; i < 200; ++i) {
                listener mine;
                const std::uintptr_t m = map(2);
                if (!watch.watch({m, m + 2 * page})) std::abort();
                unmap(m, 2);
                // Held up for long enough it may have had more events than a listener stores.
                if (mine.take(m, m + 2 * page).empty() && !mine.heard.overflowed()) std::abort();
                watch.unwatch({m, m + 2 * page});
            }
        });
    }
    for (std::thread& each : threads) each.join();
    CHECK(watch.settled());
}

}  // namespace test_memory_detail_unmap_watch
