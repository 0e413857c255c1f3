// Bodies of group_failure.hpp.
#pragma once

#include <rdmacoro/service/group_failure.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace rdmacoro {

namespace detail {
RDMACORO_COLD const char* describe(group_errc code) noexcept {
    switch (code) {
        case group_errc::ok: return "no error";
        case group_errc::revoked: return "another rank has given the group up";
        case group_errc::mismatch: return "the ranks disagree about the operation";
        case group_errc::not_member: return "this rank is not of the group";
    }
    return "an unknown error of a group";
}

RDMACORO_COLD std::string rank_list(const std::vector<unsigned>& ranks) {
    constexpr std::size_t most = 16;
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    const std::size_t shown = std::min(ranks.size(), most);
    for (std::size_t at = 0; at < shown; ++at) {
        if (at != 0) text += at + 1 == ranks.size() ? " and " : ", ";
        text += std::to_string(ranks[at]);
    }
    if (shown < ranks.size()) text += " and " + std::to_string(ranks.size() - shown) + " more";
    return text;
}

RDMACORO_COLD bool merge_ranks(std::vector<unsigned>& into, const std::vector<unsigned>& others) {
    bool any = false;
    for (const unsigned rank : others) {
        const auto at = std::lower_bound(into.begin(), into.end(), rank);
        if (at != into.end() && *at == rank) continue;
        into.insert(at, rank);
        any = true;
    }
    return any;
}
}  // namespace detail

RDMACORO_COLD const std::error_category& group_category() noexcept {
    struct category final : std::error_category {
        [[nodiscard]] const char* name() const noexcept override { return "rdmacoro.group"; }
        [[nodiscard]] std::string message(int code) const override {
            return detail::describe(static_cast<group_errc>(code));
        }
    };
    static const category only;
    return only;
}

RDMACORO_COLD std::error_code make_error_code(group_errc code) noexcept {
    return {static_cast<int>(code), group_category()};
}

RDMACORO_COLD bool group_failure::is_loss() const noexcept {
    return !lost.empty() && why.category() != group_category() && why != errc::canceled &&
           why != errc::invalid_argument && why != errc::no_resources;
}

RDMACORO_COLD std::string group_failure::describe() const {
    std::string said = "rank " + std::to_string(by);
    if (is_loss()) {
        // It may have ended, too, after it had told what it had lost.
        std::vector<unsigned> others = lost;
        const bool itself = std::erase(others, by) != 0;
        if (!others.empty()) said += " has lost " + detail::rank_list(others);
        if (itself) said += others.empty() ? " is lost" : ", and is lost itself";
    } else if (why == errc::canceled) {
        said += " has canceled it, or its time was over";
    } else {
        said += " has given it up";
    }
    if (!absent.empty()) said += "; not entered: " + detail::rank_list(absent);
    if (!text.empty()) said += " (" + text + ")";
    if (!lost.empty() && !is_loss()) said += "; lost since: " + detail::rank_list(lost);
    return said;
}

RDMACORO_COLD bool group_failure::merge(const group_failure& other) {
    const bool more_lost = detail::merge_ranks(lost, other.lost);
    const bool more_absent = detail::merge_ranks(absent, other.absent);
    return more_lost || more_absent;
}

}  // namespace rdmacoro
