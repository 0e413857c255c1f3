#include "jobs.hpp"

#include "command.hpp"
#include "keeper.hpp"
#include "meeting.hpp"
#include "output.hpp"

#include <rdmacoro/transport/detail/own_address.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace run {

namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::system_category(), what); }

std::string host_name() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0) return {};
    return name.data();
}

/// Whether something may come there that its writer means for the job.
bool is_input(int fd) noexcept {
    struct stat there{};
    if (::fstat(fd, &there) != 0) return false;
    return S_ISFIFO(there.st_mode) || (S_ISREG(there.st_mode) && there.st_size != 0);
}

struct rank_process {
    pid_t process = -1;
    std::string host;  ///< empty: this one, and by no name
    bool by_ssh = false;
    int words = -1;  ///< of one by ssh: its input
};

class job_run {
public:
    job_run(const options& asked, const sigset_t& for_ranks)
        : asked_(asked),
          for_ranks_(for_ranks),
          places_(place_ranks(asked.hosts, asked.ranks)),
          ranks_(asked.ranks),
          key_(new_key()) {
        for (std::uint32_t rank = 0; rank < asked_.ranks && !places_.empty(); ++rank) {
            ranks_[rank].host = places_[rank];
            ranks_[rank].by_ssh = places_[rank] != "localhost" && places_[rank] != host_name();
            any_by_ssh_ = any_by_ssh_ || ranks_[rank].by_ssh;
        }
        await_signals();
    }
    job_run(const job_run&) = delete;
    job_run& operator=(const job_run&) = delete;
    ~job_run() {
        for (const rank_process& one : ranks_) {
            if (one.words >= 0) ::close(one.words);
            if (one.process > 0) kill_rank(one.process);
        }
        end_children();
        if (signals_ >= 0) ::close(signals_);
    }

    int run() {
        meeting_.emplace(meeting_address(), asked_.ranks, key_);
        raise_limit();
        need_descriptors();
        // Many ranks take a while to start; one may fail meanwhile, or a signal come.
        std::uint32_t begun = 0;
        while (begun < asked_.ranks && !ending_) {
            begin(begun++);
            look_after();
        }
        // That all which began end well is not enough then.
        if (begun < asked_.ranks && status_ == 0) status_ = 128 + first_signal_;
        while (living_ != 0) turn();
        end_children();  // what the ranks have left
        drain();
        tell_user();
        const bool lost_output = to_output_.failed() || to_error_.failed();
        return status_ == 0 && lost_output ? status_failure : status_;
    }

private:
    using clock = std::chrono::steady_clock;

    std::string meeting_address() const {
        if (!asked_.address.empty()) return asked_.address;
        if (!any_by_ssh_) return "127.0.0.1";
        const char* const given = std::getenv("RDMACORO_ADDRESS");
        std::string own = given != nullptr ? given : rdmacoro::detail::own_inet_address();
        if (own.empty()) throw std::runtime_error("this host has no address of its own: give --address");
        return own;
    }

