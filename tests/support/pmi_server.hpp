#pragma once

// Stand-ins for launchers that speak PMI, in this process: one that answers what it is told to, and one that does its work.

#include <rdmacoro/service/detail/launcher.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

namespace rdmacoro::test {

/// The two ends of PMI_FD; the client's is closed here, too, as a client that has failed leaves it open.
struct pmi_pair {
    pmi_pair() {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
        server = ends[0];
        client = ends[1];
    }
    pmi_pair(const pmi_pair&) = delete;
    pmi_pair& operator=(const pmi_pair&) = delete;
    ~pmi_pair() { ::close(server); }

    int server = -1;
    int client = -1;  // its user's
};

inline void write_all(int fd, const std::string& text) {
    if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) return;  // the client has gone
}
/// Empty: the client has gone.
inline std::string read_line(int fd) {
    std::string line;
    for (char c = 0; ::read(fd, &c, 1) == 1;) {
        if (c == '\n') return line;
        line += c;
    }
    return {};
}

/// Answers the lines of one client with texts, one after another, and is silent then.
class scripted_pmi {
public:
    explicit scripted_pmi(std::vector<std::string> answers)
        : answers_(std::move(answers)), answering_([this] { answer(); }) {}
    scripted_pmi(const scripted_pmi&) = delete;
    scripted_pmi& operator=(const scripted_pmi&) = delete;
    ~scripted_pmi() {
        ::shutdown(ends_.server, SHUT_RDWR);
        answering_.join();
    }
    [[nodiscard]] int client() const noexcept { return ends_.client; }
    /// The launcher's variables for it.
    [[nodiscard]] detail::launch_environment
    environment(std::map<std::string, std::string, std::less<>> more = {}) const {
        more.emplace("PMI_FD", std::to_string(ends_.client));
        more.emplace("PMI_RANK", "0");
        more.emplace("PMI_SIZE", "2");
        return detail::launch_environment(std::move(more));
    }

private:
    void answer() {
        for (const std::string& one : answers_) {
            // Only of version 1: one line for each.
            if (read_line(ends_.server).empty()) return;
            if (one == "close") {
                ::shutdown(ends_.server, SHUT_RDWR);
                return;
            }
            write_all(ends_.server, one);
        }
    }
    pmi_pair ends_;
    std::vector<std::string> answers_;
    std::thread answering_;
};

/// A launcher of several ranks, each with a thread, in version 1 or 2. In 2 lengths are written as Slurm does.
class pmi_server {
public:
    explicit pmi_server(std::uint32_t ranks, int version = 1, std::string mapping = {})
        : version_(version), mapping_(std::move(mapping)), ends_(ranks) {
        waiting_.resize(ranks);
        withheld_.resize(ranks);
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            threads_.emplace_back([this, rank] { serve(rank); });
    }
    pmi_server(const pmi_server&) = delete;
    pmi_server& operator=(const pmi_server&) = delete;
    ~pmi_server() {
        for (const pmi_pair& one : ends_) ::shutdown(one.server, SHUT_RDWR);
        for (std::thread& one : threads_) one.join();
    }

    [[nodiscard]] detail::launch_environment
    environment(std::uint32_t rank, std::map<std::string, std::string, std::less<>> more = {}) const {
        more.emplace("PMI_FD", std::to_string(ends_[rank].client));
        more.emplace("PMI_RANK", std::to_string(rank));
        more.emplace("PMI_SIZE", std::to_string(ends_.size()));
        return detail::launch_environment(std::move(more));
    }
    /// Ranks that have said their last words.
    [[nodiscard]] std::uint32_t finalized() {
        const std::lock_guard held(lock_);
        return finalized_;
    }
    /// Names that ranks have published.
    [[nodiscard]] std::size_t published() {
        const std::lock_guard held(lock_);
        return names_.size();
    }
    /// Words that ranks have sent.
    [[nodiscard]] std::size_t asked() {
        const std::lock_guard held(lock_);
        return asked_;
    }
    /// Longest value that it takes; it is told to clients of version 1.
    std::size_t longest = 1024;
    /// The answers that clients get in place of a value, by its key.
    std::map<std::string, std::string> spoilt;
    /// As Hydra does it in version 2: a fence ends at once, and a value that is not there yet is waited for.
    bool fences_at_once = false;
    /// Whether ranks may publish names.
    bool has_names = true;
    /// The answer to a rank that publishes a name comes with that to its next word.
    bool publishes_late = false;

private:
    using fields = std::map<std::string, std::string>;
    /// Instead of an answer: it comes when other ranks have done something.
    static constexpr std::string_view later = "later";

