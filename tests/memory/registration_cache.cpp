#include <rdmacoro/memory/registration_cache.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace test_memory_registration_cache {

using namespace rdmacoro;

namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool under_thread_sanitizer = true;
#elif defined(__has_feature)
constexpr bool under_thread_sanitizer = __has_feature(thread_sanitizer);
#else
constexpr bool under_thread_sanitizer = false;
#endif

const std::size_t page = detail::unmap_watch::page_bytes();

/// A device that notes what is registered, and what lay in the first byte of it then, as a real one keeps the old page.
struct fake_device {
    struct handle {
        std::uint64_t key = 0;
        std::span<std::byte> pages;
        access_rights rights = access_rights::none;
        std::byte first{};

        [[nodiscard]] remote_region remote() const noexcept {
            return {reinterpret_cast<std::uintptr_t>(pages.data()), pages.size(), key, rights, 0};
        }
    };

    std::optional<handle> register_memory(std::span<std::byte> pages, access_rights rights) noexcept {
        if (live.size() >= most || pages.size() > longest) return std::nullopt;
        live.push_back({++made, pages, rights, peek(pages.data())});
        return live.back();
    }
    void deregister(handle& gone) noexcept {
        const auto at =
            std::find_if(live.begin(), live.end(), [&](const handle& h) { return h.key == gone.key; });
        if (at == live.end()) std::abort();  // twice, or never registered
        live.erase(at);
    }
    [[nodiscard]] std::size_t bytes() const {
        std::size_t sum = 0;
        for (const handle& h : live) sum += h.pages.size();
        return sum;
    }

    /// Whole pages have more in them than AddressSanitizer gave to the program.
    [[gnu::no_sanitize_address, gnu::noinline]] static std::byte peek(const std::byte* at) noexcept {
        return *at;
    }

    std::size_t most = 1000;
    std::size_t longest = static_cast<std::size_t>(-1);
    std::uint64_t made = 0;
    std::vector<handle> live;
};
using cache_type = registration_cache<fake_device>;

static_assert(registrar<fake_device>);
static_assert(!registrar<int>);
static_assert(std::is_nothrow_move_constructible_v<cache_type::lease>);
static_assert(!std::is_copy_constructible_v<cache_type::lease>);

/// Pages of private anonymous memory.
class mapped {
public:
    explicit mapped(std::size_t pages, void* at = nullptr) : bytes_(pages * page) {
        void* got = ::mmap(at, bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
        if (got == MAP_FAILED) std::abort();
        data_ = static_cast<std::byte*>(got);
    }
    mapped(const mapped&) = delete;
    ~mapped() {
        if (data_ != nullptr) ::munmap(data_, bytes_);
    }
    void forget() { data_ = nullptr; }
    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] std::span<std::byte> all() const { return {data_, bytes_}; }
    /// So many pages from there on.
    [[nodiscard]] std::span<std::byte> part(std::size_t first, std::size_t count) const {
        return all().subspan(first * page, count * page);
    }

private:
    std::byte* data_;
    std::size_t bytes_;
};

constexpr auto get = access_rights::remote_read;
constexpr auto put = access_rights::remote_write;

/// Registers for a moment; the key of what it got, 0 for nothing.
std::uint64_t key_of(cache_type& cache, std::span<std::byte> memory, access_rights rights = get) {
    const auto lease = cache.acquire(memory, rights);
    return lease ? lease.registration().key : 0;
}

}  // namespace

#define NEEDS_WATCH(cache)                                                                                   \
    if (!(cache).keeps()) SKIP_TEST("no userfaultfd here")

