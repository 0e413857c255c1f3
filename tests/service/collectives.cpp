#include <rdmacoro/service/collectives.hpp>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "support/run.hpp"

#include <array>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace test_service_collectives {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace rc = rdmacoro;

namespace {

// clang-format off: as in the document
using mine = rc::collectives<rc::allreduce<rc::recursive_doubling<rc::up_to<4096>>, rc::rabenseifner<>>,
                             rc::broadcast<rc::binomial<rc::up_to<32768>>, rc::scatter_allgather<>>>;
// clang-format on

constexpr collective_shape shape(collective_kind kind, std::size_t bytes, unsigned ranks,
                                 unsigned hosts = 1) {
    return {.kind = kind, .bytes = bytes, .elements = bytes / 8, .ranks = ranks, .hosts = hosts};
}
constexpr std::string_view chosen(algorithm_choice by, const collective_shape& of) {
    const algorithm* const found = by(of);
    return found != nullptr ? found->name : std::string_view();
}

template <class Change>
std::string_view changed(collective_kind kind, std::size_t bytes, unsigned ranks, Change change) {
    collective_shape s = shape(kind, bytes, ranks);
    change(s);
    const algorithm* const found = default_collectives::choose(s);
    return found != nullptr ? found->name : "none";
}

}  // namespace

TEST_CASE("the first algorithm of a list that admits a shape carries it, and that is known to the compiler") {
    using enum collective_kind;
    STATIC_REQUIRE(mine::choose(shape(allreduce, 4096, 4))->name == "recursive_doubling");
    STATIC_REQUIRE(mine::choose(shape(allreduce, 4104, 4))->name == "rabenseifner");
    STATIC_REQUIRE(mine::choose(shape(broadcast, 32768, 4))->name == "binomial");
    STATIC_REQUIRE(mine::choose(shape(broadcast, 32776, 4))->name == "scatter_allgather");
    STATIC_REQUIRE(mine::choose(shape(barrier, 0, 4)) == nullptr);
    // Fewer elements than ranks cannot be cut.
    STATIC_REQUIRE(collectives<rc::broadcast<scatter_allgather<>>>::choose(shape(broadcast, 24, 4)) ==
                   nullptr);
    // Nor an order kept that an algorithm does not have.
    collective_shape ordered = shape(allreduce, 1 << 20, 4);
    ordered.in_order = true;
    CHECK(mine::choose(ordered) == nullptr);
    CHECK(chosen(&default_collectives::choose, ordered) == "recursive_doubling");
}

TEST_CASE("the default for few and for many ranks") {
    using enum collective_kind;
    const algorithm_choice by = &default_collectives::choose;
    CHECK(chosen(by, shape(barrier, 0, 8)) == "dissemination");
    CHECK(chosen(by, shape(barrier, 0, 8, 2)) == "hierarchical");
    CHECK(chosen(by, shape(barrier, 0, 8, 8)) == "dissemination");
    CHECK(chosen(by, shape(allreduce, 8, 64)) == "recursive_doubling");
    CHECK(chosen(by, shape(allreduce, 65536, 2)) == "recursive_doubling");
    CHECK(chosen(by, shape(allreduce, 65536, 64)) == "rabenseifner");
    CHECK(chosen(by, shape(alltoall, 8, 64)) == "bruck");
    CHECK(chosen(by, shape(alltoall, 1 << 20, 64)) == "pairwise");
    // Every kind has one for every shape.
    for (std::size_t kind = 0; kind < collective_kinds; ++kind) {
        for (const unsigned ranks : {2u, 3u, 8u, 100u}) {
            for (const unsigned flags : {0u, 1u, 2u, 4u, 7u, 9u, 15u}) {
                for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 30}) {
                    collective_shape one = shape(static_cast<collective_kind>(kind), bytes, ranks);
                    one.in_order = (flags & 1) != 0;
                    one.reproducible = (flags & 2) != 0;
                    one.uneven = (flags & 4) != 0;
                    one.left_fold = (flags & 8) != 0 && one.kind >= collective_kind::reduce;
                    INFO(name_of(one.kind) << ' ' << ranks << ' ' << bytes << ' ' << flags);
                    CHECK(by(one) != nullptr);
                }
            }
        }
    }
}

