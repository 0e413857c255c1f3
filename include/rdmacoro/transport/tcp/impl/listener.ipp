// Accepting over tcp.
#pragma once

#include <rdmacoro/transport/tcp/listen_state.hpp>
#include <rdmacoro/transport/tcp/listener.hpp>

namespace rdmacoro {

namespace detail {

RDMACORO_COLD task<tcp_connection> accept_tcp(tcp_listen_state& state) {
    accept_operation<tcp_listen_state, tcp_session> one(state);
    tcp_session* session = co_await one;
    co_return tcp_connection(*session);
}

}  // namespace detail

RDMACORO_COLD tcp_listener::~tcp_listener() { delete state_; }

RDMACORO_COLD task<tcp_connection> tcp_listener::accept() { return detail::accept_tcp(*state_); }

RDMACORO_COLD std::string tcp_listener::address() const { return state_->address().url("tcp"); }

RDMACORO_COLD bool tcp_listener::pressed() const noexcept { return state_->pressed(); }

}  // namespace rdmacoro