TEST_CASE("a second use finds what the first registered") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(4);
    const std::span<std::byte> asked = memory.all().subspan(page + 100, 2 * page);
    {
        const auto lease = cache.acquire(asked, get);
        REQUIRE(lease);
        CHECK(lease.memory().data() == asked.data());
        CHECK(lease.pages().data() == memory.data() + page);
        CHECK(lease.pages().size() == 3 * page);
        CHECK(lease.offset() == 100);
        CHECK(lease.rights() == get);
        CHECK(lease.remote().address == reinterpret_cast<std::uintptr_t>(asked.data()));
        CHECK(lease.remote().length == asked.size());
        CHECK(lease.remote().key == lease.registration().key);
        CHECK(cache.statistics().registered_bytes == 3 * page);
    }
    CHECK(device.live.size() == 1);
    CHECK(cache.holds(asked, get));
    CHECK_FALSE(cache.holds(asked, put));
    CHECK_FALSE(cache.holds(memory.all(), get));
    const std::uint64_t key = device.live[0].key;
    CHECK(key_of(cache, asked) == key);
    CHECK(key_of(cache, memory.part(2, 1)) == key);
    CHECK(key_of(cache, memory.part(3, 1).subspan(1, 7)) == key);
    const auto counts = cache.statistics();
    CHECK(counts.hits == 3);
    CHECK(counts.misses == 1);
    CHECK(counts.bypassed == 0);
    CHECK(counts.entries == 1);
    CHECK_FALSE(cache.acquire({}, get));
    CHECK_FALSE(cache.holds({}, get));
}

TEST_CASE("leases move, and share a registration") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(2);
    auto first = cache.acquire(memory.all(), get);
    auto second = std::move(first);
    CHECK_FALSE(first);
    CHECK(second);
    auto third = cache.acquire(memory.part(1, 1), get);
    CHECK(third.registration().key == second.registration().key);
    third = std::move(second);
    CHECK(third.offset() == 0);
    third.reset();
    third.reset();
    CHECK_FALSE(third);
    CHECK(device.live.size() == 1);
    cache.clear();
    CHECK(device.live.empty());
}

TEST_CASE("memory that was unmapped and mapped again at its address is registered anew") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    bool unmaps = false;
    SECTION("by munmap and mmap") { unmaps = true; }
    SECTION("by mmap over it") {}
    for (unsigned round = 1; round < 50; ++round) {
        mapped before(4);
        before.data()[0] = std::byte{1};
        std::uint64_t stale = 0;
        {
            const auto lease = cache.acquire(before.all(), get);
            stale = lease.registration().key;
            CHECK(lease.registration().first == std::byte{1});
        }
        if (unmaps) ::munmap(before.data(), 4 * page);
        mapped after(4, before.data());
        before.forget();
        CHECK_FALSE(cache.holds(after.all(), get));
        after.data()[0] = std::byte{2};
        const auto lease = cache.acquire(after.all(), get);
        CHECK(lease.registration().key != stale);
        CHECK(lease.registration().first == std::byte{2});
        CHECK(cache.statistics().invalidated ==
              2 * round - 1);  // the new memory goes at the end of each round, too
        CHECK(device.live.size() == 1);
    }
}

TEST_CASE("unmapping one page of a registration ends all of it, and no other") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(8);
    const std::uint64_t stale = key_of(cache, memory.part(0, 4));
    const std::uint64_t other = key_of(cache, memory.part(4, 4));
    ::munmap(memory.data() + 3 * page, page);
    CHECK_FALSE(cache.holds(memory.part(0, 2), get));
    CHECK(key_of(cache, memory.part(4, 4)) == other);
    CHECK(key_of(cache, memory.part(0, 2)) != stale);
    CHECK(device.live.size() == 2);
}

TEST_CASE("pages that were thrown away are registered anew") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(4);
    const std::uint64_t stale = key_of(cache, memory.all());
    SECTION("MADV_DONTNEED") { REQUIRE(::madvise(memory.data() + page, page, MADV_DONTNEED) == 0); }
    SECTION("MADV_FREE") { REQUIRE(::madvise(memory.data() + page, page, MADV_FREE) == 0); }
    CHECK(key_of(cache, memory.all()) != stale);
    CHECK(cache.statistics().invalidated == 1);
}

