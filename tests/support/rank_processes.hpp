#pragma once

// The ranks of a job as processes: forked before this one has a scheduler, joined at a meeting that it serves, watched by memory that all
// share, and killed in any case when the test ends.

#include "support/child_process.hpp"
#include "support/meeting.hpp"

#include <rdmacoro/service/job.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace rdmacoro::test {

/// The words of a rank to the others and to the test.
struct rank_notes {
    std::atomic<std::uint64_t> step{0};    // how far it is
    std::atomic<std::uint64_t> failed{0};  // collectives that have ended with an error as they should
    std::atomic<std::int64_t> began{0};    // when what is watched began, in nanoseconds
    std::atomic<bool> in_time{false};      // it died before what it was to die in had ended there
    std::array<char, 4000> said{};         // what is wrong

    void say(std::string_view what) {
        const std::size_t has = std::strlen(said.data());
        const std::size_t more = std::min(what.size(), said.size() - 1 - has);
        std::memcpy(said.data() + has, what.data(), more);
    }
    [[nodiscard]] std::string text() const { return said.data(); }
};

[[nodiscard]] inline std::int64_t nanoseconds_now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/// Whether a text has the number of that rank, beside the address of a rendezvous.
[[nodiscard]] inline bool names(std::string text, unsigned rank) {
    if (const std::size_t url = text.find("tcp://"); url != std::string::npos)
        text.erase(url, text.find(' ', url) - url);
    const std::string number = std::to_string(rank);
    const auto digit = [&](std::size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '9'; };
    for (std::size_t at = text.find(number); at != std::string::npos; at = text.find(number, at + 1)) {
        if (!digit(at + number.size()) && !digit(at - 1)) return true;
    }
    return false;
}

/// The program of a rank once it has joined.
using rank_program = std::function<task<>(job& ranks, rank_notes* notes)>;

/// How ranks reach each other.
struct rank_network {
    std::string name;
    /// Joins, and runs the program.
    void (*run)(const rank_program& program, rank_notes* notes, duration join_limit);
    /// The name of a rank's host; empty: that of the machine.
    std::string (*host)(unsigned rank, unsigned size);
    /// Where its nodes listen.
    std::string address = "127.0.0.1";
};
/// Those that there are here; may be none.
[[nodiscard]] std::vector<rank_network> rank_networks();

/// `Variants`: how the domains of the node's transports are opened.
template <class... Variants>
void run_as_rank(const rank_program& program, rank_notes* notes, duration join_limit) {
    scheduler on;
    on.describe_on_sigusr1();
    const std::tuple<decltype(Variants::open(on))...> domains{Variants::open(on)...};
    on.run([](const auto& in, const rank_program& body, rank_notes* with, duration limit) -> task<> {
        node<typename Variants::transport_type...> here(
            job_node_id(), node_options(),
            *std::get<decltype(Variants::open(std::declval<scheduler&>()))>(in)...);
        job_options options;
        options.limit = limit;
        job ranks = co_await join_job(here, options);
        co_await body(ranks, with);
    }(domains, program, notes, join_limit));
}

