// Long random programs over a simulated network with faults, for every protocol list: 200 seeds in the ordinary run, 50 under a sanitizer, 10,000
// in the hidden test tagged [.nightly]. A seed that fails tells the command that replays it.

#include "support/random_program.hpp"

#include <rdmacoro/protocol/protocols.hpp>

#include "support/catch.hpp"
#include "support/sanitizer.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace test_protocol_random_programs {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

template <class List>
struct named_list {
    using type = List;
    const char* name;
};

template <class Visit>
void each_list(Visit visit) {
    visit(named_list<protocols<get_rendezvous<>>>{"get"});
    visit(named_list<protocols<put_rendezvous<>>>{"put"});
    visit(named_list<protocols<eager<>, get_rendezvous<up_to_transport, from_transport>,
                               put_rendezvous<up_to_transport, from_transport>, segmented<>>>{
        "eager+get+put+segmented"});
    visit(named_list<protocols<eager<>, speculative<get_rendezvous<>>>>{"eager+speculative<get>"});
    visit(named_list<protocols<eager<>, speculative<put_rendezvous<>>>>{"eager+speculative<put>"});
    visit(named_list<protocols<speculative<get_rendezvous<>>>>{"speculative<get>"});
    visit(
        named_list<protocols<eager<>, cooperative_rendezvous<up_to_transport, from_transport>, segmented<>>>{
            "eager+cooperative+segmented"});
    visit(named_list<protocols<eager<>, segmented<>>>{"eager+segmented"});
}

template <class List>
bool run_seed(const named_list<List>& list, std::uint64_t seed, std::size_t& operations,
              std::size_t& received) {
    const random_program_outcome done = random_program<List>::run(seed);
    operations += done.operations;
    received += done.received;
    if (done.failure.empty()) return true;
    FAIL_CHECK("seed " << seed << ", " << list.name << ": " << done.failure << "\nagain: RDMACORO_RANDOM='"
                       << list.name << " " << seed
                       << "' test_protocol 'the random program that RDMACORO_RANDOM names'");
    return false;
}

void run_seeds(std::uint64_t first, std::uint64_t count) {
    constexpr unsigned most_failures = 5;  // of a list
    each_list([&](const auto& list) {
        std::size_t operations = 0;
        std::size_t received = 0;
        unsigned failures = 0;
        std::uint64_t seed = first;
        for (; seed < first + count && failures < most_failures; ++seed)
            failures += run_seed(list, seed, operations, received) ? 0 : 1;
        std::printf("%-32s %llu seeds, %zu operations, %zu messages received, %u failures\n", list.name,
                    static_cast<unsigned long long>(seed - first), operations, received, failures);
        std::fflush(stdout);
        CHECK(received > operations / 10);
    });
}

}  // namespace

TEST_CASE("long random programs on a network with faults, of some seeds for each list") {
    run_seeds(1, under_sanitizer ? 50 : 200);
}

TEST_CASE("a random program does the same each time") {
    each_list([](const auto& list) {
        using program = random_program<typename std::decay_t<decltype(list)>::type>;
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            CAPTURE(list.name, seed);
            const random_program_outcome one = program::run(seed);
            const random_program_outcome other = program::run(seed);
            CHECK(one.trace == other.trace);
            CHECK(one.received == other.received);
            CHECK(one.failure == other.failure);
        }
    });
}

TEST_CASE("long random programs, 10,000 seeds for each list", "[.nightly]") { run_seeds(1, 10'000); }

TEST_CASE("the random program that RDMACORO_RANDOM names", "[.replay]") {
    const char* asked = std::getenv("RDMACORO_RANDOM");
    const std::string_view text(asked != nullptr ? asked : "");
    const std::size_t space = text.find(' ');
    if (space == std::string_view::npos) FAIL("RDMACORO_RANDOM='LIST SEED' is not set");
    const std::uint64_t seed = std::strtoull(asked + space + 1, nullptr, 10);
    bool found = false;
    each_list([&](const auto& list) {
        if (text.substr(0, space) != list.name) return;
        found = true;
        std::size_t operations = 0;
        std::size_t received = 0;
        CHECK(run_seed(list, seed, operations, received));
    });
    CHECK(found);
}

}  // namespace test_protocol_random_programs
