// gate_way: how a gate reaches peers through what it was made over.
#pragma once

#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/service/node.hpp>
#include <rdmacoro/service/node_calls.hpp>

#include <cstdint>

namespace rdmacoro::detail {

/// `peer` gives something with `send`; `by_id`: there are many, by the ids of nodes.
template <class Over>
struct gate_way;

template <transport T, protocol_list P>
struct gate_way<endpoint<T, P>> {
    static constexpr bool by_id = false;
    static scheduler& owner(endpoint<T, P>& over) noexcept { return over.owner(); }
    static endpoint<T, P>& peer(endpoint<T, P>& over, std::uint32_t) noexcept { return over; }
};
template <transport T, protocol_list P>
struct gate_way<calls<T, P>> {
    static constexpr bool by_id = false;
    static scheduler& owner(calls<T, P>& over) noexcept { return over.over().owner(); }
    static endpoint<T, P>& peer(calls<T, P>& over, std::uint32_t) noexcept { return over.over(); }
};
template <transport... Ts>
struct gate_way<node<Ts...>> {
    static constexpr bool by_id = true;
    static scheduler& owner(node<Ts...>& over) noexcept { return over.owner(); }
    static rdmacoro::node_peer<Ts...> peer(node<Ts...>& over, std::uint32_t id) { return over.peer(id); }
};
template <transport... Ts>
struct gate_way<node_calls<Ts...>> {
    static constexpr bool by_id = true;
    static scheduler& owner(node_calls<Ts...>& over) noexcept { return over.over().owner(); }
    static rdmacoro::node_peer<Ts...> peer(node_calls<Ts...>& over, std::uint32_t id) {
        return over.over().peer(id);
    }
};

}  // namespace rdmacoro::detail