TEST_CASE("pages that were moved are registered anew at both places") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(4);
    const std::uint64_t stale = key_of(cache, memory.all());
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    SECTION("and the old ones are gone") {}
    SECTION("and the old ones are empty") { flags |= MREMAP_DONTUNMAP; }
    mapped place(4);
    void* moved = ::mremap(memory.data(), 4 * page, 4 * page, flags, place.data());
    if (moved == MAP_FAILED) SKIP_TEST("this kernel has no such mremap");
    CHECK(moved == place.data());
    CHECK_FALSE(cache.holds(memory.all(), get));
    if ((flags & MREMAP_DONTUNMAP) == 0) memory.forget();
    const std::uint64_t there = key_of(cache, place.all());
    CHECK(there != stale);
    ::madvise(place.data(), page, MADV_DONTNEED);
    CHECK(key_of(cache, place.all()) != there);
}

TEST_CASE("large memory of the heap that is freed is registered anew") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    constexpr std::size_t bytes = std::size_t{64} << 20;  // above any threshold of malloc's
    void* block = std::malloc(bytes);
    REQUIRE(block != nullptr);
    CHECK(key_of(cache, {static_cast<std::byte*>(block), bytes}) == 1);
    const volatile auto address = reinterpret_cast<std::uintptr_t>(block);
    std::free(block);
    std::byte* again = static_cast<std::byte*>(std::malloc(bytes));
    REQUIRE(again != nullptr);
    if constexpr (test::counts_allocations) {  // a sanitizer's allocator keeps freed memory for a while
        CHECK_FALSE(cache.holds({reinterpret_cast<std::byte*>(address), bytes}, get));
        CHECK(key_of(cache, {again, bytes}) == 2);
        CHECK(device.live.size() == 1);
    }
    std::free(again);
}

TEST_CASE("a registration in use whose memory goes is not handed out again and ends with its last lease") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(2);
    auto first = cache.acquire(memory.all(), get);
    auto second = cache.acquire(memory.all(), get);
    const std::uint64_t stale = first.registration().key;
    SECTION("by madvise") { ::madvise(memory.data(), page, MADV_DONTNEED); }
    SECTION("by clear") { cache.clear(); }
    const auto third = cache.acquire(memory.all(), get);
    CHECK(third.registration().key != stale);
    CHECK(device.live.size() == 2);
    CHECK(cache.statistics().registered_bytes == 4 * page);
    first.reset();
    CHECK(device.live.size() == 2);
    second.reset();
    CHECK(device.live.size() == 1);
    CHECK(device.live[0].key == third.registration().key);
    CHECK(cache.statistics().registered_bytes == 2 * page);
}

TEST_CASE("what is watched twice stays watched when one of both ends") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(6);
    static_cast<void>(key_of(cache, memory.part(0, 4)));
    fake_device other_device;
    cache_type other(other_device);
    static_cast<void>(key_of(other, memory.part(2, 4)));
    const std::uint64_t overlapping = key_of(cache, memory.part(1, 5));
    CHECK(device.live.size() == 2);
    other.clear();
    ::madvise(memory.data() + 5 * page, page, MADV_DONTNEED);
    CHECK(key_of(cache, memory.part(1, 5)) != overlapping);
    CHECK(cache.holds(memory.part(0, 4), get));
    ::madvise(memory.data() + 2 * page, page, MADV_DONTNEED);
    CHECK_FALSE(cache.holds(memory.part(0, 4), get));
    CHECK_FALSE(cache.holds(memory.part(1, 5), get));
    CHECK(device.live.empty());
}

TEST_CASE("two caches hear of the same memory") {
    fake_device device;
    cache_type one(device);
    cache_type two(device);
    NEEDS_WATCH(one);
    mapped memory(2);
    static_cast<void>(key_of(one, memory.all()));
    static_cast<void>(key_of(two, memory.all()));
    ::madvise(memory.data(), page, MADV_DONTNEED);
    CHECK_FALSE(one.holds(memory.all(), get));
    CHECK_FALSE(two.holds(memory.all(), get));
}

