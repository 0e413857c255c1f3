// The parts that launchers share.
#pragma once

#include <rdmacoro/service/detail/launcher.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include <poll.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD launch_environment launch_environment::own() {
    static constexpr std::array<std::string_view, 6> prefixes = {"RDMACORO_", "PMI",       "OMPI_COMM_",
                                                                 "SLURM_",    "MPI_LOCAL", "PALS_"};
    std::map<std::string, std::string, std::less<>> values;
    for (char** one = environ; one != nullptr && *one != nullptr; ++one) {
        const std::string_view entry(*one);
        const std::size_t equals = entry.find('=');
        const bool wanted = std::any_of(prefixes.begin(), prefixes.end(),
                                        [&](std::string_view prefix) { return entry.starts_with(prefix); });
        if (wanted && equals != std::string_view::npos)
            values.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
    return launch_environment(std::move(values));
}
RDMACORO_COLD const std::string* launch_environment::find(std::string_view name) const noexcept {
    const auto found = values_.find(name);
    return found == values_.end() || found->second.empty() ? nullptr : &found->second;
}
RDMACORO_COLD std::optional<std::uint32_t> launch_environment::number(std::string_view name,
                                                                      std::uint32_t most) const {
    const std::string* const text = find(name);
    if (text == nullptr) return {};
    std::uint32_t value = 0;
    const char* const end = text->data() + text->size();
    const auto read = std::from_chars(text->data(), end, value);
    if (read.ec != std::errc() || read.ptr != end || value > most)
        throw error(errc::invalid_argument, std::string(name) + " is " + in_quotes(*text) +
                                                ", not a number up to " + std::to_string(most));
    return value;
}

RDMACORO_COLD bool patience::wait(int fd, short events, time_point sooner) const {
    for (;;) {
        const time_point now = monotonic_now();
        if (now >= sooner) return false;
        if (now >= until_) throw_error(errc::timed_out);
        // A millisecond more, so that it does not wake before its time.
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(std::min(until_, sooner) - now).count() + 1;
        std::array<pollfd, 2> on{{{fd, events, 0}, {stop_fd_, POLLIN, 0}}};
        const int found =
            ::poll(on.data(), on.size(), static_cast<int>(std::min<std::int64_t>(left, 60'000)));
        if (found < 0 && errno != EINTR) throw_error(std::error_code(errno, std::system_category()));
        if (found <= 0) continue;
        if (on[1].revents != 0) throw_error(errc::canceled);
        if (on[0].revents != 0) return true;
    }
}
RDMACORO_COLD void patience::sleep(duration pause) const {
    wait(-1, 0, deadline_after(monotonic_now(), pause));
}

RDMACORO_COLD launcher::~launcher() = default;

RDMACORO_COLD std::string launcher::absent_text() {
    if (!arrivals_) return "; which are missing the launcher does not say";
    const std::vector<std::uint32_t> unseen = arrivals_->unseen();
    if (unseen.empty()) return "; all that are to be on this host have come";
    return std::string("; of those on this host ") + (unseen.size() == 1 ? "rank " : "ranks ") +
           list_of_ranks(unseen, unseen.size()) + (unseen.size() == 1 ? " was" : " were") + " not seen";
}

RDMACORO_COLD bool is_one_of_step(const launch_environment& from) {
    return from.has("SLURM_STEP_ID") && from.has("SLURM_PROCID") &&
           from.number("SLURM_STEP_NUM_TASKS", launcher::most_ranks).value_or(1) > 1;
}

RDMACORO_COLD std::optional<std::uint32_t> launched_rank(const launch_environment& from) {
    for (const char* const name : {"RDMACORO_RANK", "PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"}) {
        if (const auto rank = from.number(name, launcher::most_ranks - 1)) return rank;
    }
    if (is_one_of_step(from)) return from.number("SLURM_PROCID", launcher::most_ranks - 1);
    return {};
}

RDMACORO_COLD std::vector<std::uint32_t> read_process_mapping(std::string_view text, std::uint32_t ranks) {
    constexpr std::string_view begin = "(vector,";
    const auto number = [&](std::uint32_t& into, char after) {
        const auto read = std::from_chars(text.data(), text.data() + text.size(), into);
        const auto length = static_cast<std::size_t>(read.ptr - text.data());
        if (read.ec != std::errc() || into > launcher::most_ranks || length >= text.size() ||
            text[length] != after)
            return false;
        text.remove_prefix(length + 1);
        return true;
    };
    struct block {
        std::uint32_t first = 0, nodes = 0, each = 0;
    };
    std::vector<block> blocks;
    if (!text.starts_with(begin)) return {};
    text.remove_prefix(begin.size());
    for (;;) {
        block one;
        if (text.empty() || text.front() != '(') return {};
        text.remove_prefix(1);
        if (!number(one.first, ',') || !number(one.nodes, ',') || !number(one.each, ')')) return {};
        if (one.nodes == 0 || one.each == 0 || blocks.size() == ranks) return {};
        blocks.push_back(one);
        if (text == ")") break;
        if (text.empty() || text.front() != ',') return {};
        text.remove_prefix(1);
    }
    std::vector<std::uint32_t> nodes;
    nodes.reserve(ranks);
    while (nodes.size() < ranks) {
        for (const block& one : blocks) {
            for (std::uint32_t n = 0; n < one.nodes && nodes.size() < ranks; ++n)
                nodes.insert(nodes.end(), std::min<std::size_t>(one.each, ranks - nodes.size()),
                             one.first + n);
        }
    }
    return nodes;
}

RDMACORO_COLD std::string list_of_ranks(std::span<const std::uint32_t> ranks, std::uint64_t of_them) {
    constexpr std::size_t most = 16;
    const std::size_t shown = std::min(ranks.size(), most);
    const std::uint64_t more = of_them > shown ? of_them - shown : 0;
    std::string text;
    for (std::size_t n = 0; n < shown; ++n) {
        if (n != 0) text += n + 1 == shown && more == 0 ? " and " : ", ";
        text += std::to_string(ranks[n]);
    }
    if (more != 0) text += (shown != 0 ? " and " : "") + std::to_string(more) + (shown != 0 ? " more" : "");
    return text;
}

RDMACORO_COLD std::string late_text(duration by) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(by).count();
    if (seconds < 1) return {};
    return "; this process stood still, and went on " + std::to_string(seconds) + " s after its own limit";
}

RDMACORO_COLD std::string in_quotes(std::string_view text) {
    constexpr std::size_t most = 80;
    std::string all = "\"";
    for (const char c : text.substr(0, most)) all += c >= ' ' && c <= '~' && c != '"' ? c : '?';
    return all + (text.size() > most ? "...\"" : "\"");
}

}  // namespace rdmacoro::detail
