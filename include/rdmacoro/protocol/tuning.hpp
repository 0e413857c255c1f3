// tuning: limits of protocols that a run may set without compiling anew.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <cstddef>

namespace rdmacoro {

/// Replaces a transport's limits, the sizes at which one protocol becomes better than another. Policies with the limit
/// `up_to_transport` or `from_transport` follow it; a limit stated in the program's list stays. Each side may have its
/// own: it chooses the policies of the messages that this side sends, and the other understands every policy of the
/// list at every size.
struct tuning {
    /// A limit that is left to the transport.
    static constexpr std::size_t unset = static_cast<std::size_t>(-1);

    std::size_t eager_limit =
        unset;  ///< longest message of `eager`, in bytes; at most the link's `max_message`
    std::size_t rendezvous_limit = unset;  ///< shortest message of the rendezvous policies, in bytes
    std::size_t get_limit = unset;         ///< longest message of `get_rendezvous`, in bytes
    std::size_t segment_bytes =
        unset;  ///< longest piece of `segmented`, in bytes; at most the link's `max_message`

    /// Whether any limit is set.
    [[nodiscard]] bool any() const noexcept {
        return eager_limit != unset || rendezvous_limit != unset || get_limit != unset ||
               segment_bytes != unset;
    }

    /// These, and `others` where these are unset.
    [[nodiscard]] tuning or_else(const tuning& others) const noexcept;

    /// A link's capabilities `link` with these limits.
    [[nodiscard]] capabilities applied_to(capabilities link) const noexcept;

    /// From `RDMACORO_EAGER_LIMIT`, `RDMACORO_RENDEZVOUS_LIMIT`, `RDMACORO_GET_LIMIT` and `RDMACORO_SEGMENT_BYTES`, sizes in
    /// bytes or with K, M or G behind (powers of 1024). Throws `errc::invalid_argument`, and names the variable.
    [[nodiscard]] static tuning from_environment();

    /// As `from_environment`, read once a process.
    [[nodiscard]] static const tuning& of_environment();
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/impl/tuning.ipp>
#endif
