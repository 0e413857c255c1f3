// A job that sends a word around, for tests of launchers: each rank adds its number to the sum of those before it, over whichever transport leads to
// the next one. Rank 0 prints the sum, what started the job, and how it reaches its neighbours; every rank prints how long joining took, and the
// sum that an allreduce of the job's group has.
// --exit-before-joining RANK, --exit-after-joining RANK: that rank ends with status 3.
// --words-alone: no job; the words of PMI-1 that joining takes are sent and answered with nothing of the library between, and how long that took is
// printed: what joining is compared with.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/job.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_PMIX
#include <rdmacoro/adapters/pmix.hpp>
#endif

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include <unistd.h>

namespace rc = rdmacoro;

#if RDMACORO_WITH_TCP
using node = rc::node<rc::shm, rc::tcp>;
#else
using node = rc::node<rc::shm>;
#endif

rc::task<std::uint64_t> from_before(node::peer_type before) {
    std::uint64_t sum = 0;
    co_await before.recv(std::as_writable_bytes(std::span(&sum, 1)), 1);
    co_return sum;
}

rc::task<int> ring(rc::job_options options, long leaves) {
    node here(rc::job_node_id());
    const auto began = std::chrono::steady_clock::now();
    rc::job ranks = co_await rc::join_job(here, std::move(options));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    std::printf("rank %u of %u, %u of %zu here, host %u of %u: joined by %s in %.2f ms\n", ranks.rank(),
                ranks.size(), ranks.local_rank(), ranks.ranks_on_this_host().size(),
                ranks.host_of(ranks.rank()), ranks.hosts(), std::string(ranks.launcher()).c_str(),
                took.count());
    std::fflush(stdout);
    if (leaves == static_cast<long>(ranks.rank())) co_return 3;
    std::uint64_t all = ranks.rank();
    co_await rc::timeout(ranks.world().allreduce(rc::in_place, std::span(&all, 1), std::plus<>{}),
                         std::chrono::seconds(20));
    std::printf("rank %u: allreduce %llu\n", ranks.rank(), static_cast<unsigned long long>(all));
    std::fflush(stdout);
    co_await rc::timeout(ranks.leave(), std::chrono::seconds(20));
    if (ranks.size() == 1) {
        std::printf("sum 0\n%s", ranks.explain().c_str());
        co_return 0;
    }
    auto next = here.peer(ranks.node_of((ranks.rank() + 1) % ranks.size()));
    auto before = here.peer(ranks.node_of((ranks.rank() + ranks.size() - 1) % ranks.size()));
    std::uint64_t sum = 0;
    if (ranks.rank() != 0) sum = co_await rc::timeout(from_before(before), std::chrono::seconds(20));
    sum += ranks.rank();
    co_await rc::timeout(next.send(std::as_bytes(std::span(&sum, 1)), 1), std::chrono::seconds(20));
    if (ranks.rank() == 0) {
        sum = co_await rc::timeout(from_before(before), std::chrono::seconds(20));
        std::printf("sum %llu\n%s%s", static_cast<unsigned long long>(sum), ranks.explain().c_str(),
                    here.explain(next.id()).c_str());
    }
    co_await here.close();
    co_return 0;
}

/// Sends `text` as a line to the launcher and returns the line that it answers; throws where it answers nothing.
std::string answered(int launcher, std::string text) {
    text += '\n';
    if (::write(launcher, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
        throw std::runtime_error("the launcher takes no words");
    std::string line;
    while (line.empty() || line.back() != '\n') {
        std::array<char, 1024> some;
        const ssize_t got = ::read(launcher, some.data(), some.size());
        if (got <= 0) throw std::runtime_error("the launcher does not answer " + text);
        line.append(some.data(), static_cast<std::size_t>(got));
    }
    line.pop_back();
    return line;
}

int words_alone() {
    const auto number = [](const char* name) {
        const char* const text = std::getenv(name);
        if (text == nullptr) throw std::runtime_error(std::string(name) + " is not set");
        return std::atoi(text);
    };
    const int launcher = number("PMI_FD"), rank = number("PMI_RANK"), size = number("PMI_SIZE");
    const auto began = std::chrono::steady_clock::now();
    answered(launcher, "cmd=init pmi_version=1 pmi_subversion=1");
    answered(launcher, "cmd=get_maxes");
    const std::string space = answered(launcher, "cmd=get_my_kvsname");
    const std::string in_it = " " + space.substr(space.find("kvsname="));
    answered(launcher, "cmd=get" + in_it + " key=PMI_process_mapping");
    const std::string value(200, 'a');
    answered(launcher, "cmd=put" + in_it + " key=word-" + std::to_string(rank) + " value=" + value);
    answered(launcher, "cmd=barrier_in");
    for (int other = 0; other < size; ++other) {
        if (other == rank) continue;
        const std::string got = answered(launcher, "cmd=get" + in_it + " key=word-" + std::to_string(other));
        if (got.find(value) == std::string::npos) throw std::runtime_error("the launcher answered " + got);
    }
    answered(launcher, "cmd=finalize");
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    std::printf("rank %d of %d: the words alone took %.2f ms\n", rank, size, took.count());
    return 0;
}

int main(int argc, char** argv) {
    rc::job_options options;
    options.limit = std::chrono::seconds(20);
    long leaves = -1;
    bool words = false;
    for (int n = 1; n < argc; ++n) {
        const std::string_view word(argv[n]);
        const char* const value = n + 1 < argc ? argv[n + 1] : "";
        if (word == "--alone") {
            options.alone = true;
        } else if (word == "--words-alone") {
            words = true;
        } else if (word == "--limit-ms") {
            options.limit = std::chrono::milliseconds(std::atol(value));
            ++n;
        } else if (word == "--exit-before-joining") {
            if (rc::job_node_id() == static_cast<rc::node_id>(std::atol(value) + 1)) return 3;
            ++n;
        } else if (word == "--exit-after-joining") {
            leaves = std::atol(value);
            ++n;
        } else {
            std::fprintf(stderr, "ring: unknown option %s\n", argv[n]);
            return 2;
        }
    }
#if RDMACORO_WITH_PMIX
    options.pmix = rc::pmix_launcher;
#endif
    try {
        if (words) return words_alone();
        return rc::scheduler{}.run(ring(std::move(options), leaves));
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "ring: %s\n", failed.what());
        return 1;
    }
}
