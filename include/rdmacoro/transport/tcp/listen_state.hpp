// The listening socket of tcp: greets on all accepted sockets at a time.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/transport/detail/accept.hpp>
#include <rdmacoro/transport/detail/host_places.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/tcp/handshake.hpp>

#include <cstdint>
#include <vector>

namespace rdmacoro::detail {

/// The listening socket and the accepted sockets not yet taken from it. A socket that greets wrongly, or not at all, is
/// dropped without effect on the others. When as many wait as may, those that have not greeted are dropped for the sake of new ones,
/// first those of the hosts that hold the most places: at once for one of a host that holds fewer, else after a tenth of the time they
/// have. For so long the new one is kept, and the rest of its kind in the system's queue; but where this fills, because a host that
/// holds much has been silent for longer than clients are, new ones of that host are refused, as others could not even connect.
class tcp_listen_state final : public tcp_watcher, private timer_node {
public:
    tcp_listen_state(tcp_engine& engine, int fd);
    tcp_listen_state(const tcp_listen_state&) = delete;
    tcp_listen_state& operator=(const tcp_listen_state&) = delete;
    ~tcp_listen_state();

    [[nodiscard]] const inet_endpoint& address() const noexcept { return address_; }
    [[nodiscard]] scheduler& owner() const noexcept;

    /// Whether the system's queue is half full, or longer than half the places: what comes when it is full cannot even connect, and
    /// what is in it waits for those before it.
    [[nodiscard]] bool pressed() const noexcept;

    /// A greeted socket, or nullptr.
    [[nodiscard]] tcp_session* take() noexcept;

    /// Adds a waiter for the next one.
    void wait(accept_waiter<tcp_session>& waiter) noexcept {
        if (dead_) return waiter.arrived(nullptr);
        waiters_.push_back(waiter);
    }

    RDMACORO_DECL void progress(tcp_session& session) noexcept override;

private:
    // Of the time for greeting: in which no new one takes the place; after which a crowd of one host is a flood; between two looks
    // at the system's queue, which fills without an event.
    static constexpr int grace_part = 10;
    static constexpr int flood_part = 100;
    static constexpr int look_part = 1000;

    struct incoming final : tcp_handshake, list_node<incoming> {
        tcp_listen_state* host = nullptr;
        time_point since{};
        std::uint8_t from = 0;  // its host, by a hash
    };

    // Greets on a socket of the host `from`.
    void greet(int fd, std::uint8_t from) noexcept;

    void greeted(incoming& client, errc outcome) noexcept;

    void forget(incoming& client) noexcept;

    void accept_more() noexcept;

    void end_waiters() noexcept;

    // Finds a place for the newcomer, or refuses it. False: it waits, for the timer or for a place.
    bool place_newcomer() noexcept;

    // The moment so many parts of the time for greeting after it was accepted.
    [[nodiscard]] time_point after(const incoming& client, int part) const noexcept;

    void drop(incoming& silent) noexcept;

    tcp_engine& engine_;
    tcp_session* session_;
    inet_endpoint address_;
    const std::size_t most_;  // that may wait
    std::size_t waiting_ = 0;
    int newcomer_ = -1;  // a socket that waits for a place; nothing is accepted meanwhile
    std::uint8_t newcomer_from_ = 0;
    bool dead_ = false;                   // it accepts nothing any more: the system has shut it down
    host_places hosts_;                   // of sockets that have not greeted
    intrusive_list<incoming> accepting_;  // not greeted yet, oldest first
    intrusive_list<incoming> ready_;
    accept_waiters<tcp_session> waiters_;
};

/// Where to listen: the first endpoint; without a host the v6 one, which takes v4 connections too, unless this system has no v6.
[[nodiscard]] RDMACORO_DECL const inet_endpoint&
tcp_listening_endpoint(const inet_address& address, const std::vector<inet_endpoint>& endpoints) noexcept;

/// Opens a listening socket. Throws an error; its text names the address.
[[nodiscard]] RDMACORO_DECL int open_tcp_listener(const inet_address& address, const inet_endpoint& at,
                                                  unsigned queue);

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/impl/listen_state.ipp>
#endif
