// The words of PMI, versions 1 and 2. Source: the messages that MPICH 4.0's Hydra and Slurm 22.05 exchange with their own clients.
#pragma once

#include <rdmacoro/service/detail/pmi_launcher.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

namespace rdmacoro::detail {

/// A number that a launcher sent.
RDMACORO_COLD std::optional<std::uint32_t> pmi_number(const std::string* text, std::uint32_t most) noexcept {
    std::uint32_t value = 0;
    if (text == nullptr) return {};
    const char* const end = text->data() + text->size();
    const auto read = std::from_chars(text->data(), end, value);
    if (read.ec != std::errc() || read.ptr != end || value > most) return {};
    return value;
}
/// Versions of PMI-2 differ in whether success is said.
RDMACORO_COLD bool pmi_success(const pmi_message& answer) noexcept {
    const std::string* const rc = answer.find("rc");
    return rc == nullptr || *rc == "0";
}

RDMACORO_COLD pmi_launcher::pmi_launcher(const launch_environment& from)
    : lines_(static_cast<int>(from.number("PMI_FD", 0x7fffffff).value_or(0))), versions_{1, 2} {
    const auto rank = from.number("PMI_RANK", most_ranks - 1);
    const auto size = from.number("PMI_SIZE", most_ranks);
    if (rank && size) {
        if (*rank >= *size)
            throw error(errc::invalid_argument,
                        "PMI_RANK is " + std::to_string(*rank) + ", and PMI_SIZE " + std::to_string(*size));
        rank_ = *rank;
        size_ = *size;
        knows_size_ = true;
    }
    if (const std::string* const job = from.find("PMI_JOBID")) slurm_job_ = *job;
    if (!slurm_job_.empty() || from.has("SLURM_STEP_ID")) std::swap(versions_[0], versions_[1]);
    if (const auto here = from.number("MPI_LOCALNRANKS", most_ranks)) on_one_host_ = *here == size_;
}

RDMACORO_COLD std::string pmi_launcher::name() const {
    return version_ == 0 ? std::string("PMI") : "PMI-" + std::to_string(version_);
}

RDMACORO_COLD bool pmi_launcher::offer(int version, const patience& limit) {
    const pmi_message answer = lines_.ask("cmd=init pmi_version=" + std::to_string(version) +
                                              " pmi_subversion=" + (version == 1 ? "1" : "0"),
                                          "response_to_init", limit);
    const auto theirs = pmi_number(answer.find("pmi_version"), 1'000'000);
    if (!theirs)
        throw error(errc::protocol_violation,
                    "PMI: the launcher names no version: " + in_quotes(answer.text()));
    if (pmi_success(answer) && *theirs == static_cast<std::uint32_t>(version)) return true;
    refusal_ += "; asked for version " + std::to_string(version) + " it answered " + in_quotes(answer.text());
    return false;
}

RDMACORO_COLD void pmi_launcher::open(const patience& limit) {
    for (const int version : versions_) {
        try {
            if (!offer(version, limit)) continue;
        } catch (const error& failed) {
            if (refusal_.empty()) throw;
            throw error(failed.code(), failed.context() + refusal_);
        }
        version_ = version;
        lines_.use_version(version);
        break;
    }
    if (version_ == 0)
        throw error(errc::version_mismatch, "PMI: the launcher speaks neither PMI-1 nor PMI-2" + refusal_);
    version_ == 1 ? open_first(limit) : open_second(limit);
}

RDMACORO_COLD void pmi_launcher::open_first(const patience& limit) {
    if (!knows_size_)
        throw error(errc::unsupported, "PMI: the launcher has set PMI_FD, but not PMI_RANK and PMI_SIZE");
    const pmi_message maxes = lines_.ask("cmd=get_maxes", "maxes", limit);
    const auto keys = pmi_number(maxes.find("keylen_max"), 1 << 30);
    const auto values = pmi_number(maxes.find("vallen_max"), 1 << 30);
    if (!keys || !values || *keys < 40 || *values < 64)
        throw error(errc::unsupported,
                    "PMI-1: the launcher has no room for keys and values: " + in_quotes(maxes.text()));
    // The end of the text may count, and so do the digits of the number of parts.
    most_digits_ = std::min<std::size_t>(*values, 1024) - 16;
    const pmi_message space = lines_.ask("cmd=get_my_kvsname", "my_kvsname", limit);
    const std::string* const named = space.find("kvsname");
    if (named == nullptr || named->empty() || named->size() > 256)
        throw error(errc::protocol_violation,
                    "PMI-1: the launcher names no space: " + in_quotes(space.text()));
    space_ = *named;
    const pmi_message mapping =
        lines_.ask("cmd=get kvsname=" + space_ + " key=PMI_process_mapping", "get_result", limit);
    see_mapping(pmi_success(mapping) ? mapping.find("value") : nullptr);
}

RDMACORO_COLD void pmi_launcher::open_second(const patience& limit) {
    const pmi_message full = lines_.ask("cmd=fullinit;pmijobid=" + slurm_job_ +
                                            ";pmirank=" + std::to_string(rank_) + ";threaded=FALSE;",
                                        "fullinit-response", limit);
    const auto rank = pmi_number(full.find("rank"), most_ranks - 1);
    const auto size = pmi_number(full.find("size"), most_ranks);
    if (!pmi_success(full) || !rank || !size || *rank >= *size)
        throw error(errc::protocol_violation, "PMI-2: the launcher tells no rank: " + in_quotes(full.text()));
    rank_ = *rank;
    size_ = *size;
    most_digits_ = 1024 - 16;
    const pmi_message job = lines_.ask("cmd=job-getid;", "job-getid-response", limit);
    const std::string* const named = job.find("jobid");
    if (!pmi_success(job) || named == nullptr || named->size() > 256)
        throw error(errc::protocol_violation, "PMI-2: the launcher names no job: " + in_quotes(job.text()));
    space_ = *named;
    const pmi_message mapping =
        lines_.ask("cmd=info-getjobattr;key=PMI_process_mapping;", "info-getjobattr-response", limit);
    see_mapping(pmi_success(mapping) ? mapping.find("value") : nullptr);
}

RDMACORO_COLD void pmi_launcher::see_mapping(const std::string* text) {
    if (text == nullptr) return;
    const std::vector<std::uint32_t> nodes = read_process_mapping(*text, size_);
    if (nodes.empty()) return;
    on_one_host_ =
        std::all_of(nodes.begin(), nodes.end(), [&](std::uint32_t one) { return one == nodes[0]; });
    host_ = "node " + std::to_string(nodes[rank_]);
    std::vector<std::uint32_t> here;
    for (std::uint32_t other = 0; other < size_; ++other) {
        if (nodes[other] == nodes[rank_]) here.push_back(other);
    }
    here_ = here;
    look_out(space_, std::move(here));
}

RDMACORO_COLD void pmi_launcher::put(const std::string& key, const std::string& value,
                                     const patience& limit) {
    const pmi_message done =
        version_ == 1
            ? lines_.ask("cmd=put kvsname=" + space_ + " key=" + key + " value=" + value, "put_result", limit)
            : lines_.ask("cmd=kvs-put;key=" + key + ";value=" + value + ";", "kvs-put-response", limit);
    if (!pmi_success(done))
        throw error(errc::unsupported, name() + ": the launcher refuses a value of " +
                                           std::to_string(value.size()) +
                                           " bytes: " + in_quotes(done.text()));
}
RDMACORO_COLD std::optional<pmi_message> pmi_launcher::hear(std::string_view answer, const patience& limit,
                                                            std::string_view other,
                                                            std::optional<pmi_message>* other_came) {
    // Where the other one has come, this one does not hold up what that is for.
    constexpr auto longest = std::chrono::seconds(1);
    time_point until = limit.until();
    try {
        for (;;) {
            pmi_message got = lines_.hear(patience(until, limit.stop_fd()));
            const std::string* const command = got.find("cmd");
            if (command != nullptr && *command == answer) return got;
            if (command == nullptr || other_came == nullptr || *command != other)
                throw error(errc::protocol_violation, name() + ": the launcher answered " +
                                                          in_quotes(got.text()) + ", not " +
                                                          in_quotes(answer));
            *other_came = std::move(got);
            until = std::min(until, deadline_after(monotonic_now(), longest));
        }
    } catch (const error& failed) {
        if (failed.code() != errc::timed_out) throw;
        if (other_came != nullptr) lines_.give_up(answer);
        return {};
    }
}
RDMACORO_COLD std::string pmi_launcher::name_of(std::uint32_t rank) const {
    return "rdmacoro-" + space_ + '-' + std::to_string(exchanges_) + '-' + std::to_string(rank);
}

/// What ranks of other hosts put is seen here when all ranks of that host have come to the barrier. A name that a rank publishes is seen at once: a
/// rank that has waited for a while publishes one, and those without are looked for at the end of the limit.
RDMACORO_COLD pmi_message pmi_launcher::ask_with_all(const std::string& text, std::string_view answer,
                                                     const patience& limit) {
    try {
        return wait_for_all(text, answer, limit);
    } catch (const error& failed) {
        if (failed.code() != errc::peer_lost && failed.code() != errc::canceled) throw;
        throw error(failed.code(),
                    "PMI: the launcher did not answer " + in_quotes(text) + ": " + failed.context());
    }
}
RDMACORO_COLD pmi_message pmi_launcher::wait_for_all(const std::string& text, std::string_view answer,
                                                     const patience& limit) {
    using std::chrono::milliseconds;
    const time_point began = monotonic_now();
    const duration quarter = std::max(duration::zero(), limit.until() - began) / 4;
    const patience at_first(began + std::min<duration>(quarter, milliseconds(1000)), limit.stop_fd());
    const patience before_end(limit.until() - std::min<duration>(quarter, milliseconds(500)),
                              limit.stop_fd());
    // The answer of one that stood still past its limit may be there.
    const auto if_late = [&]() -> std::optional<pmi_message> {
        if (late_text(monotonic_now() - limit.until()).empty()) return {};
        if (auto got = hear(answer, lines_.in_time(limit))) return got;
        throw error(errc::timed_out, name() + ": the launcher has not said that all of the " +
                                         std::to_string(size_) + " ranks have come" +
                                         late_text(lines_.late_by()));
    };
    lines_.say(text, lines_.in_time(limit));
    if (auto got = hear(answer, at_first)) return *std::move(got);
    if (auto got = if_late()) return *std::move(got);
    std::optional<pmi_message> late;
    std::string absent;
    if (on_one_host_ != true) {
        const bool said = publish(answer, before_end, late);
        if (late) return *std::move(late);
        if (auto got = hear(answer, before_end)) return *std::move(got);
        if (auto got = if_late()) return *std::move(got);
        absent = said ? of_other_hosts(answer, limit, late) : absent_text();
        if (late) return *std::move(late);
    } else if (auto got = hear(answer, limit)) {
        return *std::move(got);
    } else if (auto late_one = if_late()) {
        return *std::move(late_one);
    } else {
        absent = absent_text();
    }
    throw error(errc::timed_out, name() + ": not all of the " + std::to_string(size_) +
                                     " ranks have come within the limit; rank " + std::to_string(rank_) +
                                     " has" + absent);
}
/// False: the launcher does not do it.
RDMACORO_COLD bool pmi_launcher::publish(std::string_view answer, const patience& limit,
                                         std::optional<pmi_message>& late) {
    if (published_ == exchanges_ + 1) return true;
    lines_.say(version_ == 1 ? "cmd=publish_name service=" + name_of(rank_) + " port=come"
                             : "cmd=name-publish;name=" + name_of(rank_) + ";port=come;",
               limit);
    const auto done = hear(version_ == 1 ? "publish_result" : "name-publish-response", limit, answer, &late);
    if (!done || !pmi_success(*done)) return false;
    published_ = exchanges_ + 1;
    return true;
}
/// Of the ranks on this host `absent_text` knows more.
RDMACORO_COLD std::string pmi_launcher::of_other_hosts(std::string_view answer, const patience& limit,
                                                       std::optional<pmi_message>& late) {
    std::vector<std::uint32_t> absent;
    std::uint32_t asked = 0;
    for (; asked < size_; ++asked) {
        if (asked == rank_ || std::binary_search(here_.begin(), here_.end(), asked)) continue;
        lines_.say(version_ == 1 ? "cmd=lookup_name service=" + name_of(asked)
                                 : "cmd=name-lookup;name=" + name_of(asked) + ";",
                   limit);
        const auto found =
            hear(version_ == 1 ? "lookup_result" : "name-lookup-response", limit, answer, &late);
        if (late) return {};
        if (!found) break;
        const std::string* const is_found = found->find("found");
        if (!pmi_success(*found) || (is_found != nullptr && *is_found == "FALSE")) absent.push_back(asked);
    }
    std::string text = here_.empty() ? "" : absent_text();
    const std::string where = here_.empty() ? "; " : "; of those on other hosts ";
    if (!absent.empty()) {
        text += where + (absent.size() == 1 ? "rank " : "ranks ") + list_of_ranks(absent, absent.size()) +
                (absent.size() == 1 ? " has" : " have") + " not come";
    } else if (asked == size_) {
        text += where + "all have come";
    }
    if (asked != size_) text += "; of those from rank " + std::to_string(asked) + " on nothing is known";
    return text;
}

RDMACORO_COLD void pmi_launcher::fence(const patience& limit) {
    const pmi_message done = version_ == 1 ? ask_with_all("cmd=barrier_in", "barrier_out", limit)
                                           : ask_with_all("cmd=kvs-fence;", "kvs-fence-response", limit);
    if (!pmi_success(done))
        throw error(errc::protocol_violation,
                    name() + ": the launcher's barrier failed: " + in_quotes(done.text()));
}
RDMACORO_COLD std::string pmi_launcher::get(const std::string& key, const patience& limit) {
    // In version 2 Hydra answers a fence at once, and this when the rank that has the value has come.
    const pmi_message got = version_ == 1
                                ? lines_.ask("cmd=get kvsname=" + space_ + " key=" + key, "get_result", limit)
                                : ask_with_all("cmd=kvs-get;jobid=" + space_ + ";srcid=-1;key=" + key + ";",
                                               "kvs-get-response", limit);
    const std::string* const found = got.find("found");
    const std::string* const value = got.find("value");
    if (!pmi_success(got) || value == nullptr || (found != nullptr && *found == "FALSE")) return {};
    return *value;
}
RDMACORO_COLD std::string pmi_launcher::key(std::uint32_t rank, std::size_t part) const {
    return "rdmacoro-" + std::to_string(exchanges_) + '-' + std::to_string(rank) + '-' + std::to_string(part);
}

RDMACORO_COLD std::vector<launcher::blob> pmi_launcher::exchange(const blob& mine, const patience& limit) {
    if (mine.size() > most_bytes)
        throw_error(errc::invalid_argument, "a launcher carries 16 KB a rank at most");
    static constexpr char hex[] = "0123456789abcdef";
    std::string digits;
    digits.reserve(2 * mine.size());
    for (const std::byte one : mine) {
        digits += hex[static_cast<unsigned>(one) >> 4];
        digits += hex[static_cast<unsigned>(one) & 15];
    }
    const std::size_t parts = std::max<std::size_t>(1, (digits.size() + most_digits_ - 1) / most_digits_);
    for (std::size_t n = 0; n < parts; ++n) {
        const std::string part = digits.substr(n * most_digits_, most_digits_);
        put(key(rank_, n), n == 0 ? std::to_string(parts) + ':' + part : part, limit);
    }
    fence(limit);
    std::vector<blob> all(size_);
    std::vector<std::uint32_t> missing;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
        if (rank == rank_) {
            all[rank] = mine;
            continue;
        }
        all[rank] = collect(rank, limit);
        if (all[rank].empty()) missing.push_back(rank);
    }
    if (!missing.empty())
        throw error(errc::peer_lost, name() + ": the launcher has nothing, or nothing whole, of rank " +
                                         list_of_ranks(missing, missing.size()) + " of " +
                                         std::to_string(size_));
    ++exchanges_;
    return all;
}

