#include <rdmacoro/coro/frame_pool.hpp>

#include "support/catch.hpp"
#include "support/counting_new.hpp"
#include "support/death.hpp"

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace test_coro_frame_pool {

using rdmacoro::detail::frame_pool;
using rdmacoro::detail::pool_frames;

TEST_CASE("a frame of the same size class is used again") {
    if (!pool_frames) SKIP_TEST("frames are not pooled under AddressSanitizer");
    void* first = frame_pool::allocate(200);
    frame_pool::deallocate(first, 200);
    void* second = frame_pool::allocate(193);
    CHECK(second == first);
    frame_pool::deallocate(second, 193);
}

TEST_CASE("frames are as large as asked for and do not overlap") {
    std::vector<std::pair<void*, std::size_t>> frames;
    for (std::size_t bytes = 1; bytes < 3 * frame_pool::largest; bytes += 61) {
        void* frame = frame_pool::allocate(bytes);
        CHECK(reinterpret_cast<std::uintptr_t>(frame) % alignof(std::max_align_t) == 0);
        std::memset(frame, static_cast<int>(bytes % 251), bytes);
        frames.emplace_back(frame, bytes);
    }
    for (auto [frame, bytes] : frames) {
        const auto* text = static_cast<const unsigned char*>(frame);
        CHECK(text[0] == bytes % 251);
        CHECK(text[bytes - 1] == bytes % 251);
        frame_pool::deallocate(frame, bytes);
    }
}

TEST_CASE("after warm-up frames allocate nothing") {
    if (!rdmacoro::test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    for (std::size_t bytes = 64; bytes < frame_pool::largest; bytes += 64)
        frame_pool::deallocate(frame_pool::allocate(bytes), bytes);
    const std::size_t before = rdmacoro::test::allocations();
    for (int round = 0; round < 3; ++round) {
        for (std::size_t bytes = 64; bytes < frame_pool::largest; bytes += 64)
            frame_pool::deallocate(frame_pool::allocate(bytes), bytes);
    }
    CHECK(rdmacoro::test::allocations() == before);
}

TEST_CASE("a frame may be freed by a thread that never made one") {
    // What that thread keeps in its lists is freed when it ends.
    std::vector<void*> frames;
    for (int i = 0; i < 10; ++i) frames.push_back(frame_pool::allocate(300));
    std::thread([&] {
        for (void* frame : frames) frame_pool::deallocate(frame, 300);
        void* again = frame_pool::allocate(300);
        if (pool_frames && again != frames.back()) std::abort();
        frame_pool::deallocate(again, 300);
    }).join();
    void* still_works = frame_pool::allocate(300);
    CHECK(still_works != nullptr);
    frame_pool::deallocate(still_works, 300);
}

TEST_CASE("a thread keeps few of the frames that others have made, and all that it has made itself") {
    if (!rdmacoro::test::counts_allocations) SKIP_TEST("allocations are not counted in this build");
    constexpr std::size_t bytes = 3000;
    constexpr std::size_t many = 5000;
    const auto kept = [] {
        std::vector<void*> all;
        all.reserve(2 * many);
        std::size_t before = rdmacoro::test::allocations();
        for (;;) {
            all.push_back(frame_pool::allocate(bytes));
            if (rdmacoro::test::allocations() != before) break;
        }
        for (void* frame : all) frame_pool::deallocate(frame, bytes);
        return all.size() - 1;
    };
    std::vector<void*> frames;
    for (std::size_t n = 0; n < many; ++n) frames.push_back(frame_pool::allocate(bytes));
    std::size_t of_others = many;
    std::thread([&] {
        for (void* frame : frames) frame_pool::deallocate(frame, bytes);
        of_others = kept();
    }).join();
    CHECK(of_others <= 64);
    frames.clear();
    for (std::size_t n = 0; n < many; ++n) frames.push_back(frame_pool::allocate(bytes));
    for (void* frame : frames) frame_pool::deallocate(frame, bytes);
    CHECK(kept() >= many);
}

TEST_CASE("AddressSanitizer sees each frame as an allocation of its own") {
    // A freed one is in its quarantine then: any use is reported, and no other frame has the address soon.
    if (pool_frames) SKIP_TEST("not built with AddressSanitizer");
    void* const frame = frame_pool::allocate(200);
    frame_pool::deallocate(frame, 200);
    CHECK(rdmacoro::test::dies([&] {
              std::printf("%d", *static_cast<volatile char*>(frame));
          }).said.find("heap-use-after-free") != std::string::npos);
}

}  // namespace test_coro_frame_pool
