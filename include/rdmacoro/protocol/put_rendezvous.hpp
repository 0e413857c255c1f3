// put_rendezvous: the sender puts the message into the receiver's memory.
//
//   sender                             receiver
//     | -- request ---------------------> |   matched, or stored
//     | <--- ready (destination's regions) |
//     | =============== put ============> |   straight to its place
//     | -- sent ------------------------> |   chained behind the put where the transport keeps the order
//
//   Canceled as in get_rendezvous.hpp.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>
#include <rdmacoro/protocol/metrics.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace rdmacoro {

/// Carries messages of any length without a copy above the transport, synchronous ones included: a send ends when the
/// data is in the receiver's memory. Neither side's memory needs alignment. `Limit` is `up_to<Bytes>`; `From` is
/// `from<Bytes>` or `from_transport`.
///
/// Source: RPUT of MPI libraries, as FastMPJ's ugnidev has it for long messages (Exposito et al., 2015).
template <class Limit = up_to_transport, class From = from<0>>
struct put_rendezvous : detail::rendezvous_policy<Limit, From> {
    static constexpr std::string_view name = "put_rendezvous";
    static constexpr std::string_view description = "the sender puts it into the receiver's memory";
    static constexpr std::uint64_t metrics::* sent_counter = &metrics::put_sent;

    [[nodiscard]] static std::string text() { return detail::limits_text<Limit, From>(name); }

    template <class Context, class Listed = put_rendezvous>
    using engine = detail::rendezvous_engine<Listed, detail::rendezvous_way::put, Context>;
};

}  // namespace rdmacoro
