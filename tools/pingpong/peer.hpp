// A peer and a listener of any transport and protocol list. What is not measured goes by virtual calls, so that it is compiled once.
#pragma once

#include "control.hpp"
#include "exchange.hpp"

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/protocol/metrics.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace pingpong {

class service_side;

/// The time limit of closing.
inline constexpr std::chrono::seconds close_limit{5};

/// A control message of any kind.
struct control_message {
    control_bytes raw{};
    std::size_t bytes = 0;
};

/// A connected endpoint. Borrowed by the coroutines that its functions return.
class peer {
public:
    peer() = default;
    peer(const peer&) = delete;
    peer& operator=(const peer&) = delete;
    virtual ~peer() = default;

    [[nodiscard]] virtual rdmacoro::task<> send(control_bytes message) = 0;
    [[nodiscard]] virtual rdmacoro::task<control_message> receive() = 0;

    /// The connecting side's part of an exchange of messages, gets or puts; `there` is the memory of the latter. Gives the ticks that it
    /// took. `x` is borrowed.
    [[nodiscard]] virtual rdmacoro::task<tick_count> ask(exchange& x,
                                                         const rdmacoro::remote_region& there) = 0;
    /// The listening side's part.
    [[nodiscard]] virtual rdmacoro::task<> answer(exchange& x) = 0;
    /// This side of the tests of services. Must end before the peer. Throws `run_error` where the list has none.
    [[nodiscard]] virtual std::unique_ptr<service_side> make_services() = 0;
    /// Makes memory reachable for the peer.
    [[nodiscard]] virtual rdmacoro::region register_memory(std::span<std::byte> memory,
                                                           rdmacoro::access_rights rights) = 0;

    [[nodiscard]] virtual std::string_view transport_name() const = 0;
    /// The protocol list, for people.
    [[nodiscard]] virtual std::string protocols() const = 0;
    /// The policy of messages of that length; empty: the list carries none.
    [[nodiscard]] virtual std::string policy_of(std::size_t bytes) const = 0;
    /// The table of protocols on this link.
    [[nodiscard]] virtual std::string explain() const = 0;
    [[nodiscard]] virtual const rdmacoro::capabilities& link() const = 0;
    [[nodiscard]] virtual rdmacoro::metrics counts() const = 0;

    [[nodiscard]] virtual bool is_open() const = 0;
    /// In good order if that takes no longer than `close_limit`; never fails.
    [[nodiscard]] virtual rdmacoro::task<> close() = 0;
    /// At once: everything pending ends with `errc::closed`.
    virtual void abort() noexcept = 0;
};

/// Accepts peers.
class peer_listener {
public:
    peer_listener() = default;
    peer_listener(const peer_listener&) = delete;
    peer_listener& operator=(const peer_listener&) = delete;
    virtual ~peer_listener() = default;

    [[nodiscard]] virtual std::string address() const = 0;
    [[nodiscard]] virtual rdmacoro::task<std::unique_ptr<peer>> accept() = 0;
};

}  // namespace pingpong
