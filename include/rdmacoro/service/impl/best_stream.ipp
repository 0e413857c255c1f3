// What `connect_best` tells of its attempts.
#pragma once

#include <rdmacoro/service/best_stream.hpp>

#include <algorithm>

namespace rdmacoro::detail {

RDMACORO_COLD void best_attempts::failed(const std::string& url, const std::system_error& how) {
    before_last = tried;
    tried += url + ": " + how.what() + "\n";
    const auto* const own = dynamic_cast<const error*>(&how);
    const std::string context = own != nullptr ? own->context() : std::string();
    last = context.empty() ? url : url + ": " + context;
    why = how.code();
}

RDMACORO_COLD void best_attempts::leave_out_others(std::span<const std::string_view> schemes) {
    const auto is_other = [&](const std::string& url) {
        return std::ranges::none_of(schemes, [&](std::string_view one) { return has_scheme(url, one); });
    };
    std::string known;
    for (const std::string_view one : schemes) known += (known.empty() ? "" : ", ") + std::string(one);
    for (const std::string& url : urls) {
        if (!is_other(url)) continue;
        tried += url + ": not tried, its scheme is not one of " + known + "\n";
    }
}

RDMACORO_COLD void best_attempts::throw_failure() const {
    if (!last.empty()) throw error(why, "connect_best: " + before_last + last);
    if (tried.empty()) throw error(why, "connect_best: no address was given");
    throw error(why, "connect_best: " + tried.substr(0, tried.size() - 1));
}

}  // namespace rdmacoro::detail
