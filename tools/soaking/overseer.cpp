#include "overseer.hpp"

#include "journal.hpp"
#include "mishap.hpp"
#include "plan.hpp"
#include "transports.hpp"
#include "watch.hpp"
#include "worker.hpp"

#include "../pingpong/output.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <system_error>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace soak {

namespace {

[[noreturn]] void fail(const char* what) { throw std::system_error(errno, std::system_category(), what); }

/// Ports that were free a moment ago.
std::vector<std::uint16_t> free_ports(std::size_t count) {
    std::vector<int> sockets;
    std::vector<std::uint16_t> ports;
    for (std::size_t n = 0; n < count; ++n) {
        const int one = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (one < 0) fail("socket");
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof at;
        if (::bind(one, reinterpret_cast<sockaddr*>(&at), length) != 0) fail("bind");
        if (::getsockname(one, reinterpret_cast<sockaddr*>(&at), &length) != 0) fail("getsockname");
        sockets.push_back(one);
        ports.push_back(ntohs(at.sin_port));
    }
    for (const int one : sockets) ::close(one);
    return ports;
}

/// A worker as its overseer sees it, through all its lives.
struct worker_state {
    pid_t process = -1;
    int pipe = -1;
    std::string unread;
    std::uint64_t lives = 0;
    bool ready = false;
    double continue_at = -1;  ///< while it stands still
    double restart_at = -1;   ///< while it is dead
    double progress_at = 0;   ///< of its last line with further rounds
    totals life;
    growth held;
};

class overseer {
public:
    explicit overseer(const options& asked)
        : asked_(asked),
          own_(asked.seed ^ 0x5eed),
          workers_(asked.workers),
          treated_(asked.workers),
          run_(std::to_string(::getpid())),
          ports_(free_ports(asked.workers * asked.transports.size())) {}
    overseer(const overseer&) = delete;
    overseer& operator=(const overseer&) = delete;
    ~overseer() {
        for (worker_state& w : workers_) {
            if (w.process > 0) {
                ::kill(w.process, SIGKILL);
                ::waitpid(w.process, nullptr, 0);
            }
            if (w.pipe >= 0) ::close(w.pipe);
        }
    }

    int run() {
        std::fprintf(stderr, "soak: %.2f minutes, %u workers with %u links each, seed %llu\n", asked_.minutes,
                     asked_.workers, asked_.links, static_cast<unsigned long long>(asked_.seed));
        for (unsigned n = 0; n < asked_.workers; ++n) start(n);
        double next_kill = after(asked_.kill_every);
        double next_stop = after(asked_.stop_every);
        double next_look = 1;
        double next_word = 10;
        while (!at_end()) {
            read_journals(50);
            reap();
            wake_and_restart();
            if (asked_.kill_every > 0 && now() >= next_kill) {
                kill_one();
                next_kill = now() + after(asked_.kill_every);
            }
            if (asked_.stop_every > 0 && now() >= next_stop) {
                stop_one();
                next_stop = now() + after(asked_.stop_every);
            }
            if (now() >= next_look) {
                look();
                most_open_ = std::max(most_open_, open_sessions());
                next_look = now() + 1;
            }
            if (now() >= next_word) {
                say_how_far();
                next_word = now() + (now() < 59 ? 10 : 60);
            }
        }
        finish();
        return summarize();
    }

private:
    [[nodiscard]] double now() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
    }
    /// Workers begin to end: what they tell of their links is as it may be.
    [[nodiscard]] bool at_end() const { return now() >= asked_.minutes * 60; }
    /// A random time, exponentially distributed with that mean, and cut at twice the mean: each kind of event comes in a short run, too.
    double after(double mean) {
        const double uniform = (static_cast<double>(own_.below(1'000'000)) + 1) / 1'000'000;
        return std::min(-std::log(uniform), 2.0) * mean;
    }

    void fault(const std::string& what) {
        faults_.push_back(what);
        std::fprintf(stderr, "FAULT at %.1f s: %s\n", now(), what.c_str());
    }

