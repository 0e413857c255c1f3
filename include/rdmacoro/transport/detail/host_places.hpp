// host_places: which stranger gives its place to a new one, when as many wait as may, and how many may.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// So many places for strangers as `wanted`, or as a quarter of the descriptors that this process may have, if that is less, but one:
/// places must run out before descriptors do, for it is then that strangers give way.
[[nodiscard]] RDMACORO_DECL std::size_t most_places(std::size_t wanted) noexcept;

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

    /// Whether `host` holds so much of all `places` that it may be refused more where no host holds more: four, and a 64th. Where
    /// strangers come from more hosts than that, any client may share its places with some of them.
    [[nodiscard]] bool crowds(std::uint8_t host, std::size_t places) const noexcept {
        return held_[host] >= 4 && held_[host] * std::size_t{64} >= places;
    }

private:
    std::array<std::uint32_t, 256> held_{};
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/detail/impl/host_places.ipp>
#endif