/// Empty where a part is missing, or is not what `exchange` makes.
RDMACORO_COLD launcher::blob pmi_launcher::collect(std::uint32_t rank, const patience& limit) {
    std::string digits = get(key(rank, 0), limit);
    std::size_t parts = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), parts);
    const auto length = static_cast<std::size_t>(read.ptr - digits.data());
    if (read.ec != std::errc() || length >= digits.size() || digits[length] != ':' || parts == 0 ||
        parts > 2 * most_bytes)
        return {};
    digits.erase(0, length + 1);
    for (std::size_t n = 1; n < parts; ++n) {
        const std::string part = get(key(rank, n), limit);
        if (part.empty() || digits.size() + part.size() > 2 * most_bytes) return {};
        digits += part;
    }
    if (digits.size() % 2 != 0 || digits.size() > 2 * most_bytes) return {};
    blob bytes;
    bytes.reserve(digits.size() / 2);
    for (std::size_t n = 0; n < digits.size(); n += 2) {
        unsigned value = 0;
        const char* const end = digits.data() + n + 2;
        const auto two = std::from_chars(digits.data() + n, end, value, 16);
        if (two.ec != std::errc() || two.ptr != end) return {};
        bytes.push_back(static_cast<std::byte>(value));
    }
    return bytes;
}

RDMACORO_COLD void pmi_launcher::leave(const patience& limit) {
    static_cast<void>(version_ == 1 ? lines_.ask("cmd=finalize", "finalize_ack", limit)
                                    : lines_.ask("cmd=finalize;", "finalize-response", limit));
    lines_.close();
}

}  // namespace rdmacoro::detail