    void start(unsigned number) {
        worker_state& w = workers_[number];
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) fail("pipe2");
        const worker_place place{number,  w.lives, run_, std::max(0.5, asked_.minutes * 60 - now()),
                                 ends[1], ports_};
        std::fflush(nullptr);
        const pid_t parent = ::getpid();
        w.process = ::fork();
        if (w.process < 0) fail("fork");
        if (w.process == 0) {
            if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(status_fault);
            for (worker_state& other : workers_) {
                if (other.pipe >= 0) ::close(other.pipe);
            }
            ::close(ends[0]);
            ::_exit(run_worker(asked_, place));
        }
        ::close(ends[1]);
        w.pipe = ends[0];
        w.unread.clear();
        w.ready = false;
        w.life = {};
        w.held = {};
        w.progress_at = now();
        w.restart_at = w.continue_at = -1;
        treated_[number].let_go_on(now());  // the life before may have been stopped when it was dead already
        if (w.lives++ != 0) ++restarts_;
    }

    void read_journals(int wait_ms) {
        std::vector<pollfd> waits;
        std::vector<unsigned> of;
        for (unsigned n = 0; n < workers_.size(); ++n) {
            if (workers_[n].pipe < 0) continue;
            waits.push_back({workers_[n].pipe, POLLIN, 0});
            of.push_back(n);
        }
        if (::poll(waits.data(), waits.size(), wait_ms) < 0 && errno != EINTR) fail("poll");
        for (std::size_t i = 0; i < waits.size(); ++i) {
            if (waits[i].revents != 0) read_journal(of[i]);
        }
    }

    /// What is there; to its end where the worker has ended.
    void read_journal(unsigned number) {
        worker_state& w = workers_[number];
        char text[4096];
        const ssize_t n = ::read(w.pipe, text, sizeof text);
        if (n < 0 && errno == EINTR) return;
        if (n <= 0) {
            ::close(w.pipe);
            w.pipe = -1;
            return;
        }
        w.unread.append(text, static_cast<std::size_t>(n));
        for (std::size_t end; (end = w.unread.find('\n')) != std::string::npos; w.unread.erase(0, end + 1))
            take_line(number, w.unread.substr(0, end));
    }

    void take_line(unsigned number, const std::string& line) {
        worker_state& w = workers_[number];
        if (line.starts_with("count ")) {
            totals is;
            if (!is.parse(std::string_view(line).substr(6)))
                return fault("a line that cannot be read: " + line);
            if (is.rounds != w.life.rounds) w.progress_at = now();
            w.life = is;
        } else if (line == "ready") {
            w.ready = true;
        } else if (line.starts_with("fault ")) {
            fault("worker " + std::to_string(number) + ": " + line.substr(6));
        } else if (const auto told = mishap::parse(line); told && told->peer < workers_.size()) {
            take_mishap(number, *told);
        } else {
            fault("a line that cannot be read: " + line);
        }
    }

    void take_mishap(unsigned number, const mishap& told) {
        if (at_end()) return;
        if (told.what == mishap::kind::cut) ++cut_;
        if (told.what == mishap::kind::unanswered) ++unanswered_;
        // A worker that has received a wrong byte closes the link.
        const bool disturbed = asked_.kill_every > 0 || asked_.stop_every > 0 || asked_.corrupt != 0;
        const double began = std::chrono::duration<double>(told.began - began_).count();
        const std::string wrong = judge(number, told, began, treated_, disturbed, now());
        if (!wrong.empty()) fault(wrong);
    }

    void reap() {
        for (unsigned n = 0; n < workers_.size(); ++n) {
            worker_state& w = workers_[n];
            int status = 0;
            if (w.process <= 0 || ::waitpid(w.process, &status, WNOHANG) != w.process) continue;
            w.process = -1;
            while (w.pipe >= 0) read_journal(n);
            // A worker ends by itself, on time: the overseer may be late to end, where it got no core for a while.
            const bool is_over = ending_ || at_end();
            const bool killed =
                WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && treated_[n].killed_at() > now() - 10;
            if (WIFSIGNALED(status) && !killed) {
                fault("worker " + std::to_string(n) + " was ended by signal " +
                      std::to_string(WTERMSIG(status)));
            } else if (WIFEXITED(status) && (WEXITSTATUS(status) != 0 || !is_over)) {
                fault("worker " + std::to_string(n) + " ended with status " +
                      std::to_string(WEXITSTATUS(status)));
            }
            done_ += w.life;
            judge_growth(n);
            if (!is_over) w.restart_at = now() + after(1);
        }
    }

    void judge_growth(unsigned number) {
        const worker_state& w = workers_[number];
        const std::string grown = w.held.judge();
        if (!grown.empty()) fault("worker " + std::to_string(number) + " grew: " + grown);
        if (w.held.long_enough()) lives_judged_.push_back(w.held);
    }

    void wake_and_restart() {
        for (unsigned n = 0; n < workers_.size(); ++n) {
            worker_state& w = workers_[n];
            if (w.process > 0 && w.continue_at >= 0 && now() >= w.continue_at) {
                ::kill(w.process, SIGCONT);
                w.continue_at = -1;
                w.progress_at = now();
                treated_[n].let_go_on(now());
            }
            if (w.process <= 0 && w.restart_at >= 0 && now() >= w.restart_at) start(n);
        }
    }

    /// Worker 0 is never killed, so that a long life is judged.
    void kill_one() {
        const std::size_t n = 1 + own_.below(workers_.size() - 1);
        worker_state& w = workers_[n];
        if (w.process <= 0) return;
        ::kill(w.process, SIGKILL);
        treated_[n].kill(now());
        w.continue_at = -1;
        ++kills_;
    }

    void stop_one() {
        const std::size_t n = own_.below(workers_.size());
        worker_state& w = workers_[n];
        if (w.process <= 0 || w.continue_at >= 0) return;
        ::kill(w.process, SIGSTOP);
        w.continue_at = now() + after(asked_.longest_stop / 2);
        treated_[n].stop(now());
        ++stops_;
    }

    void look() {
        for (unsigned n = 0; n < workers_.size(); ++n) {
            worker_state& w = workers_[n];
            if (w.process <= 0 || !w.ready) continue;
            w.held.add(look_at(w.process, now()));
            if (w.continue_at < 0 && now() - w.progress_at > asked_.round_limit + 30) {
                fault("worker " + std::to_string(n) + " has ended no round for " +
                      std::to_string(asked_.round_limit + 30) + " s");
                w.progress_at = now();
            }
        }
    }

    [[nodiscard]] totals sums() const {
        totals all = done_;
        for (const worker_state& w : workers_) {
            if (w.process > 0) all += w.life;
        }
        return all;
    }

    /// Ends of links, of the processes that run.
    [[nodiscard]] std::uint64_t open_sessions() const {
        std::uint64_t open = 0;
        for (const worker_state& w : workers_) {
            if (w.process > 0) open += w.life.sessions - w.life.ended;
        }
        return open;
    }

    void say_how_far() const {
        const totals all = sums();
        holdings most;
        for (const worker_state& w : workers_) {
            if (w.process <= 0) continue;
            const holdings held = look_at(w.process, 0);
            most.kilobytes = std::max(most.kilobytes, held.kilobytes);
            most.descriptors = std::max(most.descriptors, held.descriptors);
        }
        std::fprintf(
            stderr,
            "%7.0f s: %llu sessions open, %llu rounds, %llu messages, %.1f GB, %llu gets and puts; %u "
            "killed, %u stopped; largest %llu MB, %llu descriptors; %zu faults\n",
            now(), static_cast<unsigned long long>(open_sessions()),
            static_cast<unsigned long long>(all.rounds), static_cast<unsigned long long>(all.messages),
            static_cast<double>(all.bytes) / 1e9, static_cast<unsigned long long>(all.transfers), kills_,
            stops_, static_cast<unsigned long long>(most.kilobytes / 1024),
            static_cast<unsigned long long>(most.descriptors), faults_.size());
    }

    /// The workers end by themselves.
    void finish() {
        ending_ = true;
        for (worker_state& w : workers_) {
            w.restart_at = -1;
            if (w.process > 0 && w.continue_at >= 0) ::kill(w.process, SIGCONT);
        }
        const double limit = now() + 90;
        const auto alive = [&] {
            return std::any_of(workers_.begin(), workers_.end(),
                               [](const worker_state& w) { return w.process > 0; });
        };
        while (alive() && now() < limit) {
            read_journals(50);
            reap();
        }
        for (unsigned n = 0; n < workers_.size(); ++n) {
            if (workers_[n].process > 0) fault("worker " + std::to_string(n) + " did not end");
        }
    }

    int summarize() {
        const totals all = sums();
        nlohmann::ordered_json summary{
            {"seconds", now()},         {"seed", asked_.seed},       {"rounds", all.rounds},
            {"messages", all.messages}, {"bytes", all.bytes},        {"gets_and_puts", all.transfers},
            {"sessions", all.sessions}, {"most_open", most_open_},   {"withdrawn", all.withdrawn},
            {"refused", all.refused},   {"unanswered", unanswered_}, {"cut", cut_},
            {"lost", all.lost},         {"kills", kills_},           {"stops", stops_},
            {"restarts", restarts_},    {"faults", faults_}};
        for (const std::string& name : asked_.transports)
            summary["rounds_over"][name] = all.rounds_over[transport_index(name)];
        for (const growth& g : lives_judged_) {
            const holdings was = g.early();
            const holdings is = g.late();
            summary["long_lives"].push_back({{"kilobytes", {was.kilobytes, is.kilobytes}},
                                             {"descriptors", {was.descriptors, is.descriptors}},
                                             {"mappings", {was.mappings, is.mappings}}});
        }
        // First the table: it is there where the file cannot be written.
        if (asked_.json != "-") print(all);
        pingpong::check_written();
        pingpong::write_to(asked_.json, summary.dump(2) + "\n");
        if (all.rounds == 0) {
            std::fprintf(stderr, "soak: no round has ended\n");
            return status_fault;
        }
        return faults_.empty() ? status_well : status_fault;
    }

    void print(const totals& all) const {
        const auto number = [](const char* what, std::uint64_t value) {
            std::printf("%-34s %llu\n", what, static_cast<unsigned long long>(value));
        };
        number("sessions", all.sessions);
        number("open at a time, at most", most_open_);
        number("rounds", all.rounds);
        for (const std::string& name : asked_.transports)
            number(("rounds over " + name).c_str(), all.rounds_over[transport_index(name)]);
        number("messages, each byte checked", all.messages);
        number("bytes", all.bytes);
        number("gets and puts", all.transfers);
        number("receives withdrawn, posted again", all.withdrawn);
        number("connects that found no listener", all.refused);
        number("connects without an answer", unanswered_);
        number("sessions cut short in a round", cut_);
        number("sessions that lost their peer", all.lost);
        number("killed", kills_);
        number("stopped", stops_);
        number("restarted", restarts_);
        for (const growth& g : lives_judged_) {
            const holdings was = g.early();
            const holdings is = g.late();
            std::printf(
                "a long life: resident %llu to %llu KB, descriptors %llu to %llu, mappings %llu to %llu\n",
                static_cast<unsigned long long>(was.kilobytes), static_cast<unsigned long long>(is.kilobytes),
                static_cast<unsigned long long>(was.descriptors),
                static_cast<unsigned long long>(is.descriptors),
                static_cast<unsigned long long>(was.mappings), static_cast<unsigned long long>(is.mappings));
        }
        for (const std::string& each : faults_) std::printf("fault: %s\n", each.c_str());
        number("faults", faults_.size());
    }

    const options& asked_;
    random own_;
    std::vector<worker_state> workers_;
    std::vector<treatment> treated_;  // of each of them
    std::string run_;
    std::vector<std::uint16_t> ports_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    totals done_;
    std::vector<growth> lives_judged_;
    std::vector<std::string> faults_;
    std::uint64_t most_open_ = 0;
    unsigned kills_ = 0;
    unsigned stops_ = 0;
    unsigned restarts_ = 0;
    unsigned cut_ = 0;  // before the end, as the next
    unsigned unanswered_ = 0;
    bool ending_ = false;
};

}  // namespace

int oversee(const options& asked) {
    pingpong::check_writable(asked.json);
    overseer all(asked);
    return all.run();
}

}  // namespace soak
