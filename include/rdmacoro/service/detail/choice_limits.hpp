// choice_limits: the lengths at which the choice of an algorithm changes.
#pragma once

#include <cstddef>

namespace rdmacoro::detail {

/// Calls `found(bytes, choice)` for 0 bytes, and for each length up to `longest` from which on `choice_at` gives another choice, in ascending order. Lengths are multiples
/// of 8 bytes. A choice that is the same at both ends of a part of a doubling, and another one between, can be left out: limits of algorithms are powers of two, or
/// products of one and the number of ranks.
template <class ChoiceAt, class Found>
void for_each_limit(std::size_t longest, ChoiceAt choice_at, Found found) {
    constexpr std::size_t element = 8;
    auto now = choice_at(std::size_t{0});
    found(std::size_t{0}, now);
    std::size_t at = 0;  // in elements: `now` is chosen there
    const auto go_to = [&](std::size_t end) {
        while (at < end) {
            auto next = choice_at(end * element);
            if (next == now) {
                at = end;
                return;
            }
            std::size_t from = end;  // `next` is chosen there
            while (at + 1 < from) {
                const std::size_t middle = at + (from - at) / 2;
                auto between = choice_at(middle * element);
                if (between == now) {
                    at = middle;
                } else {
                    from = middle;
                    next = between;
                }
            }
            at = from;
            now = next;
            found(at * element, now);
        }
    };
    // A limit is the longest length that an algorithm carries: the next one is carried by another.
    const std::size_t most = longest / element;
    for (std::size_t power = 1; power < most; power *= 2) {
        go_to(power);
        go_to(power + 1);
    }
    go_to(most);
}

}  // namespace rdmacoro::detail
