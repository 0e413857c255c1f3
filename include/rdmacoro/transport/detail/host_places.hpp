// host_places: which stranger gives its place to a new one, when as many wait as may.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>

#include <array>
#include <cstdint>

namespace rdmacoro::detail {

/// The places that each host holds in a queue of strangers. A host is known by `host_hash`: two that share one share their places.
class host_places {
public:
    void take(std::uint8_t host) noexcept { ++held_[host]; }
    void release(std::uint8_t host) noexcept { --held_[host]; }

    /// The first in the list that comes from the host with the most places; nullptr: the list is empty. `Stranger::from` is the host.
    template <class Stranger>
    [[nodiscard, gnu::cold]] Stranger* next_to_drop(intrusive_list<Stranger>& oldest_first) const noexcept {
        Stranger* found = oldest_first.front();
        for (Stranger* one = found; one != nullptr; one = oldest_first.next(*one)) {
            if (held_[one->from] > held_[found->from]) found = one;
        }
        return found;
    }

    /// Whether `holder` would hold no fewer places than `newcomer` after it has given one to it: then it need not be waited for.
    [[nodiscard]] bool holds_more(std::uint8_t holder, std::uint8_t newcomer) const noexcept {
        return held_[holder] > held_[newcomer] + 1;
    }

private:
    std::array<std::uint32_t, 256> held_{};
};

}  // namespace rdmacoro::detail