TEST_CASE("explain_collectives has a line where the algorithm changes") {
    const std::string table = explain_collectives(4);
    CHECK(table.find("collectives of 4 ranks on 1 host") == 0);
    CHECK(table.find("allreduce       0            recursive_doubling\n                  8200         "
                     "rabenseifner\n") != std::string::npos);
    CHECK(table.find("none") == std::string::npos);
}

namespace {

/// From which length on a table says that a collective goes by which algorithm.
using lines_of_kinds = std::array<std::map<std::size_t, std::string>, collective_kinds>;
lines_of_kinds lines_of(const std::string& table) {
    lines_of_kinds all;
    std::istringstream in(table);
    std::string line;
    std::size_t kind = collective_kinds;
    std::getline(in, line);
    std::getline(in, line);
    while (std::getline(in, line) && line.find("not associative") == std::string::npos) {
        for (std::size_t which = 0; which < collective_kinds; ++which) {
            if (line.substr(2, line.find(' ', 2) - 2) == name_of(static_cast<collective_kind>(which)))
                kind = which;
        }
        const std::string bytes = line.substr(18, 13);
        all.at(kind)[std::stoull(bytes)] = line.substr(31);
    }
    return all;
}
std::string name_of_choice(const algorithm* found) {
    if (found == nullptr) return "none";
    std::string name(found->name);
    if (!found->steps[0].empty())
        name += " of " + std::string(found->steps[0]) + " and " + std::string(found->steps[1]);
    return name;
}
/// Lengths at which the table says another algorithm than the one that is chosen: every length up to 2 MiB, and
/// some up to 64 MiB.
std::string wrong_lines(unsigned ranks, unsigned hosts, std::size_t& compared) {
    const lines_of_kinds lines = lines_of(explain_collectives(ranks, hosts));
    std::string wrong;
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const auto kind = static_cast<collective_kind>(which);
        auto line = lines.at(which).begin();
        REQUIRE(line != lines.at(which).end());
        const algorithm* last = nullptr;
        bool was_right = true;
        for (std::size_t bytes = 0; bytes <= std::size_t{64} << 20; bytes += bytes < 2u << 20 ? 8 : 8192) {
            bool same_line = true;
            while (std::next(line) != lines.at(which).end() && std::next(line)->first <= bytes) {
                ++line;
                same_line = false;
            }
            const algorithm* const found = default_collectives::choose(shape(kind, bytes, ranks, hosts));
            ++compared;
            if (same_line && found == last && bytes != 0) continue;
            last = found;
            const bool right = name_of_choice(found) == line->second;
            if (!right && was_right)
                wrong += std::to_string(ranks) + " ranks on " + std::to_string(hosts) + " hosts, " +
                         std::string(name_of(kind)) + " of " + std::to_string(bytes) + " bytes: says " +
                         line->second + ", chosen " + name_of_choice(found) + "\n";
            was_right = right;
        }
    }
    return wrong;
}

}  // namespace

TEST_CASE("explain_collectives says of every length what is chosen") {
    std::size_t compared = 0;
    for (const unsigned ranks : {2u, 3u, 4u, 7u, 100u}) {
        for (const unsigned hosts : {1u, 2u, 3u}) {
            if (hosts > ranks || (ranks == 7 && hosts != 2)) continue;
            CHECK(wrong_lines(ranks, hosts, compared) == "");
        }
    }
    CHECK(compared > 11 * collective_kinds * (2u << 20) / 8);
}

