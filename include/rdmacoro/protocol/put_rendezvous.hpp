// put_rendezvous: the sender puts the message into the receiver's memory.
//
//   sender                             receiver
//     | -- request ---------------------> |   matched, or kept
//     | <--- ready (destination's regions) |
//     | =============== put ============> |   straight to its place
//     | -- sent ------------------------> |   chained behind the put where the transport keeps the order
//
//   Canceled as in get_rendezvous.hpp.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>
#include <rdmacoro/protocol/metrics.hpp>

namespace rdmacoro {

/// Carries messages of any length without a copy above the transport, synchronous ones included: a send ends when the
/// data is in the receiver's memory. No alignment is asked of anybody. `Limit` is `up_to<Bytes>`; `From` is `from<Bytes>` or
/// `from_transport`.
///
/// Source: RPUT of MPI libraries, as FastMPJ's ugnidev has it for long messages (Exposito et al., 2015).
template <class Limit = up_to_transport, class From = from<0>>
struct put_rendezvous {
    static constexpr std::string_view name = "put_rendezvous";
    static constexpr std::string_view description = "the sender puts it into the receiver's memory";
    static constexpr std::uint8_t kinds = detail::rendezvous_kinds;
    static constexpr std::uint64_t metrics::* sent_counter = &metrics::put_sent;
    static constexpr bool needs_one_sided = true;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities& link) noexcept {
        static_cast<void>(link);
        return Limit::bytes == 0 ? static_cast<std::size_t>(-1) : Limit::bytes;
    }
    [[nodiscard]] static constexpr std::size_t shortest(const capabilities& link) noexcept {
        return From::bytes(link);
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return link.one_sided && m.bytes >= shortest(link) && m.bytes <= longest(link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept {
        return Limit::bytes ^ From::parameter << 32;
    }

    [[nodiscard]] static std::string text() { return detail::limits_text<Limit, From>(name); }

    template <class Context, class Listed = put_rendezvous>
    using engine = detail::rendezvous_engine<Listed, detail::rendezvous_way::put, Context>;
};

}  // namespace rdmacoro
