// The tcp transport: byte streams of the system's own TCP, driven by io_uring. Needs liburing and Linux 5.19 or later.
#pragma once

#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/tcp/domain.hpp>
#include <rdmacoro/transport/tcp/link.hpp>

#include <string_view>

namespace rdmacoro {

/// Models `transport`. Get and put are served by the peer's scheduler, straight from and to registered memory: a peer that
/// does not run its scheduler answers none. While a scheduler spins its most active links are read at each turn; before it
/// sleeps all are armed in the kernel.
struct tcp {
    static constexpr std::string_view name = "tcp";
    static constexpr std::string_view description = "TCP over io_uring: any network, any two hosts";
    static constexpr const capabilities& static_capabilities = detail::tcp_capabilities;

    using domain = tcp_domain;
    using connection = tcp_connection;
    using listener = tcp_listener;
    template <class Sink>
    using link = tcp_link<Sink>;
};

static_assert(transport<tcp>);
static_assert(one_sided_link<tcp::link<detail::sink_archetype>>);
static_assert(in_place_link<tcp::link<detail::sink_archetype>>);

}  // namespace rdmacoro

#if defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/messaging/compiled/tcp.hpp>
#include <rdmacoro/service/compiled/tcp.hpp>
#endif
