// Collectives on blocks of elements at equal distances, against the same on elements in a row.

#include <rdmacoro/service/group.hpp>

#include "support/catch.hpp"
#include "support/counted_rows.hpp"
#include "support/counting_new.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace test_service_group_strided {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

#if RDMACORO_WITH_TCP
using strided_transports = std::tuple<shm, tcp, sim>;
#else
using strided_transports = std::tuple<shm, sim>;
#endif

constexpr std::uint64_t untouched = 0xdeadbeef;

/// Elements in blocks at a random distance, and what lies between them.
class spread {
public:
    template <class Random>
    spread(std::vector<std::uint64_t> elements, Random& random) : count_(elements.size()) {
        std::vector<std::size_t> blocks;
        for (std::size_t block = 1; block <= count_; ++block) {
            if (count_ % block == 0) blocks.push_back(block);
        }
        block_ = blocks.empty() ? 1 : blocks[random() % blocks.size()];
        step_ = block_ + random() % 4;
        first_ = random() % 3;
        memory_.assign(first_ + step_ * (count_ / block_) + 3, untouched);
        for (std::size_t at = 0; at < count_; ++at) memory_[place(at)] = elements[at];
    }
    [[nodiscard]] auto view() { return strided(memory_, first_, block_, step_, count_ / block_); }
    [[nodiscard]] auto read_only() {
        return strided(std::span<const std::uint64_t>(memory_), first_, block_, step_, count_ / block_);
    }
    [[nodiscard]] std::vector<std::uint64_t> elements() const {
        std::vector<std::uint64_t> all;
        for (std::size_t at = 0; at < count_; ++at) all.push_back(memory_[place(at)]);
        return all;
    }
    /// What lies between the blocks is as it was.
    [[nodiscard]] bool is_clean() const {
        return std::count(memory_.begin(), memory_.end(), untouched) ==
               static_cast<std::ptrdiff_t>(memory_.size() - count_);
    }

private:
    [[nodiscard]] std::size_t place(std::size_t at) const {
        return first_ + at / block_ * step_ + at % block_;
    }

    std::size_t count_;
    std::size_t block_ = 1;
    std::size_t step_ = 1;
    std::size_t first_ = 0;
    std::vector<std::uint64_t> memory_;
};

using row = std::vector<std::uint64_t>;

[[nodiscard]] row row_of(unsigned rank, std::size_t count) {
    row all;
    for (std::size_t at = 0; at < count; ++at) all.push_back((rank + 1) * 1000 + at % 991);
    return all;
}

