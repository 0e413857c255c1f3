// launcher: what started this process with others, and lets each rank give the others some bytes.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/transport/detail/host_arrivals.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rdmacoro::detail {

/// The variables that launchers set.
class launch_environment {
public:
    launch_environment() = default;
    /// For tests.
    explicit launch_environment(std::map<std::string, std::string, std::less<>> values)
        : values_(std::move(values)) {}
    /// Of this process, as it is now.
    [[nodiscard]] static launch_environment own();

    /// nullptr: it is not set, or empty.
    [[nodiscard]] const std::string* find(std::string_view name) const noexcept;
    [[nodiscard]] bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
    /// Throws `errc::invalid_argument`, with its name and value, where it is set to something else than a number up to `most`.
    [[nodiscard]] std::optional<std::uint32_t> number(std::string_view name, std::uint32_t most) const;

private:
    std::map<std::string, std::string, std::less<>> values_;
};

/// How long a conversation with a launcher may still take. On the thread that waits for its answers.
class patience {
public:
    /// `stop_fd`: readable when the conversation is to end at once; -1: never.
    explicit patience(time_point until, int stop_fd = -1) noexcept : until_(until), stop_fd_(stop_fd) {}

    /// Waits until the descriptor has one of the `events` of `poll`, or an error, or `sooner` has come: false. Throws `errc::timed_out` and
    /// `errc::canceled`.
    bool wait(int fd, short events, time_point sooner = time_point::max()) const;
    /// Throws `errc::timed_out` and `errc::canceled` where it is time; waits for `pause`.
    void sleep(duration pause) const;
    [[nodiscard]] time_point until() const noexcept { return until_; }
    [[nodiscard]] int stop_fd() const noexcept { return stop_fd_; }

private:
    time_point until_;
    int stop_fd_;
};

/// A conversation with what started the process. Its functions block; one thread at a time.
class launcher {
public:
    using blob = std::vector<std::byte>;
    /// Of the bytes that a rank gives.
    static constexpr std::size_t most_bytes = 16384;
    /// A job has no more ranks.
    static constexpr std::uint32_t most_ranks = 1 << 20;

    launcher() = default;
    launcher(const launcher&) = delete;
    launcher& operator=(const launcher&) = delete;
    RDMACORO_DECL virtual ~launcher();

    /// For people: "PMI-1".
    [[nodiscard]] virtual std::string name() const = 0;
    /// Whether its calls may last longer than their limit, and cannot be interrupted: then the thread is left to itself.
    [[nodiscard]] virtual bool may_hang() const noexcept { return false; }

    /// Speaks the first words. The rest may be asked after it.
    virtual void open(const patience& limit) = 0;
    /// Gives `mine` to all ranks; ends with what each gave, by rank. The ranks call it in the same order.
    [[nodiscard]] virtual std::vector<blob> exchange(const blob& mine, const patience& limit) = 0;
    /// The last words: nothing is exchanged any more, and this process may end whenever it likes.
    virtual void leave(const patience& limit) = 0;

    [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    /// Whether all ranks are on one host, as far as the launcher says it.
    [[nodiscard]] std::optional<bool> on_one_host() const noexcept { return on_one_host_; }
    /// The name that the launcher has for this host: ranks with different ones are taken to be on different hosts. May be empty.
    [[nodiscard]] const std::string& host() const noexcept { return host_; }
    /// The address of this host towards the launcher, in numbers. May be empty.
    [[nodiscard]] const std::string& address() const noexcept { return address_; }
    /// Of ranks that have not come within the limit, as far as is known: "; of those on this host rank 3 was not seen". After `open`.
    [[nodiscard]] std::string absent_text();

protected:
    /// For launchers that do not say which ranks are missing. `job`: its name; `here`: the ranks on this host, sorted.
    void look_out(std::string_view job, std::vector<std::uint32_t> here) {
        arrivals_.emplace(job, rank_, std::move(here));
    }

    std::uint32_t rank_ = 0;
    std::uint32_t size_ = 1;
    std::optional<bool> on_one_host_{};
    std::string host_{};
    std::string address_{};

private:
    std::optional<host_arrivals> arrivals_{};
};

/// Of a launcher that the core does not know, such as that of adapters/pmix.hpp.
using launcher_maker = std::unique_ptr<launcher> (*)(const launch_environment& from);

/// Whether srun started this process as one of several. The variables of a step of one task are not: they are in a batch script and in an
/// interactive step, where programs are started by hand.
[[nodiscard]] RDMACORO_DECL bool is_one_of_step(const launch_environment& from);

/// The rank of this process, where a launcher has said it.
[[nodiscard]] RDMACORO_DECL std::optional<std::uint32_t> launched_rank(const launch_environment& from);

/// Which node each rank is on, by the text that PMI has for it, "(vector,(0,2,1))": blocks of a first node, a number of nodes, and ranks on
/// each, again and again. Empty where it cannot be read.
[[nodiscard]] RDMACORO_DECL std::vector<std::uint32_t> read_process_mapping(std::string_view text,
                                                                            std::uint32_t ranks);

/// "2, 5 and 7", "3 and 4", "1, 2, 3 and 61 more": not more than a line.
[[nodiscard]] RDMACORO_DECL std::string list_of_ranks(std::span<const std::uint32_t> ranks,
                                                      std::uint64_t of_them);

/// Of a process that finds its limit over by so much: "; this process stood still, and went on 7 s after its own limit". Empty below a second.
[[nodiscard]] RDMACORO_DECL std::string late_text(duration by);

/// A launcher's words, for an error's text: short and printable.
[[nodiscard]] RDMACORO_DECL std::string in_quotes(std::string_view text);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/launcher.ipp>
#endif
