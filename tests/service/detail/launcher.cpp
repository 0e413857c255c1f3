#include <rdmacoro/service/detail/launcher.hpp>

#include "support/catch.hpp"
#include "support/pmi_server.hpp"

#include <rdmacoro/service/detail/thread_wait.hpp>

#include <chrono>

#include <poll.h>
#include <sys/eventfd.h>

namespace test_service_detail_launcher {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using detail::launch_environment;

namespace {
using variables = std::map<std::string, std::string, std::less<>>;
}

TEST_CASE("the rank is read from the variable of whichever launcher there is") {
    CHECK_FALSE(detail::launched_rank(launch_environment()));
    CHECK_FALSE(detail::launched_rank(launch_environment(variables{{"SLURM_PROCID", "0"}})));
    const std::vector<std::pair<variables, std::uint32_t>> all = {
        {{{"RDMACORO_RANK", "3"}, {"PMI_RANK", "1"}}, 3},
        {{{"PMI_RANK", "1"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}}, 1},
        {{{"PMIX_RANK", "7"}}, 7},
        {{{"OMPI_COMM_WORLD_RANK", "2"}}, 2},
        {{{"SLURM_PROCID", "5"}, {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "6"}}, 5},
    };
    // In a step of one task, such as an interactive one, programs are started by hand.
    const variables interactive = {
        {"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}};
    CHECK_FALSE(detail::launched_rank(launch_environment(interactive)));
    CHECK_FALSE(
        detail::launched_rank(launch_environment(variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}})));
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
    CHECK(detail::late_text(999ms).empty());
    CHECK(detail::late_text(7500ms) == "; this process stood still, and went on 7 s after its own limit");
    CHECK(detail::in_quotes("a\x01\"b") == "\"a??b\"");
    CHECK(detail::in_quotes(std::string(1000, 'x')).size() < 100);
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

}  // namespace test_service_detail_launcher
