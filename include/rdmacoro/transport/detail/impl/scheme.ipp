// The known schemes, and the nearest to one that is not known.
#pragma once

#include <rdmacoro/transport/detail/scheme.hpp>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace rdmacoro::detail {

struct known_scheme {
    std::string_view scheme;
    std::string_view transport;
    std::string_view header;
};

inline constexpr known_scheme known_schemes[] = {
    {"shm", "shm", "shm"}, {"tcp", "tcp", "tcp"},    {"verbs", "verbs_rc", "verbs_rc"},
    {"ofi", "ofi", "ofi"}, {"ugni", "ugni", "ugni"}, {"sim", "sim", "sim"},
};
inline constexpr std::string_view scheme_end = "://";

/// How many letters are wrong, missing, too many, or in each other's place; upper and lower case are alike. Schemes longer than
/// `longest_compared` are like no other.
RDMACORO_COLD std::size_t difference(std::string_view a, std::string_view b) noexcept {
    constexpr std::size_t longest_compared = 12;
    if (a.size() > longest_compared || b.size() > longest_compared) return longest_compared;
    const auto lower = [](char c) noexcept { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; };
    std::size_t costs[longest_compared + 1][longest_compared + 1] = {};
    for (std::size_t i = 0; i <= a.size(); ++i) {
        for (std::size_t k = 0; k <= b.size(); ++k) {
            std::size_t& cost = costs[i][k];
            if (i == 0 || k == 0) {
                cost = i + k;
                continue;
            }
            const bool same = lower(a[i - 1]) == lower(b[k - 1]);
            cost = std::min({costs[i - 1][k - 1] + (same ? 0 : 1), costs[i - 1][k] + 1, costs[i][k - 1] + 1});
            if (i > 1 && k > 1 && lower(a[i - 1]) == lower(b[k - 2]) && lower(a[i - 2]) == lower(b[k - 1]))
                cost = std::min(cost, costs[i - 2][k - 2] + 1);
        }
    }
    return costs[a.size()][b.size()];
}

/// About "tcp:/host:1", in which a slash is missing; empty if it is something else.
RDMACORO_COLD std::string missing_slash(std::string_view own, std::string_view address) {
    const std::size_t colon = address.find(":/");
    if (colon == std::string_view::npos) return {};
    const std::string_view scheme = address.substr(0, colon);
    const bool known =
        scheme == own ||
        std::any_of(std::begin(known_schemes), std::end(known_schemes), [scheme](const known_scheme& one) {
            return scheme == one.scheme || (one.scheme == "ofi" && scheme.substr(0, 4) == "ofi+");
        });
    if (!known) return {};
    return std::string("a slash is missing; did you mean ")
        .append(scheme)
        .append(scheme_end)
        .append(address.substr(colon + 2))
        .append("?");
}

RDMACORO_COLD std::string_view without_scheme(std::string_view own, std::string_view address) noexcept {
    const std::size_t end = address.find(scheme_end);
    if (end != std::string_view::npos && address.substr(0, end) == own)
        address.remove_prefix(end + scheme_end.size());
    return address;
}

RDMACORO_COLD std::string wrong_scheme(std::string_view own, std::string_view address) {
    const std::size_t end = address.find(scheme_end);
    if (end == std::string_view::npos) return missing_slash(own, address);
    if (address.substr(0, end) == own) return {};
    const std::string_view scheme = address.substr(0, end);
    std::string why = std::string("not a ").append(own).append(":// address: ");
    for (const known_scheme& one : known_schemes) {
        const bool provider = one.scheme == "ofi" && scheme.substr(0, 4) == "ofi+";
        if (scheme != one.scheme && !provider) continue;
        return why.append("it is one of rdmacoro::")
            .append(one.transport)
            .append(", of <rdmacoro/transport/")
            .append(one.header)
            .append(".hpp>");
    }
    why.append("no transport has the scheme \"").append(scheme).append("\"; known are ");
    std::size_t least = scheme.size() < 5 ? 2 : 3;  // from so many differences on nothing is near
    std::string_view nearest;
    const auto compare = [&](std::string_view other) noexcept {
        const std::size_t differences = difference(scheme, other);
        if (differences >= least) return;
        least = differences;
        nearest = other;
    };
    compare(own);
    bool own_is_known = false;
    for (const known_scheme& one : known_schemes) {
        why.append(&one == known_schemes ? "" : ", ").append(one.scheme);
        own_is_known |= one.scheme == own;
        compare(one.scheme);
    }
    if (!own_is_known) why.append(", ").append(own);
    if (!nearest.empty())
        why.append("; did you mean ").append(nearest).append(address.substr(end)).append("?");
    return why;
}

}  // namespace rdmacoro::detail
