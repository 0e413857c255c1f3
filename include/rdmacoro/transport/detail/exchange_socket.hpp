// exchange_socket: the TCP socket that a session opens with. The exchange of connect_info runs over it; afterwards its end shows
// the end of the link.
#pragma once

#include <rdmacoro/transport/detail/connect_info_exchange.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/detail/keepalive.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>

#include <cerrno>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include <unistd.h>

namespace rdmacoro::detail {

/// The session that an exchange belongs to:
///  1. `take_connect_info()` judges the peer's connect_info and answers it; false: opening has failed, and the socket may be
///     closed;
///  2. `exchanged(answer)` is called when both sides have answered, with the peer's answer;
///  3. `exchange_failed(how)` ends opening.
template <class Session>
concept exchanging_session = requires(Session& s, std::byte answer, const exchange_failure& how) {
    { s.take_connect_info() } noexcept -> std::same_as<bool>;
    { s.exchanged(answer) } noexcept;
    { s.exchange_failed(how) } noexcept;
};

/// Owns the socket. Events go to `handler`; the handler's owner calls `go_on` while the exchange lasts.
template <std::size_t InfoBytes>
class exchange_socket {
public:
    using exchange_type = connect_info_exchange<InfoBytes>;

    exchange_socket(polled_watcher& watching, fd_handler& handler) noexcept
        : watching_(watching), handler_(handler) {}
    exchange_socket(const exchange_socket&) = delete;
    exchange_socket& operator=(const exchange_socket&) = delete;
    ~exchange_socket() { close(); }

    /// Begins an exchange over `fd`, of a connection that is accepted or still being connected to `peer`, which is
    /// filled in where it is empty. Nullptr, or the step that failed: `errno` is the reason. The events are not watched
    /// yet. The socket of a host that vanishes ends within `peer_timeout`.
    [[nodiscard]] const char* open(int fd, inet_endpoint& peer,
                                   duration peer_timeout = std::chrono::seconds(60)) noexcept {
        socket_ = fd;
        if (fd < 0) return "open a socket";
        set_exchange_options(fd);
        set_silence_limit(fd, peer_timeout);
        if (peer.bytes == 0) peer = inet_endpoint::peer(fd);
        exchange_.reset(new (std::nothrow) exchange_type);
        if (exchange_ != nullptr) return nullptr;
        errno = ENOMEM;
        return "make room";
    }
    /// Watches a socket that is opened, once this side's connect_info is in place. As `open`.
    [[nodiscard]] const char* watch() noexcept {
        return watch(EPOLLIN | EPOLLOUT | EPOLLRDHUP) ? nullptr : "watch a socket";
    }
    [[nodiscard]] bool is_open() const noexcept { return socket_ >= 0; }
    /// This side's address; no bytes: there is none.
    [[nodiscard]] inet_endpoint local() const noexcept { return inet_endpoint::local(socket_); }
    [[nodiscard]] bool exchanges() const noexcept { return exchange_ != nullptr; }
    /// Precondition: `exchanges()`.
    [[nodiscard]] exchange_type& exchange() noexcept { return *exchange_; }
    /// Answers the peer's connect_info. False: `exchange().failure()` is the reason.
    [[nodiscard]] bool answer(std::byte what) noexcept { return exchange_->answer(socket_, what); }

    /// Goes on with the exchange after an event of the socket.
    template <exchanging_session Session>
    void go_on(Session& owner) noexcept {
        for (;;) {
            switch (exchange_->go_on(socket_)) {
                case exchange_type::step::wait: static_cast<void>(watch(exchange_->wanted())); return;
                case exchange_type::step::connect_info:
                    if (!owner.take_connect_info()) return;
                    break;
                case exchange_type::step::done: {
                    const std::byte answered = exchange_->answered();
                    static_cast<void>(watch(EPOLLIN | EPOLLRDHUP));
                    exchange_.reset();
                    return owner.exchanged(answered);
                }
                case exchange_type::step::failed: {
                    const exchange_failure how = exchange_->failure();
                    return owner.exchange_failed(how);
                }
            }
        }
    }

    /// Events are of no interest any more; the socket stays open.
    void unwatch() noexcept { watching_.unwatch(handler_); }
    void close() noexcept {
        unwatch();
        if (socket_ >= 0) ::close(std::exchange(socket_, -1));
        exchange_.reset();
    }

private:
    [[nodiscard]] bool watch(std::uint32_t events) noexcept {
        return watching_.watch(handler_, socket_, events);
    }

    polled_watcher& watching_;
    fd_handler& handler_;
    int socket_ = -1;
    std::unique_ptr<exchange_type> exchange_;
};

}  // namespace rdmacoro::detail
