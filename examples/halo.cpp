// halo: heat that spreads over a plate, cut into blocks of columns that belong to processes in a ring. At each step they trade
// the columns at their edges, and compute the middle meanwhile.
//
//     halo shm://a shm://b 0 3 & halo shm://b shm://c 1 3 & halo shm://c shm://a 2 3
#include "by_url.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <vector>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

constexpr std::size_t rows = 60, all_columns = 240;
enum tag : rc::tag_type { rightwards, leftwards, hottest };

/// A block of the plate: its own columns are 1 to `own`; 0 and `own` + 1 are copies of the neighbours' edges, the halo.
struct block {
    explicit block(std::size_t of_own) : own(of_own), cells(rows * (of_own + 2)) {}
    double& at(std::size_t row, std::size_t column) { return cells[row * (own + 2) + column]; }
    /// A column of it: `rows` numbers that lie apart, sent and received in their places.
    auto column(std::size_t which) { return rc::strided(cells, which, 1, own + 2, rows); }

    std::size_t own;
    std::vector<double> cells;
};

/// One step for some columns: each cell moves towards the mean of its neighbours. The first and last row stay as they are.
void spread(block& from, block& to, std::size_t first, std::size_t last) {
    for (std::size_t row = 1; row + 1 < rows; ++row) {
        for (std::size_t c = first; c <= last; ++c) {
            to.at(row, c) =
                (from.at(row - 1, c) + from.at(row + 1, c) + from.at(row, c - 1) + from.at(row, c + 1)) / 4;
        }
    }
}

template <rc::transport T>
rc::task<> halo(std::string_view own_url, std::string_view right_url, std::size_t rank, std::size_t ranks,
                int steps) {
    auto listener = co_await rc::listen<T>(own_url);
    // The neighbours start when they like. Each side of the ring waits for the other, so neither goes first.
    auto [right, left] =
        co_await rc::when_all(rc::connect<T>(right_url, {.retry_for = 10s}), listener.accept());

    std::cerr << "rank " << rank << " has its neighbours" << std::endl;

    block now(all_columns / ranks);
    for (std::size_t c = 1; c <= now.own; ++c) {  // the upper edge of the plate is hot, more so in the middle
        const std::size_t column = rank * now.own + c;
        now.at(0, c) = static_cast<double>(std::min(column, all_columns + 1 - column));
    }
    block next = now;

    for (int step = 0; step < steps; ++step) {
        {
            auto from_left = rc::start(left.recv(now.column(0), tag::rightwards));
            auto from_right = rc::start(right.recv(now.column(now.own + 1), tag::leftwards));
            auto to_right = rc::start(right.send(now.column(now.own), tag::rightwards));
            auto to_left = rc::start(left.send(now.column(1), tag::leftwards));
            spread(now, next, 2, now.own - 1);  // needs no halo
            co_await from_left;
            co_await from_right;
            co_await to_right;
            co_await to_left;
        }
        spread(now, next, 1, 1);
        spread(now, next, now.own, now.own);
        std::swap(now.cells, next.cells);
    }

    // The hottest cell of the next to last row: once around the ring for it.
    double most = 0, others = 0;
    for (std::size_t c = 1; c <= now.own; ++c) most = std::max(most, now.at(rows - 2, c));
    if (rank == 0) co_await right.send(rc::bytes_of(most), tag::hottest);
    co_await left.recv(rc::bytes_of(others), tag::hottest);
    most = std::max(most, others);
    if (rank != 0) co_await right.send(rc::bytes_of(most), tag::hottest);
    if (rank == 0) std::cout << "after " << steps << " steps " << most << " degrees have come through\n";
    co_await rc::when_all(right.close(), left.close());
}

int main(int argc, char** argv) try {
    const std::size_t rank = argc > 4 ? std::stoul(argv[3]) : 1, ranks = argc > 4 ? std::stoul(argv[4]) : 0;
    if (rank >= ranks || all_columns % ranks != 0 || all_columns / ranks < 2) {
        std::cerr << "usage: halo OWN_URL RIGHT_NEIGHBOUR'S_URL RANK RANKS [STEPS]; " << all_columns
                  << " columns are cut into RANKS equal blocks\n";
        return 2;
    }
    const int steps = argc > 5 ? std::stoi(argv[5]) : 5000;
    return run_by_url(argv[1], [=]<class T>() { return halo<T>(argv[1], argv[2], rank, ranks, steps); });
} catch (const std::logic_error&) {  // of std::stoul and std::stoi
    std::cerr << "halo: RANK, RANKS and STEPS are numbers\n";
    return 2;
}