TEST_CASE("more is unmapped between two uses than is noted") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    constexpr std::size_t many = detail::unmap_events::capacity + 10;
    mapped memory(2 * many + 2);
    for (std::size_t i = 0; i < many; ++i) static_cast<void>(key_of(cache, memory.part(2 * i, 1)));
    const std::uint64_t last = key_of(cache, memory.part(2 * many, 1));
    for (std::size_t i = 0; i < many; ++i) ::madvise(memory.data() + 2 * i * page, page, MADV_DONTNEED);
    CHECK(key_of(cache, memory.part(2 * many, 1)) != last);  // not unmapped, but the cache cannot know
    CHECK(device.live.size() == 1);
    CHECK(cache.statistics().invalidated == many + 1);
}

TEST_CASE("the least recently used is pushed out first") {
    fake_device device;
    registration_cache_options options;
    SECTION("when there are too many") { options.max_entries = 3; }
    SECTION("when there are too many bytes") { options.max_bytes = 3 * page; }
    cache_type cache(device, options);
    NEEDS_WATCH(cache);
    mapped memory(20);
    for (std::size_t i = 0; i < 3; ++i) static_cast<void>(key_of(cache, memory.part(2 * i, 1)));
    static_cast<void>(key_of(cache, memory.part(0, 1)));
    static_cast<void>(key_of(cache, memory.part(10, 1)));
    CHECK(cache.holds(memory.part(0, 1), get));
    CHECK_FALSE(cache.holds(memory.part(2, 1), get));
    CHECK(cache.holds(memory.part(4, 1), get));
    static_cast<void>(key_of(cache, memory.part(12, 1)));
    CHECK_FALSE(cache.holds(memory.part(4, 1), get));
    CHECK(cache.holds(memory.part(0, 1), get));
    CHECK(cache.statistics().evictions == 2);
    CHECK(cache.statistics().entries == 3);
    CHECK(device.live.size() == 3);
}

TEST_CASE("what is in use is not pushed out, and what does not fit then is registered for one use") {
    fake_device device;
    registration_cache_options options;
    options.max_entries = 2;
    cache_type cache(device, options);
    NEEDS_WATCH(cache);
    mapped memory(20);
    auto a = cache.acquire(memory.part(0, 1), get);
    auto b = cache.acquire(memory.part(2, 1), get);
    {
        const auto c = cache.acquire(memory.part(4, 1), get);
        CHECK(c);
        CHECK(device.live.size() == 3);
        CHECK_FALSE(cache.holds(memory.part(4, 1), get));
    }
    CHECK(device.live.size() == 2);
    CHECK(cache.statistics().bypassed == 1);
    a.reset();
    static_cast<void>(key_of(cache, memory.part(4, 1)));
    CHECK(cache.holds(memory.part(4, 1), get));
    CHECK(cache.holds(memory.part(2, 1), get));
    CHECK_FALSE(cache.holds(memory.part(0, 1), get));
}

TEST_CASE("memory longer than the cache is registered for one use and pushes nothing out") {
    fake_device device;
    registration_cache_options options;
    options.max_bytes = 4 * page;
    cache_type cache(device, options);
    NEEDS_WATCH(cache);
    mapped memory(20);
    static_cast<void>(key_of(cache, memory.part(8, 1)));
    CHECK(key_of(cache, memory.part(0, 5)) != 0);
    CHECK(cache.statistics().bypassed == 1);
    CHECK(cache.statistics().evictions == 0);
    CHECK(device.live.size() == 1);
}

TEST_CASE("a full cache in which nothing is found again is left alone for a while") {
    fake_device device;
    registration_cache_options options;
    options.max_entries = 4;
    options.bypass_after = 8;
    cache_type cache(device, options);
    NEEDS_WATCH(cache);
    mapped memory(200);
    std::size_t next = 0;
    const auto miss = [&] { return key_of(cache, memory.part(2 * next++, 1)); };
    for (int i = 0; i < 4 + 8; ++i) CHECK(miss() != 0);
    CHECK(cache.statistics().evictions == 8);
    CHECK(cache.statistics().bypassed == 0);
    for (int i = 0; i < 8; ++i) CHECK(miss() != 0);
    CHECK(cache.statistics().evictions == 8);
    CHECK(cache.statistics().bypassed == 8);
    for (int i = 0; i < 8; ++i) CHECK(miss() != 0);  // then others have their turn
    CHECK(cache.statistics().evictions == 16);
    CHECK(miss() != 0);
    CHECK(cache.statistics().bypassed == 9);
    static_cast<void>(key_of(cache, memory.part(2 * (next - 2), 1)));  // found: misses count from none again
    CHECK(cache.statistics().hits == 1);
    CHECK(miss() != 0);
    CHECK(cache.statistics().evictions == 17);
    CHECK(device.live.size() == 4);
}