    void await_signals() {
        sigset_t awaited;
        ::sigemptyset(&awaited);
        for (const int one : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT})
            ::sigaddset(&awaited, one);
        signals_ = ::signalfd(-1, &awaited, SFD_CLOEXEC | SFD_NONBLOCK);
        if (signals_ < 0) fail("signalfd");
        std::signal(SIGPIPE, SIG_IGN);
    }

    // ---- the beginning

    /// Of descriptors, for this process; the ranks have the limit that it was started with.
    void raise_limit() noexcept {
        if (::getrlimit(RLIMIT_NOFILE, &ranks_limit_) != 0) return;
        rlimit most = ranks_limit_;
        most.rlim_cur = most.rlim_max;
        has_raised_ = most.rlim_cur != ranks_limit_.rlim_cur && ::setrlimit(RLIMIT_NOFILE, &most) == 0;
    }
    /// Where the meeting has no descriptor for a rank's connection, all ranks wait for that one until their limit: this is an error before they begin.
    void need_descriptors() const {
        std::size_t needed = asked_.tag_output ? 5 : 3;  // while a rank is started
        for (const rank_process& one : ranks_)
            needed += std::size_t{1} + (asked_.tag_output ? 2 : 0) + (one.by_ssh ? 1 : 0);
        std::vector<int> tried;
        tried.reserve(needed);
        int why = 0;
        while (why == 0 && tried.size() < needed) {
            const int fd = ::fcntl(signals_, F_DUPFD_CLOEXEC, 0);
            if (fd >= 0) {
                tried.push_back(fd);
            } else {
                why = errno;
            }
        }
        for (const int fd : tried) ::close(fd);
        if (why == 0) return;
        const std::string what = std::to_string(asked_.ranks) + " ranks need " + std::to_string(needed) +
                                 " descriptors (ulimit -n), " + std::to_string(tried.size()) + " are free";
        throw std::system_error(why, std::system_category(), what);
    }

    /// One that cannot be started is a failure, as one that ends badly.
    void begin(std::uint32_t rank) {
        try {
            start(rank);
        } catch (const std::exception& failed) {
            note(std::string("run: ") + failed.what() + (rank != 0 ? ": ending the others\n" : "\n"));
            if (status_ == 0) status_ = status_failure;
            end_all(SIGTERM);
        }
    }
    void start(std::uint32_t rank) {
        rank_process& one = ranks_[rank];
        const variables set = variables_of(asked_, meeting_->url(), rank, places_);
        std::vector<std::string> words = asked_.command;
        std::vector<std::string> environment;
        if (one.by_ssh) {
            std::array<char, 4096> folder{};
            if (::getcwd(folder.data(), folder.size()) == nullptr) fail("getcwd");
            words = {asked_.ssh};
            // A question would stop it without a word: its process group is in the background of the terminal. Ranks that share a connection would have
            // one end only with the other.
            if (asked_.ssh == "ssh")
                words.insert(words.end(),
                             {"-o", "BatchMode=yes", "-o", "ControlMaster=no", "-o", "ControlPath=none"});
            words.insert(words.end(), {one.host, remote_command(asked_, set, folder.data())});
            environment = environment_with({});
        } else {
            variables with_key = set;
            with_key["RDMACORO_KEY"] = key_;
            environment = environment_with(with_key);
        }
        // Of the pipes each child has its own end; all of them are closed by exec.
        std::array<int, 2> in{-1, -1}, out{-1, -1}, err{-1, -1}, failed{-1, -1};
        if (one.by_ssh && ::pipe2(in.data(), O_CLOEXEC) != 0) fail("pipe2");
        if (one.by_ssh && ::fcntl(in[1], F_SETFL, O_NONBLOCK) != 0) fail("fcntl");  // it may never read
        if (asked_.tag_output && (::pipe2(out.data(), O_CLOEXEC) != 0 || ::pipe2(err.data(), O_CLOEXEC) != 0))
            fail("pipe2");
        if (::pipe2(failed.data(), O_CLOEXEC) != 0) fail("pipe2");
        // The input of run is rank 0's. A process group that is not a terminal's own is stopped when it reads from it.
        const bool has_input = rank == 0 && !one.by_ssh && ::isatty(0) == 0;
        if (rank == 0 && one.by_ssh && is_input(0))
            note("run: rank 0 is on " + one.host + ", and has no input\n");
        if (!one.by_ssh && !has_input && (in[0] = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
            fail("/dev/null");
        std::vector<char*> arguments, variables;
        for (std::string& word : words) arguments.push_back(word.data());
        for (std::string& word : environment) variables.push_back(word.data());
        arguments.push_back(nullptr);
        variables.push_back(nullptr);

        const pid_t parent = ::getpid();
        one.process = ::fork();
        if (one.process < 0) fail("fork");
        if (one.process == 0) {
            ::setpgid(0, 0);
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::getppid() != parent) ::_exit(127);
            // A script without job control has those that it starts in the background ignore them; here they are sent on purpose.
            for (const int usual : {SIGPIPE, SIGINT, SIGQUIT}) std::signal(usual, SIG_DFL);
            if (has_raised_) ::setrlimit(RLIMIT_NOFILE, &ranks_limit_);
            if (in[0] >= 0) ::dup2(in[0], 0);
            if (out[1] >= 0) ::dup2(out[1], 1);
            if (err[1] >= 0) ::dup2(err[1], 2);
            ::sigprocmask(SIG_SETMASK, &for_ranks_, nullptr);
            ::execvpe(arguments[0], arguments.data(), variables.data());
            const int why = errno;
            static_cast<void>(::write(failed[1], &why, sizeof why));
            ::_exit(127);
        }
        ::setpgid(one.process, one.process);  // whichever of both is first
        ++living_;
        for (const int fd : {in[0], out[1], err[1], failed[1]}) {
            if (fd >= 0) ::close(fd);
        }
        if (one.by_ssh) {
            one.words = in[1];
            say(one, key_);
        }
        if (asked_.tag_output) {
            outputs_.emplace_back(rank, out[0], to_output_);
            outputs_.emplace_back(rank, err[0], to_error_);
        }
        int why = 0;
        const bool not_begun = ::read(failed[0], &why, sizeof why) == static_cast<ssize_t>(sizeof why);
        ::close(failed[0]);
        if (not_begun) throw std::runtime_error(words[0] + ": " + std::strerror(why));
    }

    // ---- while they run

    void turn() {
        std::vector<pollfd> on{{signals_, POLLIN, 0}};
        for (const tagged_output& one : outputs_) on.push_back({one.descriptor(), POLLIN, 0});
        if (::poll(on.data(), on.size(), patience()) < 0 && errno != EINTR) fail("poll");
        for (std::size_t n = 1; n < on.size(); ++n) {
            if (on[n].revents != 0) outputs_[n - 1].forward();
        }
        look_after();
        tell_user();
    }
    /// In milliseconds, for `poll`: until something is to be done.
    [[nodiscard]] int patience() const {
        const clock::time_point next = killed_ ? ssh_patience_ : kill_at_;
        if (next == clock::time_point::max()) return -1;
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - clock::now()).count();
        return static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 60'000));
    }
    /// Signals, among them those of ranks that have ended, and limits that have passed.
    void look_after() {
        signalfd_siginfo came{};
        while (::read(signals_, &came, sizeof came) == static_cast<ssize_t>(sizeof came))
            take_signal(static_cast<int>(came.ssi_signo), static_cast<pid_t>(came.ssi_pid));
        if (!killed_ && clock::now() >= kill_at_) kill_all();
        if (clock::now() >= ssh_patience_) kill_ssh();
    }
    /// For what is written: the reader may not read for hours. False: this was told to end, and the ranks have.
    bool until_writable(int to) {
        for (;;) {
            if (living_ == 0 && interrupted_ && killed_) return false;
            std::array<pollfd, 2> on{{{to, POLLOUT, 0}, {signals_, POLLIN, 0}}};
            if (::poll(on.data(), on.size(), patience()) < 0 && errno != EINTR) fail("poll");
            if (on[0].revents != 0) return true;
            look_after();
        }
    }
    /// Kept until what it tells of has been done.
    void note(const std::string& text) { notes_ += text; }
    void tell_user() {
        while (!notes_.empty()) to_error_.write(std::exchange(notes_, {}));
    }

    void take_signal(int number, pid_t from) {
        switch (number) {
            case SIGCHLD: return reap(from);
            case SIGTSTP:
            case SIGUSR1:
            case SIGUSR2:
            case SIGCONT: return tell_all(number);
            default: break;
        }
        if (std::exchange(interrupted_, true)) {
            if (clock::now() >= again_at_) kill_all();
            return;
        }
        // One stop may come twice: `timeout` signals its child and then its group, the end of a cgroup both processes of `run`.
        again_at_ = clock::now() + std::chrono::seconds(1);
        note("run: signal " + std::to_string(number) + " (" + strsignal(number) + "): ending all ranks\n");
        first_signal_ = number;
        end_all(number);
    }

    /// The one that the signal is of comes first: of several it is that which ended first, and the others may have ended of that.
    void reap(pid_t first) {
        int status = 0;
        if (::waitpid(first, &status, WNOHANG) == first) reaped(first, status);
        for (pid_t process; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) reaped(process, status);
    }
    void reaped(pid_t process, int status) {
        const auto found = std::find_if(ranks_.begin(), ranks_.end(),
                                        [&](const rank_process& one) { return one.process == process; });
        if (found != ranks_.end()) ended(static_cast<std::uint32_t>(found - ranks_.begin()), status);
    }

    void ended(std::uint32_t rank, int status) {
        rank_process& one = ranks_[rank];
        // The processes that it has started and left.
        ::kill(-one.process, SIGKILL);
        one.process = -1;
        if (one.words >= 0) ::close(std::exchange(one.words, -1));
        --living_;
        meeting_->ended(rank);
        if (status == 0) return;
        const bool by_signal = WIFSIGNALED(status);
        const int number = by_signal ? WTERMSIG(status) : WEXITSTATUS(status);
        const int result = by_signal ? 128 + number : number;
        if (status_ == 0) status_ = result;
        if (ending_) return;  // it was told to
        const std::string where = one.host.empty() ? "" : " on " + one.host;
        const std::string how =
            by_signal ? "was ended by signal " + std::to_string(number) + " (" + strsignal(number) + ')'
                      : "ended with status " + std::to_string(number);
        std::string others = ": ending the others";
        if (living_ == 0) others.clear();
        if (one.by_ssh && !by_signal && number == 255)
            others += "; 255 is also what ssh says of its own failures";
        note("run: rank " + std::to_string(rank) + where + ' ' + how + others + '\n');
        end_all(SIGTERM);
    }

    // ---- the end

    void end_all(int first_signal) {
        if (!ending_)
            kill_at_ =
                clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(asked_.grace * 1000));
        ending_ = true;
        tell_all(first_signal);
        tell_all(SIGCONT);  // one that stands still hears nothing
    }
    void kill_all() {
        killed_ = true;
        for (std::uint32_t rank = 0; rank < asked_.ranks; ++rank) {
            rank_process& one = ranks_[rank];
            if (one.process < 0) continue;
            note("run: rank " + std::to_string(rank) + " does not end: SIGKILL\n");
            if (one.by_ssh) {
                say(one, "KILL");
                ::close(std::exchange(one.words, -1));
            } else {
                kill_rank(one.process);
            }
        }
        // Where the other host does not answer, what is here ends all the same.
        if (any_by_ssh_ && ssh_patience_ == clock::time_point::max())
            ssh_patience_ = clock::now() + std::chrono::seconds(5);
    }
    /// With what it has started, also where it has gone to another process group.
    static void kill_rank(pid_t process) noexcept {
        ::kill(-process, SIGKILL);
        ::kill(process, SIGKILL);
    }
    void kill_ssh() {
        ssh_patience_ = clock::time_point::max();
        for (const rank_process& one : ranks_) {
            if (one.process < 0) continue;
            note("run: " + one.host + " does not answer: a rank may be left there\n");
            kill_rank(one.process);
        }
    }
    void tell_all(int number) {
        for (rank_process& one : ranks_) {
            if (one.process < 0) continue;
            if (!one.by_ssh) {
                if (::kill(-one.process, number) != 0) ::kill(one.process, number);  // it has left its group
            } else if (const char* const name = sigabbrev_np(by_ssh(number))) {
                say(one, name);
            }
        }
    }
    /// A shell without job control has its programs in the background ignore SIGINT and SIGQUIT, and a session that has no terminal is not stopped by
    /// SIGTSTP.
    static int by_ssh(int number) noexcept {
        if (number == SIGTSTP) return SIGSTOP;
        return number == SIGINT || number == SIGQUIT ? SIGTERM : number;
    }
    static void say(const rank_process& to, const std::string& line) {
        if (to.words < 0) return;
        const std::string all = line + '\n';
        static_cast<void>(::write(to.words, all.data(), all.size()));  // without waiting for room
    }

    /// What is in the pipes. All that the job has started has ended: what still writes there is no part of it, and is not waited for.
    void drain() {
        for (tagged_output& one : outputs_) {
            int there = 0;
            if (one.descriptor() >= 0 && ::ioctl(one.descriptor(), FIONREAD, &there) != 0) fail("FIONREAD");
            for (auto unread = static_cast<std::size_t>(there); unread != 0;) {
                const std::size_t got = one.forward();
                if (got == 0 && one.descriptor() < 0) break;
                unread -= std::min(got, unread);
            }
            one.end();
        }
    }

    const options& asked_;
    sigset_t for_ranks_;
    std::vector<std::string> places_;
    std::vector<rank_process> ranks_;
    std::string key_;
    bool any_by_ssh_ = false;
    int signals_ = -1;
    rlimit ranks_limit_{};
    bool has_raised_ = false;
    std::optional<meeting> meeting_;
    std::string notes_;
    common_output to_output_{STDOUT_FILENO, [this](int to) { return until_writable(to); },
                             [this](const std::string& text) { note(text); }};
    common_output to_error_{STDERR_FILENO, [this](int to) { return until_writable(to); },
                            [this](const std::string& text) { note(text); }};
    std::vector<tagged_output> outputs_;
    std::size_t living_ = 0;
    int status_ = 0;
    int first_signal_ = 0;
    bool ending_ = false;
    bool interrupted_ = false;
    /// Once interrupted: from then on a signal is a second one, and does not repeat the first.
    clock::time_point again_at_{};
    bool killed_ = false;
    clock::time_point kill_at_ = clock::time_point::max();
    clock::time_point ssh_patience_ = clock::time_point::max();
};

}  // namespace

int run_job(const options& asked) {
    return run_kept([&](const sigset_t& for_ranks) {
        job_run all(asked, for_ranks);
        return all.run();
    });
}

}  // namespace run
