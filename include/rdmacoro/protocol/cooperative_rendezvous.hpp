// cooperative_rendezvous: both sides copy one message at once.
//
//   sender                                      receiver
//     | -- request (source's region, a claim) ---> |   matched, or stored
//     | <----------- ready (destination's region) - |
//     | ===== put, from the back ====>              |   whenever the sender makes progress
//     |              <===== get, from the front === |   until they meet
//     | <----------------------------- received --- |
//
//   A busy sender costs nothing: the receiver then copies all of it.
//   Buffers of several pieces, and links that have no claim to spare, go by get. Canceled as in get_rendezvous.hpp.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>
#include <rdmacoro/protocol/metrics.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace rdmacoro {

/// For transports that copy by the two ends' own processors, such as shared memory: two cores copy twice as fast as
/// one. Over other transports it is `get_rendezvous`. Carries messages of any length, synchronous ones included.
/// `Limit` is `up_to<Bytes>`; `From` is `from<Bytes>` or `from_transport`.
template <class Limit = up_to_transport, class From = from<0>>
struct cooperative_rendezvous : detail::rendezvous_policy<Limit, From> {
    static constexpr std::string_view name = "cooperative_rendezvous";
    static constexpr std::string_view description = "both sides copy it, from its two ends";
    static constexpr std::uint64_t metrics::* sent_counter = &metrics::cooperative_sent;

    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return link.one_sided_offloaded && detail::rendezvous_policy<Limit, From>::admits(m, link);
    }
    [[nodiscard]] static std::string text() { return detail::limits_text<Limit, From>(name); }

    template <class Context, class Listed = cooperative_rendezvous>
    using engine = detail::rendezvous_engine<Listed,
                                             shared_copy_link<typename Context::link_type>
                                                 ? detail::rendezvous_way::together
                                                 : detail::rendezvous_way::get,
                                             Context>;
};

}  // namespace rdmacoro