class rank_processes {
public:
    /// `first`: what each does before it joins.
    rank_processes(
        const rank_network& over, unsigned size, const rank_program& program,
        duration join_limit = std::chrono::seconds(20),
        const std::function<void(unsigned rank)>& first = [](unsigned) {}) {
        const std::size_t bytes = size * sizeof(rank_notes);
        void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (room == MAP_FAILED) std::abort();
        notes_ = static_cast<rank_notes*>(room);
        for (unsigned rank = 0; rank < size; ++rank) {
            ::new (static_cast<void*>(notes_ + rank)) rank_notes();
            statuses_.emplace_back();
            words_.push_back({::memfd_create("words of a rank", MFD_CLOEXEC)});
            if (words_.back().file < 0) std::abort();
            children_.push_back(std::make_unique<child_process>([&, rank](const std::string& address) {
                ::dup2(words_[rank].file, STDERR_FILENO);
                ::setenv("RDMACORO_JOB", ("tcp://" + address.substr(1)).c_str(), 1);
                ::setenv("RDMACORO_RANK", std::to_string(rank).c_str(), 1);
                ::setenv("RDMACORO_SIZE", std::to_string(size).c_str(), 1);
                ::setenv("RDMACORO_ADDRESS", over.address.c_str(), 1);
                if (address.front() == 's') ::setenv("RDMACORO_SERVED", "1", 1);
                if (const std::string host = over.host(rank, size); !host.empty())
                    ::setenv("RDMACORO_HOST", host.c_str(), 1);
                first(rank);
                try {
                    over.run(program, notes_, join_limit);
                } catch (const std::exception& failed) {
                    notes_[rank].say(std::string("it ended with: ") + failed.what());
                    throw;
                }
            }));
        }
    }
    rank_processes(const rank_processes&) = delete;
    rank_processes& operator=(const rank_processes&) = delete;
    ~rank_processes() {
        children_.clear();
        for (words_of_rank& one : words_) {
            pass_on(one);
            ::close(one.file);
        }
        ::munmap(notes_, statuses_.size() * sizeof(rank_notes));
    }

    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(statuses_.size()); }
    [[nodiscard]] rank_notes& notes(unsigned rank) { return notes_[rank]; }
    [[nodiscard]] pid_t pid(unsigned rank) const { return children_[rank]->pid(); }
    void kill(unsigned rank) { children_[rank]->kill(); }

    /// They meet here.
    void meet() {
        meeting_.emplace(size());
        for (auto& one : children_) one->tell('s' + meeting_->server.address());
    }
    /// They meet at this free address, where rank 0 listens.
    void meet_at(const std::string& address) {
        for (auto& one : children_) one->tell('r' + address);
    }

    /// Waits until it is so, or the limit is over; whether it is.
    template <class Condition>
    bool wait_until(Condition met, std::chrono::milliseconds limit = std::chrono::seconds(20)) {
        const auto until = std::chrono::steady_clock::now() + limit;
        while (!met()) {
            if (std::chrono::steady_clock::now() > until) return false;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
        return true;
    }
    /// Waits for all; those that have not ended then say on the standard error what they wait for, are killed when the test ends, and
    /// have no status.
    bool wait(std::chrono::milliseconds limit = std::chrono::seconds(30)) {
        if (wait_until([this] { return all_ended(); }, limit)) return true;
        for (unsigned rank = 0; rank < size(); ++rank) {
            if (statuses_[rank]) continue;
            std::fprintf(stderr, "rank %u, process %d, has not ended, at step %llu:\n", rank,
                         static_cast<int>(pid(rank)), static_cast<unsigned long long>(notes_[rank].step));
            pass_on(words_[rank]);
            ::kill(pid(rank), SIGUSR1);
            // Its words come in one write; one whose scheduler takes no turn has none.
            wait_until([&] { return has_words(words_[rank]); }, std::chrono::seconds(5));
            pass_on(words_[rank]);
        }
        return false;
    }
    /// As `waitpid` gives it.
    [[nodiscard]] std::optional<int> status(unsigned rank) const { return statuses_[rank]; }
    [[nodiscard]] bool was_killed(unsigned rank) const {
        const auto how = statuses_[rank];
        return how && WIFSIGNALED(*how) && WTERMSIG(*how) == SIGKILL;
    }
    /// The faults of the ranks but for those that were to be killed; empty: all have ended well.
    [[nodiscard]] std::string wrong(const std::vector<unsigned>& killed = {}) const {
        std::string all;
        for (unsigned rank = 0; rank < size(); ++rank) {
            const bool was_to_die = std::find(killed.begin(), killed.end(), rank) != killed.end();
            const auto how = statuses_[rank];
            const std::string said = notes_[rank].text();
            const bool good = was_to_die ? was_killed(rank) : how && *how == 0;
            if (good && said.empty()) continue;
            all += "rank " + std::to_string(rank) + ' ' +
                   (how ? "ended with wait status " + std::to_string(*how) : "has not ended") + ", at step " +
                   std::to_string(notes_[rank].step) + ": " + said + '\n';
        }
        return all;
    }

private:
    /// Standard error of a rank, which is a file in memory.
    struct words_of_rank {
        int file;
        off_t passed_on = 0;
    };
    [[nodiscard]] static bool has_words(const words_of_rank& of) {
        struct stat now{};
        return ::fstat(of.file, &now) == 0 && now.st_size > of.passed_on;
    }
    /// To this process's standard error.
    static void pass_on(words_of_rank& of) {
        std::array<char, 4096> some;
        for (ssize_t got; (got = ::pread(of.file, some.data(), some.size(), of.passed_on)) > 0;) {
            std::fwrite(some.data(), 1, static_cast<std::size_t>(got), stderr);
            of.passed_on += got;
        }
    }

    bool all_ended() {
        bool all = true;
        for (unsigned rank = 0; rank < size(); ++rank) {
            if (statuses_[rank]) continue;
            int how = 0;
            if (children_[rank]->ended(how)) statuses_[rank] = how;
            all = all && statuses_[rank].has_value();
        }
        return all;
    }

    rank_notes* notes_;
    std::vector<std::optional<int>> statuses_;
    std::vector<words_of_rank> words_;
    std::vector<std::unique_ptr<child_process>> children_;
    std::optional<served_meeting> meeting_;
};

}  // namespace rdmacoro::test
