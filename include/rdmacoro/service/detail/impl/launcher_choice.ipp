// How a launcher is recognized by its variables.
#pragma once

#include <rdmacoro/service/detail/launcher_choice.hpp>
#include <rdmacoro/service/detail/meeting_launcher.hpp>
#include <rdmacoro/service/detail/pmi_launcher.hpp>

#include <string>
#include <vector>

namespace rdmacoro::detail {

/// A process that no launcher started.
class no_launcher final : public launcher {
public:
    no_launcher() { on_one_host_ = true; }
    [[nodiscard]] std::string name() const override { return "alone"; }
    void open(const patience&) override {}
    [[nodiscard]] std::vector<blob> exchange(const blob& mine, const patience&) override { return {mine}; }
    void leave(const patience&) override {}
};

RDMACORO_COLD std::unique_ptr<launcher> choose_launcher(const launch_environment& from, launcher_maker pmix,
                                                        bool alone) {
    if (from.has("RDMACORO_JOB")) return std::make_unique<meeting_launcher>(from);
    if (from.has("PMI_FD")) return std::make_unique<pmi_launcher>(from);
    if (from.has("PMIX_NAMESPACE") || from.has("OMPI_COMM_WORLD_SIZE")) {
        if (pmix != nullptr) return pmix(from);
        throw error(errc::unsupported,
                    "join_job: this process was started by a launcher that speaks PMIx, and the program does "
                    "not: give job_options::pmix = rdmacoro::pmix_launcher of adapters/pmix.hpp, or start it "
                    "with mpiexec of MPICH, srun --mpi=pmi2 or rdmacoro-run");
    }
    if (from.has("PMI_PORT"))
        throw error(errc::unsupported, "join_job: the launcher offers PMI at a port, PMI_PORT=" +
                                           in_quotes(*from.find("PMI_PORT")) +
                                           "; the toolkit speaks it over PMI_FD: leave out -pmi-port");
    for (const char* const name : {"PMI_RANK", "PMI_SIZE", "PALS_RANKID"}) {
        if (!from.has(name)) continue;
        throw error(errc::unsupported,
                    std::string("join_job: ") + name +
                        " says that a launcher started this process, but there is neither "
                        "PMI_FD nor PMIX_NAMESPACE to speak with it: start it with rdmacoro-run, "
                        "or give RDMACORO_JOB, RDMACORO_RANK and RDMACORO_SIZE");
    }
    for (const char* const name : {"RDMACORO_RANK", "RDMACORO_SIZE"}) {
        if (!from.has(name)) continue;
        throw error(errc::unsupported,
                    std::string("join_job: ") + name +
                        " says that a launcher started this process, but RDMACORO_JOB, the "
                        "address of its rendezvous, is not set");
    }
    if (is_one_of_step(from))
        throw error(errc::unsupported,
                    "join_job: srun started this process without PMI: give srun --mpi=pmi2 or --mpi=pmix");
    if (alone) return std::make_unique<no_launcher>();
    throw error(
        errc::invalid_argument,
        "join_job: no launcher started this process: start it with rdmacoro-run, mpiexec or srun, or ask "
        "for a job of one with job_options::alone");
}

}  // namespace rdmacoro::detail
