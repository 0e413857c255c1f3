#include <rdmacoro/service/detail/launcher.hpp>

#include "support/catch.hpp"
#include "support/pmi_server.hpp"

#include <rdmacoro/service/detail/thread_wait.hpp>

#include <chrono>

#include <poll.h>
#include <sys/eventfd.h>

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using detail::launch_environment;

namespace {
using variables = std::map<std::string, std::string, std::less<>>;
}

TEST_CASE("without a launcher there is no job, but one of one where it is asked for") {
    const auto [code, text] =
        error_of([] { static_cast<void>(detail::choose_launcher(launch_environment(), nullptr, false)); });
    CHECK(code == errc::invalid_argument);
    CHECK_THAT(text, contains("no launcher started this process"));
    const auto alone = detail::choose_launcher(launch_environment(), nullptr, true);
    alone->open(patience_of(1s));
    CHECK(alone->name() == "alone");
    CHECK(alone->size() == 1);
    CHECK(alone->on_one_host() == true);
    const std::vector<std::byte> mine(3);
    const auto all = alone->exchange(mine, patience_of(1s));
    CHECK(all == std::vector<std::vector<std::byte>>{mine});
}

TEST_CASE("a launcher that is there and cannot be spoken to is an error that says what to do, and never a "
          "job of one") {
    const std::vector<std::pair<variables, std::string>> all = {
        {{{"PMIX_NAMESPACE", "a"}, {"PMIX_RANK", "0"}}, "adapters/pmix.hpp"},
        {{{"OMPI_COMM_WORLD_SIZE", "2"}}, "adapters/pmix.hpp"},
        {{{"PMI_PORT", "a:1"}, {"PMI_RANK", "0"}}, "leave out -pmi-port"},
        {{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "PMI_RANK says"},
        {{{"PALS_RANKID", "0"}}, "PALS_RANKID says"},
        {{{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}, "--mpi=pmi2"},
        {{{"PMI_FD", "987"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}, "no open descriptor"},
    };
    for (const auto& [values, wanted] : all) {
        const launch_environment from(values);
        const auto [code, text] =
            error_of([&] { static_cast<void>(detail::choose_launcher(from, nullptr, true)); });
        CHECK(code == errc::unsupported);
        CHECK_THAT(text, contains(wanted));
    }
    const launch_environment batch(variables{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
    CHECK(detail::choose_launcher(batch, nullptr, true)->name() == "alone");
    const launch_environment nonsense(variables{{"RDMACORO_JOB", "alpha:7470"}});
    CHECK(error_of([&] { static_cast<void>(detail::choose_launcher(nonsense, nullptr, true)); }).first ==
          errc::address_invalid);
}

TEST_CASE("the rank is read from the variable of whichever launcher there is") {
    CHECK_FALSE(detail::launched_rank(launch_environment()));
    CHECK_FALSE(detail::launched_rank(launch_environment(variables{{"SLURM_PROCID", "0"}})));
    const std::vector<std::pair<variables, std::uint32_t>> all = {
        {{{"RDMACORO_RANK", "3"}, {"PMI_RANK", "1"}}, 3},
        {{{"PMI_RANK", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}, 1},
        {{{"PMIX_RANK", "7"}}, 7},
        {{{"OMPI_COMM_WORLD_RANK", "2"}}, 2},
        {{{"SLURM_PROCID", "5"}, {"SLURM_STEP_ID", "0"}}, 5},
    };
    for (const auto& [values, rank] : all) CHECK(detail::launched_rank(launch_environment(values)) == rank);
    for (const char* const wrong : {"-1", "x", "1x", "4294967296", "1048576", " 1"}) {
        const launch_environment from(variables{{"PMI_RANK", wrong}});
        const auto [code, text] = error_of([&] { static_cast<void>(detail::launched_rank(from)); });
        CHECK(code == errc::invalid_argument);
        CHECK_THAT(text, contains("PMI_RANK"));
    }
}

TEST_CASE("PMI's text of nodes gives the node of each rank, and nothing where it cannot be read") {
    using numbers = std::vector<std::uint32_t>;
    CHECK(detail::read_process_mapping("(vector,(0,1,1))", 3) == numbers{0, 0, 0});
    CHECK(detail::read_process_mapping("(vector,(0,2,1))", 3) == numbers{0, 1, 0});
    CHECK(detail::read_process_mapping("(vector,(0,2,2),(2,1,4))", 8) == numbers{0, 0, 1, 1, 2, 2, 2, 2});
    CHECK(detail::read_process_mapping("(vector,(0,1,1000000))", 2) == numbers{0, 0});
    for (const char* const wrong :
         {"", "(vector)", "(vector,", "(vector,(0,1))", "(vector,(0,0,1))", "(vector,(0,1,0))",
          "(vector,(0,1,1)", "(vector,(0,1,1),)", "(vector,(-1,1,1))", "(vector,(0,1,99999999999))",
          "(matrix,(0,1,1))", "(vector,(0,1,1))x"}) {
        INFO(wrong);
        CHECK(detail::read_process_mapping(wrong, 2).empty());
    }
}

TEST_CASE("ranks are listed in a line, however many they are") {
    std::vector<std::uint32_t> ranks{7};
    CHECK(detail::list_of_ranks(ranks, 1) == "7");
    ranks = {2, 5};
    CHECK(detail::list_of_ranks(ranks, 2) == "2 and 5");
    ranks = {2, 5, 9};
    CHECK(detail::list_of_ranks(ranks, 3) == "2, 5 and 9");
    CHECK(detail::list_of_ranks(ranks, 5) == "2, 5, 9 and 2 more");
    ranks.assign(1000, 1);
    CHECK(detail::list_of_ranks(ranks, 1000).size() < 80);
    CHECK_THAT(detail::list_of_ranks(ranks, 1000), contains("984 more"));
    CHECK(detail::quoted("a\x01\"b") == "\"a??b\"");
    CHECK(detail::quoted(std::string(1000, 'x')).size() < 100);
}

TEST_CASE("patience ends a wait for its limit and for a stop, and tells what is sooner") {
    const int silent = ::eventfd(0, EFD_CLOEXEC);
    const int ready = ::eventfd(1, EFD_CLOEXEC);
    const auto wait = [](const detail::patience& limit, int fd) {
        static_cast<void>(limit.wait(fd, POLLIN));
    };
    CHECK(patience_of(10s).wait(ready, POLLIN));
    CHECK(error_of([&] { wait(patience_of(1ms), silent); }).first == errc::timed_out);
    CHECK(error_of([&] { wait(patience_of(0s), silent); }).first == errc::timed_out);
    CHECK(error_of([&] { wait(patience_of(10s, ready), silent); }).first == errc::canceled);
    CHECK_FALSE(patience_of(10s).wait(silent, POLLIN, detail::monotonic_now() + 1ms));
    CHECK(error_of([&] { patience_of(1ms).sleep(10s); }).first == errc::timed_out);
    patience_of(10s).sleep(1ms);
    ::close(silent);
    ::close(ready);
}

TEST_CASE("the environment of this process has what launchers set, and only that") {
    ::setenv("RDMACORO_TEST_OF_LAUNCHER", "1", 1);
    const launch_environment own = launch_environment::own();
    ::unsetenv("RDMACORO_TEST_OF_LAUNCHER");
    REQUIRE(own.has("RDMACORO_TEST_OF_LAUNCHER"));
    CHECK(*own.find("RDMACORO_TEST_OF_LAUNCHER") == "1");
    CHECK_FALSE(own.has("PATH"));
    CHECK_FALSE(launch_environment(variables{{"PMI_FD", ""}}).has("PMI_FD"));
}