TEST_CASE("more rights replace a registration as a whole") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(4);
    auto reading = cache.acquire(memory.all(), get);
    const std::uint64_t key = key_of(cache, memory.part(1, 1), put);
    CHECK(key != reading.registration().key);
    CHECK(key_of(cache, memory.all(), put) == key);
    CHECK(key_of(cache, memory.all(), get) == key);
    CHECK(key_of(cache, memory.all(), access_rights::all) == key);
    CHECK(device.live.size() == 2);
    reading.reset();
    CHECK(device.live.size() == 1);
    CHECK(cache.statistics().entries == 1);
}

TEST_CASE("a longer registration takes over those it covers, with their rights") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(10);
    static_cast<void>(key_of(cache, memory.part(2, 1), put));
    static_cast<void>(key_of(cache, memory.part(4, 2), get));
    const auto long_one = cache.acquire(memory.part(1, 8), get);
    CHECK(long_one.rights() == access_rights::all);
    CHECK(device.live.size() == 1);
    CHECK(cache.holds(memory.part(2, 1), put));
    CHECK(cache.statistics().evictions == 0);
    CHECK(cache.statistics().registered_bytes == 8 * page);
    ::madvise(memory.data() + 4 * page, page, MADV_DONTNEED);
    CHECK_FALSE(cache.holds(memory.part(1, 1), get));
}

TEST_CASE("overlapping registrations are each found") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(12);
    const std::uint64_t a = key_of(cache, memory.part(0, 6));
    const std::uint64_t b = key_of(cache, memory.part(3, 6), access_rights::all);
    const std::uint64_t c = key_of(cache, memory.part(5, 6));
    CHECK(key_of(cache, memory.part(4, 2)) == b);
    CHECK(key_of(cache, memory.part(1, 3)) == a);
    CHECK(key_of(cache, memory.part(6, 2), put) == b);  // c begins nearer, but has not the right
    CHECK(key_of(cache, memory.part(6, 5)) == c);
    CHECK(device.live.size() == 3);
    ::madvise(memory.data() + 4 * page, page, MADV_DONTNEED);
    CHECK_FALSE(cache.holds(memory.part(0, 1), get));
    CHECK_FALSE(cache.holds(memory.part(3, 1), get));
    CHECK(cache.holds(memory.part(5, 6), get));
}

TEST_CASE("memory that cannot be watched is not kept") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    int flags = MAP_SHARED;
    SECTION("shared memory") {}
    SECTION("a private view of a file") { flags = MAP_PRIVATE; }
    const int file = ::memfd_create("file", MFD_CLOEXEC);
    REQUIRE(::ftruncate(file, static_cast<off_t>(4 * page)) == 0);
    void* view = ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, flags, file, 0);
    REQUIRE(view != MAP_FAILED);
    const std::span<std::byte> memory{static_cast<std::byte*>(view), 4 * page};
    CHECK(key_of(cache, memory) == 1);
    CHECK(device.live.empty());
    CHECK(key_of(cache, memory) == 2);
    CHECK(cache.statistics().unwatchable == 2);
    CHECK(cache.statistics().bypassed == 2);
    ::munmap(view, 4 * page);
    ::close(file);
    // A file on a disk.
    char name[] = "/tmp/rdmacoro-cache-XXXXXX";
    const int on_disk = ::mkstemp(name);
    REQUIRE(on_disk >= 0);
    ::unlink(name);
    REQUIRE(::ftruncate(on_disk, static_cast<off_t>(page)) == 0);
    view = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, flags, on_disk, 0);
    REQUIRE(view != MAP_FAILED);
    CHECK(key_of(cache, {static_cast<std::byte*>(view), page}) == 3);
    CHECK(device.live.empty());
    ::munmap(view, page);
    ::close(on_disk);
}