TEST_CASE("explain_collectives of no ranks, of no hosts, and of more hosts than ranks is refused") {
    const std::vector<std::pair<unsigned, unsigned>> none{{0, 1}, {0, 0}, {1, 0}, {4, 5}};
    for (const auto& [ranks, hosts] : none) {
        INFO(ranks << ' ' << hosts);
        std::error_code code;
        try {
            static_cast<void>(explain_collectives(ranks, hosts));
        } catch (const std::system_error& e) {
            code = e.code();
        }
        CHECK(code == errc::invalid_argument);
    }
    CHECK(explain_collectives(1).find("collectives of 1 ranks on 1 host") == 0);
    CHECK(explain_collectives(4, 4).find("none") == std::string::npos);
}

TEST_CASE("no algorithm admits a collective of no ranks") {
    STATIC_REQUIRE(default_collectives::choose(shape(collective_kind::allreduce, 1 << 20, 0)) == nullptr);
    STATIC_REQUIRE(default_collectives::choose(shape(collective_kind::barrier, 0, 4, 0)) == nullptr);
    for (std::size_t which = 0; which < collective_kinds; ++which) {
        const auto kind = static_cast<collective_kind>(which);
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{8}, std::size_t{1} << 20}) {
            CHECK(default_collectives::choose(shape(kind, bytes, 0)) == nullptr);
            for (const algorithm& one : algorithms_of(kind)) {
                INFO(name_of(kind) << " by " << one.name);
                CHECK(!one.admits(shape(kind, bytes, 0)));
            }
        }
    }
}

TEST_CASE("after a failure those that are left go on with a smaller group") {
    run_nodes([]() -> task<> {
        ranks<shm> all(3);
        co_await all.open();
        all.vanish(2);
        int ended = 0;
        const auto body = [&ended](group& g) -> task<> {
            if (!g) co_return;
            std::vector<int> x(3, 1);
            if (!co_await rc::as_result(g.allreduce(rc::in_place, x, std::plus<>{}))) {
                g = co_await g.shrink();  // every rank that is left comes here
                co_await g.allreduce(rc::in_place, x, std::plus<>{});
            }
            CHECK(g.size() == 2);
            ++ended;
        };
        co_await all.each(body);
        CHECK(ended == 2);
    });
}

TEST_CASE(
    "an operation with an order, uneven blocks and reproducible sums get an algorithm that keeps them") {
    const auto in_order = [](collective_shape& s) { s.in_order = true; };
    const auto same_bits = [](collective_shape& s) { s.reproducible = true; };
    CHECK(changed(collective_kind::allreduce, 1u << 20, 8, in_order) == "recursive_doubling");
    CHECK(changed(collective_kind::allreduce, 1u << 20, 8, same_bits) == "recursive_doubling");
    CHECK(changed(collective_kind::reduce, 1u << 20, 8, in_order) == "spanning_tree");
    CHECK(changed(collective_kind::reduce_scatter, 1024, 8, in_order) == "by_root");
    CHECK(changed(collective_kind::reduce_scatter, 1024, 8, same_bits) == "recursive_halving");
    CHECK(changed(collective_kind::reduce_scatter, 1u << 20, 8, same_bits) == "recursive_halving");
    CHECK(changed(collective_kind::reduce_scatter, 1024, 7, same_bits) == "recursive_halving");
    CHECK(changed(collective_kind::reduce_scatter, 1u << 20, 7, same_bits) == "recursive_halving");
    const auto uneven = [](collective_shape& s) {
        s.uneven = true;
        s.bytes = s.elements = 0;
    };
    CHECK(changed(collective_kind::gather, 0, 8, uneven) == "overlapped_flat_tree");
    CHECK(changed(collective_kind::scatter, 0, 8, uneven) == "overlapped_flat_tree");
}

TEST_CASE("an algorithm is found by its name, for the kinds that it carries") {
    REQUIRE(find_algorithm(collective_kind::allreduce, "rabenseifner") != nullptr);
    CHECK(find_algorithm(collective_kind::allreduce, "rabenseifner")->name == "rabenseifner");
    CHECK(find_algorithm(collective_kind::barrier, "rabenseifner") == nullptr);
    CHECK(find_algorithm(collective_kind::allreduce, "") == nullptr);
}

