#include "sizes.hpp"

#include "failure.hpp"
#include "text.hpp"

#include <charconv>
#include <cstdint>

namespace pingpong {

namespace {

constexpr std::size_t longest = std::size_t{1} << 40;

[[noreturn]] void refuse(std::string_view what, const char* why) {
    throw usage_error(
        "--sizes: \"" + std::string(what) + "\" " + why +
        "; write bytes with K, M or G, such as 8,1K,1M, or a range of powers of two, such as 1:64M");
}

std::size_t parse_size(std::string_view text) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc::result_out_of_range) refuse(text, "is too large");
    if (error != std::errc() || stop == text.data()) refuse(text, "is not a size");
    unsigned shift = 0;
    if (end - stop == 1) {
        switch (*stop) {
            case 'k':
            case 'K': shift = 10; break;
            case 'm':
            case 'M': shift = 20; break;
            case 'g':
            case 'G': shift = 30; break;
            default: refuse(text, "is not a size");
        }
    } else if (stop != end) {
        refuse(text, "is not a size");
    }
    if (number > longest >> shift) refuse(text, "is too large");
    return static_cast<std::size_t>(number) << shift;
}

}  // namespace

std::vector<std::size_t> parse_sizes(std::string_view list) {
    std::vector<std::size_t> sizes;
    for (const std::string& item : split_at_commas(list)) {
        if (const std::size_t colon = item.find(':'); colon != std::string::npos) {
            const std::size_t from = parse_size(std::string_view(item).substr(0, colon));
            const std::size_t to = parse_size(std::string_view(item).substr(colon + 1));
            if (from == 0) refuse(item, "cannot begin at 0: doubling it leads nowhere");
            if (from > to) refuse(item, "is a range that ends before it begins");
            for (std::size_t size = from; size <= to; size *= 2) sizes.push_back(size);
        } else {
            sizes.push_back(parse_size(item));
        }
    }
    return sizes;
}

std::string size_text(std::size_t bytes) {
    constexpr std::string_view suffixes = "KMG";
    std::string suffix;
    for (std::size_t i = 0; i < suffixes.size() && bytes >= 1024 && bytes % 1024 == 0; ++i) {
        bytes /= 1024;
        suffix = suffixes[i];
    }
    return std::to_string(bytes) + suffix;
}

}  // namespace pingpong
