// get_rendezvous: the receiver gets the message from the sender's memory.
//
//   sender                             receiver
//     | -- request (source's region) ---> |   matched, or stored: a few bytes for any length of message
//     | <=============== get ============ |   straight to its place
//     | <--------------------- received - |   the send has ended
//
//   where a get is not possible (its alignment, or more pieces than can be named), decided by either side:
//     | -- request ---------------------> |
//     | <--- ready (destination's regions) |
//     | =============== put ============> |
//     | -- sent ------------------------> |
//
//   send canceled:     | -- abandon --> | <-- gone --- |
//   receive canceled:  | <-- received - |   or, while the sender may be putting:  | <-- withdraw -- | -- sent -> |
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>
#include <rdmacoro/protocol/metrics.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace rdmacoro {

/// Carries messages of any length without a copy above the transport, synchronous ones included: a send ends when the
/// receiver has the message. The sender does nothing between its request and the receiver's answer. `Limit` is
/// `up_to<Bytes>`; left out, the transport's `get_bytes`. `From` is `from<Bytes>` or `from_transport`; left out, from no bytes on.
///
/// Sources: RGET of MPI libraries; its alternation with PUT after FastMPJ's ugnidev (Exposito et al., "Low-latency Java
/// communication devices on RDMA-enabled networks", 2015).
template <class Limit = up_to_transport, class From = from<0>>
struct get_rendezvous : detail::rendezvous_policy<Limit, From, &capabilities::get_bytes> {
    static constexpr std::string_view name = "get_rendezvous";
    static constexpr std::string_view description = "the receiver gets it from the sender's memory";
    static constexpr std::uint64_t metrics::* sent_counter = &metrics::get_sent;

    [[nodiscard]] static std::string text() { return detail::limits_text<Limit, From>(name); }

    template <class Context, class Listed = get_rendezvous>
    using engine = detail::rendezvous_engine<Listed, detail::rendezvous_way::get, Context>;
};

}  // namespace rdmacoro