TEST_CASE("the table of eight ranks on one host") {
    CHECK(explain_collectives(8) == R"(collectives of 8 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  131080       by_parts of spanning_tree and recursive_doubling
                  1048576      chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            bruck
                  72           overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  65544        by_parts of recursive_halving and spanning_tree
                  524288       ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
}

TEST_CASE("the table of two ranks differs where a short way to the other rank is the best for longer") {
    CHECK(explain_collectives(2) == R"(collectives of 2 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  131080       by_parts of spanning_tree and recursive_doubling
                  262144       chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            pairwise
  reduce          0            spanning_tree
                  65544        by_parts of recursive_halving and spanning_tree
                  131072       ring
  allreduce       0            recursive_doubling
                  131080       rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
}

TEST_CASE("the table of sixty-four ranks on four hosts") {
    CHECK(explain_collectives(64, 4) == R"(collectives of 64 ranks on 4 hosts, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            hierarchical
  broadcast       0            hierarchical
                  65544        binomial
                  131080       by_parts of spanning_tree and recursive_doubling
                  8388608      chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            hierarchical
                  65544        by_parts of recursive_halving and spanning_tree
                  4194304      ring
  allreduce       0            hierarchical
                  16392        rabenseifner
                  524288       ring_by_host
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
}

TEST_CASE("the tables of many ranks: limits know how many there are, and whether that is a power of two") {
    CHECK(explain_collectives(64) == R"(collectives of 64 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  131080       by_parts of spanning_tree and recursive_doubling
                  8388608      chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  65544        by_parts of recursive_halving and spanning_tree
                  4194304      ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
    CHECK(explain_collectives(127) == R"(collectives of 127 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  260096       by_parts of spanning_tree and recursive_doubling
                  16646144     chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            bruck
                  2056         ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  130048       by_parts of recursive_halving and spanning_tree
                  8323072      ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
                  2080768      ring
  reduce_scatter  0            recursive_halving
                  4104         ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
    CHECK(explain_collectives(128) == R"(collectives of 128 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  262144       by_parts of spanning_tree and recursive_doubling
                  16777216     chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            recursive_doubling
                  32776        ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  131072       by_parts of recursive_halving and spanning_tree
                  8388608      ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
  reduce_scatter  0            recursive_halving
                  65544        ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
    CHECK(explain_collectives(1000) == R"(collectives of 1000 ranks on 1 host, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            dissemination
  broadcast       0            binomial
                  2048000      by_parts of spanning_tree and recursive_doubling
                  131072000    chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            bruck
                  2056         ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            spanning_tree
                  1024000      by_parts of recursive_halving and spanning_tree
                  65536000     ring
  allreduce       0            recursive_doubling
                  8200         rabenseifner
                  16384000     ring
  reduce_scatter  0            recursive_halving
                  4104         ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
    CHECK(explain_collectives(1000, 16) == R"(collectives of 1000 ranks on 16 hosts, elements of 8 bytes
  collective      from bytes   algorithm
  barrier         0            hierarchical
  broadcast       0            hierarchical
                  65544        binomial
                  2048000      by_parts of spanning_tree and recursive_doubling
                  131072000    chain
  scatter         0            spanning_tree
                  4104         overlapped_flat_tree
  gather          0            spanning_tree
                  4104         overlapped_flat_tree
  allgather       0            bruck
                  2056         ring
  alltoall        0            bruck
                  264          overlapped_flat_tree
                  8200         pairwise
  reduce          0            hierarchical
                  65544        spanning_tree
                  1024000      by_parts of recursive_halving and spanning_tree
                  65536000     ring
  allreduce       0            hierarchical
                  16392        rabenseifner
                  8192000      ring_by_host
  reduce_scatter  0            recursive_halving
                  4104         ring
  scan            0            log_step
  exscan          0            log_step
  of an operation that is not associative
  reduce          0            flat_tree
  allreduce       0            by_root of flat_tree and binomial
  reduce_scatter  0            by_root of flat_tree and overlapped_flat_tree
  scan            0            chain
  exscan          0            chain
)");
}

}  // namespace test_service_collectives
