// Small helpers for lists in messages and files.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pingpong {

inline void append_item(std::string& list, std::string_view item, std::string_view separator = ", ") {
    if (!list.empty()) list += separator;
    list += item;
}

/// The items of a list that commas separate; at least one, which may be empty.
[[nodiscard]] inline std::vector<std::string> split_at_commas(std::string_view list) {
    std::vector<std::string> items;
    for (std::size_t at = 0; at <= list.size();) {
        const std::size_t comma = std::min(list.find(',', at), list.size());
        items.emplace_back(list.substr(at, comma - at));
        at = comma + 1;
    }
    return items;
}

}  // namespace pingpong
