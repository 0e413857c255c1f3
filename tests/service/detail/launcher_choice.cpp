#include <rdmacoro/service/detail/launcher_choice.hpp>

#include "support/catch.hpp"
#include "support/pmi_server.hpp"

#include <chrono>

namespace test_service_detail_launcher_choice {

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
        {{{"RDMACORO_JOB", ""}, {"RDMACORO_RANK", "1"}, {"RDMACORO_SIZE", "2"}}, "RDMACORO_JOB, the address"},
        {{{"RDMACORO_SIZE", "2"}}, "RDMACORO_SIZE says"},
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

}  // namespace test_service_detail_launcher_choice