TEST_CASE("without userfaultfd nothing is kept") {
    detail::unmap_watch_options refused;
    refused.permitted = false;
    detail::unmap_watch watch(refused);
    fake_device device;
    cache_type cache(device, {}, watch);
    CHECK_FALSE(cache.keeps());
    mapped memory(2);
    {
        const auto lease = cache.acquire(memory.all(), get);
        CHECK(lease);
        CHECK(device.live.size() == 1);
        CHECK(cache.statistics().registered_bytes == 2 * page);
    }
    CHECK(device.live.empty());
    CHECK_FALSE(cache.holds(memory.all(), get));
    CHECK(key_of(cache, memory.all()) == 2);
    CHECK(cache.statistics().unwatchable == 2);
    CHECK(cache.statistics().registered_bytes == 0);
}

TEST_CASE("unused registrations are given up when the device has no more room") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(20);
    device.most = 2;
    auto kept = cache.acquire(memory.part(0, 1), get);
    static_cast<void>(key_of(cache, memory.part(2, 1)));
    CHECK(key_of(cache, memory.part(4, 1)) != 0);
    CHECK(cache.statistics().evictions == 1);
    auto other = cache.acquire(memory.part(6, 1), get);
    CHECK(other);
    CHECK_FALSE(cache.acquire(memory.part(8, 1), get));
    CHECK(device.live.size() == 2);
    CHECK(cache.statistics().registered_bytes == device.bytes());
    // What covers more than was asked for is not tried for its own sake.
    kept.reset();
    other.reset();
    cache.clear();
    static_cast<void>(key_of(cache, memory.part(0, 4)));
    device.longest = page;
    CHECK(key_of(cache, memory.part(1, 1), put) != 0);
    CHECK(cache.statistics().bypassed == 1);
    CHECK(device.live.empty());
}

TEST_CASE("a hit allocates nothing") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(64);
    for (std::size_t i = 0; i < 32; ++i) static_cast<void>(key_of(cache, memory.part(2 * i, 1)));
    const std::size_t before = test::allocations();
    for (std::size_t i = 0; i < 1000; ++i) {
        auto lease = cache.acquire(memory.part(2 * (i * 7 % 32), 1), get);
        lease.reset();
    }
    CHECK(test::allocations() == before);
    CHECK(cache.statistics().hits == 1000);
}

TEST_CASE("destroying a cache while a lease exists ends the process") {
    const test::death seen = test::dies([] {
        fake_device device;
        detail::unmap_watch_options refused;
        refused.permitted = false;
        detail::unmap_watch watch(refused);  // no thread, which ThreadSanitizer would not have after a fork
        auto cache = std::make_unique<cache_type>(device, registration_cache_options{}, watch);
        mapped memory(1);
        auto lease = cache->acquire(memory.all(), get);
        cache.reset();
        std::_Exit(0);  // not reached; the lease must not be used after its cache
    });
    CHECK(seen.aborted);
    CHECK_THAT(seen.said, test::contains("a registration_cache was destroyed while a lease exists"));
}