/// One collective of each kind, in a row and spread. Ends with the names of those that differ.
task<std::string> compare_all(group& g, std::size_t n, std::uint64_t seed) {
    std::mt19937_64 random(seed * 100 + g.rank());  // another layout at every rank
    const unsigned p = g.size();
    const unsigned rank = g.rank();
    const root last(p - 1);
    const bool is_root = rank == p - 1;
    std::string wrong;
    const auto differs = [&](const char* what, const row& plain, const spread& got) {
        if (plain != got.elements() || !got.is_clean())
            wrong += std::string(what) + " of " + std::to_string(n) + " at " + std::to_string(rank) + "; ";
    };
    const auto given = [](const char* what, const row& before, const spread& after) {
        return before == after.elements() && after.is_clean() ? std::string()
                                                              : std::string(what) + " changed; ";
    };
    const row mine = row_of(rank, n);
    const row wide = row_of(rank, n * p);
    std::vector<std::size_t> counts;
    for (unsigned other = 0; other < p; ++other) counts.push_back(other % 2 == 0 ? n : 0);
    std::size_t total = 0;
    for (const std::size_t count : counts) total += count;

    {
        row x = is_root ? mine : row(n);
        spread y(x, random);
        co_await g.broadcast(x, last);
        co_await g.broadcast(y.view(), last);
        differs("broadcast", x, y);
    }
    {
        row x(n);
        spread y(x, random), all(wide, random);
        co_await g.scatter(wide, x, last);
        co_await g.scatter(all.read_only(), y.view(), last);
        differs("scatter", x, y);
        row few(counts[rank]);
        const auto front = std::span<const std::uint64_t>(wide).first(total);
        spread some(few, random), same(row(front.begin(), front.end()), random);
        co_await g.scatterv(front, counts, few, last);
        co_await g.scatterv(same.view(), counts, some.view(), last);
        differs("scatterv", few, some);
        wrong += given("scatter's", wide, all);
    }
    {
        row x(n * p);
        spread y(x, random), part(mine, random);
        co_await g.gather(mine, x, last);
        co_await g.gather(part.read_only(), y.view(), last);
        differs("gather", x, y);
        row few(total);
        spread some(few, random);
        const row own = row_of(rank, counts[rank]);
        spread from(own, random);
        co_await g.gatherv(own, few, counts, last);
        co_await g.gatherv(from.view(), some.view(), counts, last);
        differs("gatherv", few, some);
        co_await g.allgatherv(own, few, counts);
        co_await g.allgatherv(from.view(), some.view(), counts);
        differs("allgatherv", few, some);
        co_await g.allgather(mine, x);
        co_await g.allgather(part.view(), y.view());
        differs("allgather", x, y);
        co_await g.allgather(in_place, y.view());
        differs("allgather in place", x, y);
        wrong += given("gather's", mine, part);
    }
    {
        row x(n * p);
        spread y(x, random), out(wide, random);
        co_await g.alltoall(wide, x);
        co_await g.alltoall(out.read_only(), y.view());
        differs("alltoall", x, y);
        wrong += given("alltoall's", wide, out);
        co_await g.alltoall(in_place, out.view());
        differs("alltoall in place", x, out);
        const std::vector<std::size_t> each(p, n);
        spread again(wide, random);
        co_await g.alltoallv(again.view(), each, y.view(), each);
        differs("alltoallv", x, y);
    }
    {
        row x(is_root ? n : 0);
        spread y(x, random), part(mine, random);
        co_await g.reduce(mine, x, std::plus<>{}, last);
        co_await g.reduce(part.view(), y.view(), std::plus<>{}, last);
        differs("reduce", x, y);
        spread both(mine, random);
        co_await g.reduce(in_place, both.view(), std::plus<>{}, last);
        differs("reduce in place", is_root ? x : mine, both);
    }
    {
        row x(n);
        spread y(x, random), part(mine, random);
        co_await g.allreduce(mine, x, std::plus<>{});
        co_await g.allreduce(part.read_only(), y.view(), std::plus<>{});
        differs("allreduce", x, y);
        co_await g.allreduce(mine, y.view(), std::plus<>{}, use<by_root<>>);
        differs("allreduce of a row", x, y);
        row into(n);
        co_await g.allreduce(part.view(), into, std::plus<>{});
        if (into != x) wrong += "allreduce into a row; ";
        co_await g.allreduce(in_place, part.view(), std::plus<>{}, reproducible);
        differs("allreduce in place", x, part);
    }
    {
        row x(n);
        spread y(x, random), all(wide, random);
        co_await g.reduce_scatter(wide, x, std::plus<>{});
        co_await g.reduce_scatter(all.view(), y.view(), std::plus<>{});
        differs("reduce_scatter", x, y);
        row few(counts[rank]);
        const row long_enough(wide.begin(), wide.begin() + static_cast<std::ptrdiff_t>(total));
        spread some(few, random), from(long_enough, random);
        co_await g.reduce_scatterv(long_enough, counts, few, std::plus<>{});
        co_await g.reduce_scatterv(from.view(), counts, some.view(), std::plus<>{});
        differs("reduce_scatterv", few, some);
    }
    {
        row x(n);
        spread y(x, random), part(mine, random);
        co_await g.scan(mine, x, std::plus<>{});
        co_await g.scan(part.view(), y.view(), std::plus<>{});
        differs("scan", x, y);
        co_await g.exscan(mine, x, std::plus<>{});
        co_await g.exscan(part.view(), part.view(), std::plus<>{});
        if (rank != 0) differs("exscan over its own memory", x, part);
    }
    co_return wrong;
}

/// The error of a call, thrown at once or when it is awaited.
template <class F>
task<failure> refused(F call) {
    try {
        co_await call();
    } catch (const std::system_error& e) {
        co_return failure{e.code(), e.what()};
    }
    co_return failure{};
}

}  // namespace

TEMPLATE_LIST_TEST_CASE(
    "blocks at random distances give what elements in a row give, and nothing between them changes", "",
    strided_transports) {
    run_nodes([]() -> task<> {
        for (const unsigned size : {1u, 2u, 3u, 4u}) {
            ranks<TestType> all(size);
            co_await all.open();
            for (const std::size_t n : {0u, 1u, 6u, 60u, 5040u}) {
                for (std::uint64_t seed = 1; seed <= 4; ++seed) {
                    std::string wrong;
                    const auto body = [&](group& g) -> task<> {
                        const std::string found = co_await compare_all(g, n, seed);
                        wrong += found;
                    };
                    co_await all.each(body);
                    if (!wrong.empty()) FAIL(std::to_string(size) + " ranks: " + wrong);
                }
            }
        }
    });
}