    [[nodiscard]] static fields parse(const std::string& text, char between) {
        fields all;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = std::min(text.find(between, at), text.size());
            const std::string one = text.substr(at, end - at);
            const std::size_t equals = one.find('=');
            if (equals != std::string::npos) all[one.substr(0, equals)] = one.substr(equals + 1);
            at = end + 1;
        }
        return all;
    }
    void serve(std::uint32_t rank) {
        const int fd = ends_[rank].server;
        fields hello = parse(read_line(fd), ' ');
        if (hello["cmd"] != "init") return;
        count();
        while (hello["pmi_version"] != std::to_string(version_)) {
            write_all(fd, "cmd=response_to_init pmi_version=" + std::to_string(version_) +
                              " pmi_subversion=0 rc=-1\n");
            hello = parse(read_line(fd), ' ');
            if (hello["cmd"] != "init") return;
            count();
        }
        write_all(fd, "cmd=response_to_init pmi_version=" + std::to_string(version_) +
                          " pmi_subversion=1 rc=0\n");
        for (;;) {
            const std::string text = version_ == 1 ? read_line(fd) : read_counted(fd);
            if (text.empty()) return;
            const std::lock_guard held(lock_);
            ++asked_;
            const std::string answer = reply(rank, parse(text, version_ == 1 ? ' ' : ';'));
            if (answer.empty()) return;
            if (answer != later && !withheld_[rank].empty()) say(rank, std::exchange(withheld_[rank], {}));
            if (answer != later) say(rank, answer);
        }
    }
    void count() {
        const std::lock_guard held(lock_);
        ++asked_;
    }
    void say(std::uint32_t rank, const std::string& answer) {
        std::array<char, 32> head{};
        if (version_ == 2) std::snprintf(head.data(), head.size(), "%-6zu", answer.size());
        write_all(ends_[rank].server, head.data() + answer + (version_ == 1 ? "\n" : ""));
    }
    [[nodiscard]] static std::string read_counted(int fd) {
        std::array<char, 7> head{};
        if (::recv(fd, head.data(), 6, MSG_WAITALL) != 6) return {};
        std::string text(static_cast<std::size_t>(std::atoi(head.data())), '\0');
        if (::recv(fd, text.data(), text.size(), MSG_WAITALL) != static_cast<ssize_t>(text.size())) return {};
        return text;
    }
    [[nodiscard]] std::string reply(std::uint32_t rank, fields asked) {
        const std::string command = asked["cmd"];
        if (command == "get_maxes")
            return "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=" + std::to_string(longest);
        if (command == "get_my_kvsname") return "cmd=my_kvsname kvsname=" + space();
        if (command == "fullinit")
            return "cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=" + std::to_string(rank) +
                   ";size=" + std::to_string(ends_.size()) + ";appnum=0;";
        if (command == "job-getid") return "cmd=job-getid-response;jobid=" + space() + ";rc=0;";
        if (command == "info-getjobattr")
            return mapping_.empty() ? "cmd=info-getjobattr-response;found=FALSE;rc=0;"
                                    : "cmd=info-getjobattr-response;found=TRUE;value=" + mapping_ + ";rc=0;";
        if (command == "put" || command == "kvs-put") {
            const bool fits = asked["value"].size() <= longest && asked["key"].size() <= 64;
            if (fits) values_[asked["key"]] = asked["value"];
            for (std::uint32_t one = 0; one < waiting_.size() && fences_at_once; ++one) {
                if (waiting_[one] != asked["key"]) continue;
                waiting_[one].clear();
                say(one, value_of(asked["key"]));
            }
            return (version_ == 1 ? "cmd=put_result rc=" : "cmd=kvs-put-response;rc=") +
                   std::string(fits ? "0" : "-1") + (version_ == 1 ? " msg=success" : ";");
        }
        if (fences_at_once && command == "kvs-get" && !values_.contains(asked["key"])) {
            waiting_[rank] = asked["key"];
            return std::string(later);
        }
        if (command == "get" || command == "kvs-get") return value_of(asked["key"]);
        const std::string through = version_ == 1 ? "cmd=barrier_out" : "cmd=kvs-fence-response;rc=0;";
        if (fences_at_once && command == "kvs-fence") return through;
        if (command == "barrier_in" || command == "kvs-fence") {
            if (++arrived_ % ends_.size() == 0) {
                for (std::uint32_t one = 0; one < ends_.size(); ++one) say(one, through);
            }
            return std::string(later);
        }
        if (command == "publish_name" || command == "name-publish") {
            if (has_names) names_.insert(asked[version_ == 1 ? "service" : "name"]);
            std::string answer =
                (version_ == 1 ? "cmd=publish_result rc=" : "cmd=name-publish-response;rc=") +
                std::string(has_names ? "0" : "1") + (version_ == 1 ? " msg=x" : ";");
            if (!publishes_late) return answer;
            withheld_[rank] = std::move(answer);
            return std::string(later);
        }
        if (command == "lookup_name" || command == "name-lookup") {
            const bool found = names_.contains(asked[version_ == 1 ? "service" : "name"]);
            if (version_ == 1)
                return found ? "cmd=lookup_result port=come info=ok rc=0 msg=success"
                             : "cmd=lookup_result rc=1 msg=service_not_found";
            return found ? "cmd=name-lookup-response;port=come;found=TRUE;rc=0;"
                         : "cmd=name-lookup-response;found=FALSE;rc=1;";
        }
        if (command == "finalize") {
            ++finalized_;
            return version_ == 1 ? "cmd=finalize_ack" : "cmd=finalize-response;rc=0;";
        }
        return {};
    }
    /// Of this server alone: ranks of other tests are on this host, too.
    [[nodiscard]] std::string space() const {
        std::string name = "kvs_" + std::to_string(::getpid());
        name += '_' + std::to_string(reinterpret_cast<std::uintptr_t>(this));
        return name;
    }
    [[nodiscard]] std::string value_of(const std::string& key) {
        std::string value = key == "PMI_process_mapping" ? mapping_ : "";
        if (const auto found = values_.find(key); found != values_.end()) value = found->second;
        if (const auto found = spoilt.find(key); found != spoilt.end()) value = found->second;
        if (version_ == 1)
            return value.empty() ? "cmd=get_result rc=-1 msg=key_not_found value=unknown"
                                 : "cmd=get_result rc=0 msg=success value=" + value;
        return value.empty() ? "cmd=kvs-get-response;found=FALSE;rc=0;"
                             : "cmd=kvs-get-response;found=TRUE;value=" + value + ";rc=0;";
    }

    int version_;
    std::string mapping_;
    std::vector<pmi_pair> ends_;
    std::mutex lock_;
    std::map<std::string, std::string> values_;
    std::set<std::string> names_;
    std::vector<std::string> waiting_;  // the key that each rank waits for
    std::vector<std::string> withheld_;
    std::uint64_t arrived_ = 0;
    std::uint32_t finalized_ = 0;
    std::size_t asked_ = 0;
    std::vector<std::thread> threads_;
};

/// The limit of a conversation in a test.
inline detail::patience patience_of(duration limit, int stop_fd = -1) {
    return detail::patience(monotonic_clock::instance().now() + limit, stop_fd);
}

/// The error of a function, as code and text.
template <class F>
std::pair<std::error_code, std::string> error_of(F f) {
    try {
        f();
    } catch (const std::system_error& failed) {
        return {failed.code(), failed.what()};
    }
    return {};
}

}  // namespace rdmacoro::test