TEST_CASE("a child process keeps nothing of its parent's, and can have its own") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    mapped memory(4);
    auto lease = cache.acquire(memory.part(0, 1), get);
    static_cast<void>(key_of(cache, memory.part(2, 1)));
    const test::death seen = test::dies([&] {
        const auto require = [](bool holds) {
            if (!holds) ::_exit(4);
        };
        require(!cache.holds(memory.part(2, 1), get));
        require(key_of(cache, memory.part(2, 1)) == 3);
        require(device.live.size() == 2);  // those of the parent, which are not ours to end
        lease.reset();
        require(device.live.size() == 2);
        require(cache.statistics().registered_bytes == 0);
        if constexpr (under_thread_sanitizer) return;  // which has no new threads after a fork
        fake_device own;
        cache_type mine(own);
        require(mine.keeps());
        require(key_of(mine, memory.part(2, 1)) == 1);
        require(key_of(mine, memory.part(2, 1)) == 1);
        ::munmap(memory.data() + 2 * page, page);
        require(!mine.holds(memory.part(2, 1), get));
    });
    CHECK(seen.status == 0);
    CHECK(cache.holds(memory.part(2, 1), get));
    CHECK(cache.holds(memory.part(0, 1), get));
    CHECK(device.live.size() == 2);
}

TEST_CASE("a thread that is given the address another thread is still unmapping gets no stale registration") {
    fake_device device;
    cache_type cache(device);
    NEEDS_WATCH(cache);
    // One thread unmaps; as soon as the addresses are free this one takes them, before that call returned.
    for (int round = 0; round < 200; ++round) {
        mapped before(2);
        before.data()[0] = std::byte{1};
        const std::uint64_t stale = key_of(cache, before.all());
        std::thread unmapping([&] { ::munmap(before.data(), 2 * page); });
        void* got = MAP_FAILED;
        do {
            got = ::mmap(before.data(), 2 * page, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        } while (got == MAP_FAILED);
        before.data()[0] = std::byte{2};
        {
            const auto lease = cache.acquire(before.all(), get);
            CHECK(lease.registration().key != stale);
            CHECK(lease.registration().first == std::byte{2});
        }
        unmapping.join();
    }
}

TEST_CASE("many threads unmap while one looks up") {
    fake_device device;
    registration_cache_options options;
    options.max_entries = 24;
    cache_type cache(device, options);
    NEEDS_WATCH(cache);
    constexpr int threads = 4;
    constexpr int rounds = 300;
    constexpr std::size_t slots = 8;
    // Each thread maps a piece anew, with a new number in it, and then lets the cache's thread have it for a while.
    struct slot {
        std::atomic<bool> ready{false};
        std::byte* memory = nullptr;
    };
    std::vector<slot> all(threads * slots);
    std::atomic<int> left{threads};
    std::vector<std::thread> unmapping;
    for (int t = 0; t < threads; ++t) {
        unmapping.emplace_back([&, t] {
            std::mt19937 random(test::seed() + static_cast<unsigned>(t));
            for (int round = 0; round < rounds; ++round) {
                slot& s = all[static_cast<std::size_t>(t) * slots + random() % slots];
                while (s.ready.load(std::memory_order_acquire)) std::this_thread::yield();
                if (s.memory != nullptr) {
                    if (random() % 2 == 0) {
                        ::munmap(s.memory, 2 * page);
                        s.memory = nullptr;
                    } else {
                        ::madvise(s.memory, 2 * page, MADV_DONTNEED);
                    }
                }
                if (s.memory == nullptr) {
                    s.memory = static_cast<std::byte*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                                                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
                }
                s.memory[0] = static_cast<std::byte>(random());
                s.ready.store(true, std::memory_order_release);
            }
            left.fetch_sub(1);
        });
    }
    std::size_t wrong = 0;
    while (left.load() != 0) {
        for (slot& s : all) {
            if (!s.ready.load(std::memory_order_acquire)) continue;
            for (int i = 0; i < 2; ++i) {
                const auto lease = cache.acquire({s.memory, 2 * page}, get);
                if (!lease || lease.registration().first != s.memory[0]) ++wrong;
            }
            s.ready.store(false, std::memory_order_release);
        }
    }
    for (std::thread& each : unmapping) each.join();
    CHECK(wrong == 0);
    CHECK(cache.statistics().hits > 0);
    CHECK(cache.statistics().invalidated > 0);
    CHECK(cache.statistics().registered_bytes == device.bytes());
    for (slot& s : all)
        if (s.memory != nullptr) ::munmap(s.memory, 2 * page);
    cache.clear();
    CHECK(device.live.empty());
}

}  // namespace test_memory_registration_cache
