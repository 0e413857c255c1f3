// A run: how the two sides come together, what they agree on, and the rows they measure.
#pragma once

#include "connecting.hpp"
#include "listening.hpp"

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/protocol/explain.hpp>

#include <functional>
#include <string>

namespace pingpong {

template <class Transport, class List>
void connect_side(const options& asked, reporter& out) {
    const idle_kind idle = asked.idle.value_or(idle_kind::adaptive);
    rdmacoro::scheduler owner{chosen_idle(&idle)};
    owner.run(connect_and_measure<Transport, List>(asked, out));
}

template <class Transport, class List>
void listen_side(const options& asked, const std::function<void(const std::string&)>& listening) {
    idle_kind idle = asked.idle.value_or(idle_kind::adaptive);
    rdmacoro::scheduler owner{chosen_idle(&idle)};
    owner.run(listen_and_serve<Transport, List>(asked, idle, listening));
}

template <class Transport, class List>
rdmacoro::task<std::string> explain_connected(const options& asked) {
    auto connecting = rdmacoro::connect<Transport, List>(asked.where.whole);
    auto peer = co_await rdmacoro::as_result(std::move(connecting));
    if (!peer && peer.error() == rdmacoro::errc::connection_refused) {
        co_return "No process listens at " + asked.where.whole +
            ": this is the table without a connection.\n" + rdmacoro::explain<Transport, List>();
    }
    rdmacoro::endpoint<Transport, List> connected = std::move(peer).value();
    const std::string table = connected.explain();
    co_await send_control(connected, bye_message{.failed = 0});
    static_cast<void>(co_await rdmacoro::as_result(rdmacoro::timeout(connected.close(), close_limit)));
    co_return table;
}

template <class Transport, class List>
std::string explain_side(const options& asked) {
    if (asked.as == options::role::listen) return rdmacoro::explain<Transport, List>();
    rdmacoro::scheduler owner;
    return owner.run(explain_connected<Transport, List>(asked));
}

}  // namespace pingpong
