// cooperative_rendezvous: both sides copy one message at once.
//
//   sender                                      receiver
//     | -- request (source's region, a claim) ---> |   matched, or kept
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

namespace rdmacoro {

/// For transports whose copies are made by the two ends' own processors, such as shared memory: two cores copy twice as
/// fast as one. Where the transport cannot, it is `get_rendezvous`. Carries messages of any length, synchronous ones
/// included. `Limit` is `up_to<Bytes>`; `From` is `from<Bytes>` or
/// `from_transport`.
template <class Limit = up_to_transport, class From = from<0>>
struct cooperative_rendezvous {
    static constexpr std::string_view name = "cooperative_rendezvous";
    static constexpr std::string_view description = "both sides copy it, from its two ends";
    static constexpr std::uint8_t kinds = detail::rendezvous_kinds;
    static constexpr std::uint64_t metrics::* sent_counter = &metrics::cooperative_sent;
    static constexpr bool needs_one_sided = true;

    [[nodiscard]] static constexpr std::size_t longest(const capabilities& link) noexcept {
        static_cast<void>(link);
        return Limit::bytes == 0 ? static_cast<std::size_t>(-1) : Limit::bytes;
    }
    [[nodiscard]] static constexpr std::size_t shortest(const capabilities& link) noexcept {
        return From::bytes(link);
    }
    [[nodiscard]] static constexpr bool admits(const message_facts& m, const capabilities& link) noexcept {
        return link.one_sided && link.one_sided_offloaded && m.bytes >= shortest(link) &&
               m.bytes <= longest(link);
    }
    [[nodiscard]] static constexpr std::uint64_t parameter() noexcept {
        return Limit::bytes ^ From::parameter << 32;
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
