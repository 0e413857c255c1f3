// Bodies of tuning.hpp.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/protocol/tuning.hpp>

#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

namespace rdmacoro {

namespace detail {

/// False when `text` is no size.
[[nodiscard]] RDMACORO_DECL bool parse_size(std::string_view text, std::size_t& into) noexcept {
    std::size_t number = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (failed != std::errc{}) return false;
    const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
    unsigned shift = 0;
    if (unit == "K" || unit == "k" || unit == "KiB") {
        shift = 10;
    } else if (unit == "M" || unit == "m" || unit == "MiB") {
        shift = 20;
    } else if (unit == "G" || unit == "g" || unit == "GiB") {
        shift = 30;
    } else if (!unit.empty()) {
        return false;
    }
    if (number > (tuning::unset >> 1) >> shift) return false;
    into = number << shift;
    return true;
}

}  // namespace detail

RDMACORO_COLD tuning tuning::or_else(const tuning& others) const noexcept {
    const auto pick = [](std::size_t a, std::size_t b) { return a != unset ? a : b; };
    return {pick(eager_limit, others.eager_limit), pick(rendezvous_limit, others.rendezvous_limit),
            pick(get_limit, others.get_limit), pick(segment_bytes, others.segment_bytes)};
}

RDMACORO_COLD capabilities tuning::applied_to(capabilities link) const noexcept {
    if (eager_limit != unset) link.eager_bytes = eager_limit;
    if (rendezvous_limit != unset) link.rendezvous_bytes = rendezvous_limit;
    if (get_limit != unset) link.get_bytes = get_limit;
    if (segment_bytes != unset) {
        const std::size_t least = segment_bytes == 0 ? 1 : segment_bytes;
        link.segment_bytes = least < link.max_message ? least : link.max_message;
    }
    return link;
}

RDMACORO_COLD tuning tuning::from_environment() {
    tuning made;
    const auto read = [](const char* name, std::size_t& into) {
        const char* text = std::getenv(name);
        if (text == nullptr || *text == '\0' || detail::parse_size(text, into)) return;
        std::string what(name);
        what.append("=").append(text).append(": not a size; say bytes, or a number with K, M or G behind");
        throw error(errc::invalid_argument, what);
    };
    read("RDMACORO_EAGER_LIMIT", made.eager_limit);
    read("RDMACORO_RENDEZVOUS_LIMIT", made.rendezvous_limit);
    read("RDMACORO_GET_LIMIT", made.get_limit);
    read("RDMACORO_SEGMENT_BYTES", made.segment_bytes);
    return made;
}

RDMACORO_COLD const tuning& tuning::of_environment() {
    static const tuning once = from_environment();
    return once;
}

}  // namespace rdmacoro
