// tuning: limits of protocols that a run may set without compiling anew.
#pragma once

#include <rdmacoro/coro/error.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

namespace rdmacoro {

/// Replaces what a transport says of the sizes at which one protocol becomes better than another. Policies whose limit is
/// `up_to_transport` or `from_transport` follow it; a limit that the program's list states itself stays. Each side may have its
/// own: it decides what that side sends, and the other understands every policy of the list at every size.
struct tuning {
    static constexpr std::size_t unset = static_cast<std::size_t>(-1);

    std::size_t eager_limit =
        unset;  ///< longest message of `eager`, in bytes; at most what the link can carry
    std::size_t rendezvous_limit = unset;  ///< shortest message of the rendezvous policies, in bytes
    std::size_t get_limit = unset;         ///< longest message of `get_rendezvous`, in bytes
    std::size_t segment_bytes =
        unset;  ///< longest piece of `segmented`, in bytes; at most what the link can carry

    [[nodiscard]] bool any() const noexcept {
        return eager_limit != unset || rendezvous_limit != unset || get_limit != unset ||
               segment_bytes != unset;
    }

    /// These, and `others` where these are unset.
    [[nodiscard]] tuning or_else(const tuning& others) const noexcept {
        const auto pick = [](std::size_t a, std::size_t b) { return a != unset ? a : b; };
        return {pick(eager_limit, others.eager_limit), pick(rendezvous_limit, others.rendezvous_limit),
                pick(get_limit, others.get_limit), pick(segment_bytes, others.segment_bytes)};
    }

    /// What a link with capabilities `link` is to be taken for.
    [[nodiscard]] capabilities applied_to(capabilities link) const noexcept {
        if (eager_limit != unset) link.eager_bytes = eager_limit;
        if (rendezvous_limit != unset) link.rendezvous_bytes = rendezvous_limit;
        if (get_limit != unset) link.get_bytes = get_limit;
        if (segment_bytes != unset)
            link.segment_bytes = std::clamp(segment_bytes, std::size_t{1}, link.max_message);
        return link;
    }

    /// From `RDMACORO_EAGER_LIMIT`, `RDMACORO_RENDEZVOUS_LIMIT`, `RDMACORO_GET_LIMIT` and `RDMACORO_SEGMENT_BYTES`, sizes in
    /// bytes or with K, M or G behind (powers of 1024). Throws `errc::invalid_argument`, and names the variable.
    [[nodiscard]] static tuning from_environment() {
        tuning made;
        const auto read = [](const char* name, std::size_t& into) {
            const char* text = std::getenv(name);
            if (text == nullptr || *text == '\0') return;
            if (!parse(text, into)) {
                std::string what(name);
                what.append("=").append(text).append(
                    ": not a size; say bytes, or a number with K, M or G behind");
                throw error(errc::invalid_argument, what);
            }
        };
        read("RDMACORO_EAGER_LIMIT", made.eager_limit);
        read("RDMACORO_RENDEZVOUS_LIMIT", made.rendezvous_limit);
        read("RDMACORO_GET_LIMIT", made.get_limit);
        read("RDMACORO_SEGMENT_BYTES", made.segment_bytes);
        return made;
    }

    /// As `from_environment`, read once a process.
    [[nodiscard]] static const tuning& of_environment() {
        static const tuning once = from_environment();
        return once;
    }

private:
    [[nodiscard]] static bool parse(std::string_view text, std::size_t& into) noexcept {
        std::size_t number = 0;
        const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (failed != std::errc{}) return false;
        std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
        unsigned shift = 0;
        if (unit == "K" || unit == "k" || unit == "KiB")
            shift = 10;
        else if (unit == "M" || unit == "m" || unit == "MiB")
            shift = 20;
        else if (unit == "G" || unit == "g" || unit == "GiB")
            shift = 30;
        else if (!unit.empty())
            return false;
        if (number > (unset >> 1) >> shift) return false;
        into = number << shift;
        return true;
    }
};

}  // namespace rdmacoro
