#include <rdmacoro/transport/shm/notice_board.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace test_transport_shm_notice_board {

using namespace rdmacoro::detail::shm;

namespace {

std::vector<std::uint32_t> taken(notice_reader& reader, notice_board& board) {
    std::vector<std::uint32_t> links;
    reader.take(board, [&](std::uint32_t link) { links.push_back(link); });
    return links;
}

}  // namespace

TEST_CASE("each marked link is taken once, from the first to the last") {
    const auto board = std::make_unique<notice_board>();
    notice_reader reader;
    CHECK_FALSE(reader.any(*board));
    const std::vector<std::uint32_t> marked = {0, 63, 64, 1023, 1024, 40000, notice_board::most_links - 1};
    for (const std::uint32_t link : marked) board->mark(link);
    for (const std::uint32_t link : marked) CHECK(board->marked(link));
    CHECK_FALSE(board->marked(1));
    std::vector<std::uint32_t> found;
    while (reader.any(*board)) {
        for (const std::uint32_t link : taken(reader, *board)) found.push_back(link);
    }
    CHECK(found == marked);
    for (const std::uint32_t link : marked) CHECK_FALSE(board->marked(link));
    CHECK(taken(reader, *board).empty());
}

TEST_CASE("a mark of which a peer that was killed left only a half is kept whole by the next peer") {
    const auto board = std::make_unique<notice_board>();
    board->marked_links[1000 / notice_board::links_in_word].fetch_or(std::uint64_t{1} << 1000 % 64);
    board->keep_marked(1000);
    std::vector<std::uint32_t> found;
    board->take_all([&](std::uint32_t link) { found.push_back(link); });
    CHECK(found == std::vector<std::uint32_t>{1000});
}

TEST_CASE("a board on which everything is marked is taken in short calls, and every group has its turn") {
    const auto board = std::make_unique<notice_board>();
    const auto mark_all = [&] {
        for (std::uint32_t link = 0; link < notice_board::most_links; ++link) board->mark(link);
    };
    mark_all();
    notice_reader reader;
    bool last_group = false;
    for (int n = 0; n < 1100 && !last_group; ++n) {
        const auto links = taken(reader, *board);
        REQUIRE(links.size() == 64);
        last_group = links.back() == notice_board::most_links - 1;
        board->mark(0);  // a peer that goes on marking
    }
    CHECK(last_group);
}

TEST_CASE("all marks are taken in one call, each once, and a kept mark is set again after it was taken") {
    const auto board = std::make_unique<notice_board>();
    const std::vector<std::uint32_t> marked = {0, 63, 64, 1023, 1024, 40000, notice_board::most_links - 1};
    const auto all = [&] {
        std::vector<std::uint32_t> found;
        board->take_all([&](std::uint32_t link) { found.push_back(link); });
        return found;
    };
    for (int round = 0; round < 2; ++round) {
        for (const std::uint32_t link : marked) {
            board->keep_marked(link);
            board->keep_marked(link);
        }
        CHECK(all() == marked);
        CHECK(all().empty());
    }
}

TEST_CASE("a mark that is set behind the reader's position is taken later") {
    const auto board = std::make_unique<notice_board>();
    notice_reader reader;
    board->mark(0);
    board->mark(64);
    CHECK(taken(reader, *board) == std::vector<std::uint32_t>{0});
    board->mark(1);
    std::vector<std::uint32_t> rest;
    while (reader.any(*board)) {
        for (const std::uint32_t link : taken(reader, *board)) rest.push_back(link);
    }
    CHECK(rest == std::vector<std::uint32_t>{64, 1});
}

TEST_CASE("no mark is lost between markers and a reader on threads of their own") {
    constexpr std::uint32_t links = 3;
    constexpr std::uint32_t stride = 1000;  // two of one group, one of another
    constexpr std::uint32_t rounds = 20000;
    const auto board = std::make_unique<notice_board>();
    std::atomic<std::uint32_t> said[links] = {};
    std::atomic<std::uint32_t> seen[links] = {};
    std::atomic<bool> stuck{false};
    std::vector<std::thread> markers;
    for (std::uint32_t n = 0; n < links; ++n) {
        markers.emplace_back([&, n] {
            for (std::uint32_t round = 1; round <= rounds && !stuck; ++round) {
                said[n].store(round, std::memory_order_release);
                board->mark(n * stride);
                // Without this mark the reader never looks.
                while (seen[n].load(std::memory_order_acquire) != round && !stuck) std::this_thread::yield();
            }
        });
    }
    notice_reader reader;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto all_seen = [&] {
        return std::all_of(std::begin(seen), std::end(seen), [](const auto& s) { return s == rounds; });
    };
    while (!all_seen() && !stuck) {
        if (reader.any(*board)) {
            reader.take(*board, [&](std::uint32_t link) {
                seen[link / stride].store(said[link / stride].load(std::memory_order_acquire),
                                          std::memory_order_release);
            });
        } else {
            std::this_thread::yield();
        }
        if (std::chrono::steady_clock::now() > limit) stuck = true;
    }
    for (std::thread& marker : markers) marker.join();
    CHECK_FALSE(stuck);
}

}  // namespace test_transport_shm_notice_board