TEST_CASE("the column of a matrix is broadcast, and elements of any size lie in blocks") {
    run_nodes([]() -> task<> {
        ranks<sim> all(3);
        co_await all.open();
        const auto body = [](group& g) -> task<> {
            constexpr std::size_t columns = 5, rows = 7;
            std::vector<double> matrix(columns * rows, g.rank() == 0 ? 2.5 : 0.0);
            co_await g.broadcast(strided(matrix, 3, 1, columns, rows), root{0});
            double sum = 0;
            for (const double one : matrix) sum += one;
            CHECK(sum == (g.rank() == 0 ? 2.5 * columns * rows : 2.5 * rows));
            struct odd {
                char bytes[3];
            };
            std::vector<odd> letters(8, odd{{'a', 'b', static_cast<char>('c' + g.rank())}});
            std::vector<odd> got(12);
            co_await g.allgather(strided(letters, 0, 1, 2, 4), got);
            CHECK(got[4].bytes[2] == 'd');
            std::vector<float> small(6, 1.0f);
            co_await g.allreduce(in_place, strided(small, 1, 1, 2, 3), std::plus<>{});
            CHECK(small == std::vector<float>{1, 3, 1, 3, 1, 3});
        };
        co_await all.each(body);
    });
}

TEST_CASE(
    "blocks that overlap or lie outside are refused before a collective begins, and the group goes on") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        group& g = all.at(0);
        std::vector<int> x(10);
        std::vector<failure> found;
        found.push_back(co_await refused([&] { return g.broadcast(strided(x, 0, 3, 2, 3), root(0)); }));
        found.push_back(co_await refused([&] { return g.broadcast(strided(x, 2, 3, 4, 3), root(0)); }));
        found.push_back(
            co_await refused([&] { return g.broadcast(strided(x, 1, 1, ~std::size_t{0} / 2, 3), root(0)); }));
        for (std::size_t at = 0; at < found.size(); ++at) {
            INFO(at << ": " << found[at].text);
            CHECK(found[at].code == errc::invalid_argument);
            CHECK(found[at].text.find("strided: ") == 0);
        }
        CHECK(!g.failure());
        const auto body = [](group& one) -> task<> { co_await one.barrier(); };
        co_await all.each(body);
    });
}

TEST_CASE("blocks of a wrong number are refused, and the group says so") {
    run_nodes([]() -> task<> {
        std::vector<int> x(10), y(10);
        const std::span<const int> fixed(x);
        // A wrong argument ends the group: each has one of its own.
        const auto expect = [](auto call) -> task<> {
            ranks<sim> all(2);
            co_await all.open();
            group& g = all.at(0);
            const failure found = co_await refused([&] { return call(g); });
            INFO(found.text);
            CHECK(found.code == errc::invalid_argument);
            REQUIRE(g.failure());
            CHECK(g.failure()->why == errc::invalid_argument);
        };
        co_await expect([&](group& g) { return g.allreduce(strided(fixed, 0, 1, 2, 5), y, std::plus<>{}); });
        co_await expect([&](group& g) { return g.scatter(strided(x, 0, 1, 2, 5), y, root(0)); });
        co_await expect([&](group& g) { return g.alltoall(in_place, strided(x, 0, 1, 2, 5)); });
    });
}

TEST_CASE("blocks that are only read may overlap") {
    run_nodes([]() -> task<> {
        ranks<sim> all(2);
        co_await all.open();
        const auto body = [](group& one) -> task<> {
            const std::vector<int> same{7, 8};
            std::vector<int> got(4);
            co_await one.alltoall(strided(std::span<const int>(same), 0, 2, 0, 2), got);
            CHECK(got == std::vector<int>{7, 8, 7, 8});
        };
        co_await all.each(body);
    });
}

TEST_CASE("a collective of blocks of a size seen before allocates nothing") {
    if (!counts_allocations) SKIP_TEST("allocations are not counted in this build");
    hold_frames();
    run_nodes([]() -> task<> {
        const message_pool stores(message_pool::usual_bytes);
        node_options options = ranks<shm>::usual();
        options.mailbox.pool = &stores;
        ranks<shm> all(2, {}, options);
        co_await all.open();
        for (unsigned rank = 0; rank < 2; ++rank) all.state(rank).checks = false;
        counted_rows counted(stores);
        std::vector<std::vector<double>> memory(2, std::vector<double>(4000));
        const auto body = [&](group& g) -> task<> {
            std::vector<double>& m = memory[g.rank()];
            // In the first row all memory is found that calls of this size need.
            for (int row = 0; row < counted_rows::longest && !counted.settled(); ++row) {
                const bool counts = row != 0 && g.rank() == 0;
                if (counts) counted.begin();
                for (int n = 0; n < 20; ++n) {
                    co_await g.allreduce(in_place, strided(m, 0, 2, 4, 1000), std::plus<>{});
                    co_await g.broadcast(strided(m, 1, 1, 4, 1000), root(1));
                    co_await g.alltoall(strided(m, 0, 1, 4, 1000), strided(m, 2, 1, 4, 1000));
                }
                if (counts) counted.end();
                co_await g.barrier();  // both ranks see whether another row follows
            }
        };
        co_await all.each(body);
        CAPTURE(counted.last());
        CHECK(counted.settled());
        CHECK(stores.footprint() < counted_rows::most);
    });
}

}  // namespace test_service_group_strided
