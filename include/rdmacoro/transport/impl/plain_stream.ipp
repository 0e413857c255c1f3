// Bodies of plain_stream.hpp: non-blocking sockets, and an epoll instance for those that wait.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/progress_source.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/transport/detail/connect_info_exchange.hpp>
#include <rdmacoro/transport/detail/first_to_connect.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/detail/taken_port.hpp>
#include <rdmacoro/transport/detail/watcher.hpp>
#include <rdmacoro/transport/plain_stream.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace rdmacoro {

namespace detail {

/// The scheduler's plain sockets: polled while one of them waits.
class plain_sockets final : public progress_source {
public:
    explicit plain_sockets(scheduler& on) : on_(on) { on.add_source(*this); }

    bool poll() noexcept override {
        return waiting_ != 0 && watcher_.due(true, on_.coarse_now()) && watcher_.look();
    }
    int wake_fd() noexcept override { return watcher_.descriptor(); }
    void arm() noexcept override { watcher_.look_next(); }

    [[nodiscard]] bool watch(fd_handler& handler, int fd, std::uint32_t events) noexcept {
        if (!watcher_.watch(handler, fd, events)) return false;
        ++waiting_;
        return true;
    }
    void unwatch(fd_handler& handler) noexcept {
        watcher_.unwatch(handler);
        --waiting_;
    }

private:
    scheduler& on_;
    polled_watcher watcher_;
    std::size_t waiting_ = 0;
};

/// Owns the descriptor from now on, also where it throws `std::bad_alloc`.
RDMACORO_COLD plain_socket_owner own_plain(plain_sockets& among, scheduler& on, int fd) {
    auto* const made = new (std::nothrow) plain_socket(among, on, fd);
    if (made == nullptr) {
        ::close(fd);
        throw std::bad_alloc();
    }
    return plain_socket_owner(made);
}

/// Until a descriptor is ready, or its socket is closed.
class plain_wait final : public basic_operation<plain_wait, void>, private fd_handler, private parked_wait {
public:
    /// `place`: where the socket finds it while it waits.
    plain_wait(plain_socket& of, int fd, std::uint32_t events, plain_wait*& place) noexcept
        : basic_operation(&of.owner), of_(of), place_(place), fd_(fd), events_(events) {}

    void start() noexcept {
        this->ready = [](fd_handler& self, std::uint32_t) noexcept {
            auto& wait = static_cast<plain_wait&>(self);
            wait.unwatch();
            wait.complete();
        };
        if (!of_.in.watch(*this, fd_, events_)) {
            why_ = make_error_code(errc::no_resources);
            complete();
            return;
        }
        place_ = this;
        park(*this, facts);
    }
    void cancel() noexcept {
        unwatch();
        why_ = make_error_code(errc::canceled);
        complete();
    }
    void finish_canceled() noexcept { why_ = make_error_code(errc::canceled); }
    /// The socket is about to be closed. Precondition: `place` leads to this.
    void finish_closed() noexcept {
        unwatch();
        why_ = make_error_code(errc::closed);
        complete_by_user();
    }
    result<> outcome() noexcept {
        if (why_) return why_;
        return {};
    }

private:
    static constexpr wait_facts facts{"plain_stream", "waits for its socket", next_actor::network};

    void unwatch() noexcept {
        of_.in.unwatch(*this);
        place_ = nullptr;
    }

    plain_socket& of_;
    plain_wait*& place_;
    int fd_;
    std::uint32_t events_;
    std::error_code why_{};
};

RDMACORO_COLD void plain_socket::leave() noexcept {
    closed = true;
    if (read_wait != nullptr) read_wait->finish_closed();
    if (write_wait != nullptr) write_wait->finish_closed();
    // Nothing watches the descriptors any more, so that their numbers may be those of other sockets at once.
    if (reads >= 0) ::close(reads);
    if (writes >= 0) ::close(writes);
    reads = -1;
    writes = -1;
}

RDMACORO_COLD plain_socket::~plain_socket() { leave(); }

inline constexpr const char* plain_is_closed = "plain_stream: closed, default-constructed or moved from";

/// One at a time, of a socket that is open.
class plain_turn {
public:
    plain_turn(const plain_socket& of, bool& taken) : taken_(taken) {
        if (of.closed) throw_error(errc::closed, plain_is_closed);
        if (taken) throw_error(errc::invalid_argument, "plain_stream: one read and one write at a time");
        taken = true;
    }
    plain_turn(const plain_turn&) = delete;
    plain_turn& operator=(const plain_turn&) = delete;
    ~plain_turn() { taken_ = false; }

private:
    bool& taken_;
};

/// Ends the connection when it goes.
class plain_end {
public:
    explicit plain_end(plain_socket& of) noexcept : of_(of) {}
    plain_end(const plain_end&) = delete;
    plain_end& operator=(const plain_end&) = delete;
    ~plain_end() {
        if (!of_.closed) ::shutdown(of_.reads, SHUT_RDWR);
    }

private:
    plain_socket& of_;
};

RDMACORO_COLD plain_socket& plain_there(const plain_socket_owner& self) {
    if (!self) throw_error(errc::closed, plain_is_closed);
    return *self;
}

[[noreturn]] RDMACORO_COLD void throw_plain(std::error_code code, const char* what, std::size_t moved) {
    error_facts facts;
    facts.info = moved;
    throw error(code, std::string("plain_stream: ") + what + " after " + std::to_string(moved) + " bytes",
                facts);
}

/// The error with which a system call failed.
RDMACORO_COLD errc plain_code(int why) noexcept {
    switch (why) {
        case EADDRINUSE: return errc::address_in_use;
        case EACCES:
        case EPERM: return errc::permission_denied;
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM: return errc::no_resources;
        case EADDRNOTAVAIL: return errc::address_invalid;
        default: return errc::connection_refused;
    }
}

RDMACORO_COLD inet_address plain_address(std::string_view address) {
    return inet_address::parse("socket", address, ", such as 127.0.0.1:7471");
}

/// An attempt to connect that has ended.
struct plain_tried {
    int why = 0;
    plain_socket_owner made;

    [[nodiscard]] bool connected() const noexcept { return why == 0; }
};

RDMACORO_COLD task<plain_tried> attempt_plain(plain_sockets& among, scheduler& on, const inet_endpoint& to) {
    plain_tried tried;
    int refused = 0;
    const int fd = connect_for_exchange(to, refused);
    if (fd < 0) {
        tried.why = refused != 0 ? refused : errno;
        co_return tried;
    }
    tried.made = own_plain(among, on, fd);
    co_await plain_wait(*tried.made, fd, EPOLLOUT, tried.made->write_wait);
    tried.why = connect_error(fd);
    co_return tried;
}

/// For `first_to_connect`.
struct plain_attempts {
    plain_sockets* among;
    scheduler* on;
    task<plain_tried> operator()(const inet_endpoint& to) const { return attempt_plain(*among, *on, to); }
};

RDMACORO_COLD task<plain_stream> connect_plain_to(std::string text) {
    const inet_address address = plain_address(text);
    scheduler& on = running_scheduler();
    co_await unless_stopped();
    plain_sockets& among = on.service<plain_sockets>();  // needs a descriptor itself, the first time
    inet_resolve resolve(address, 0);
    const inet_resolved found = co_await resolve;
    if (found.none()) found.throw_none("socket", address);
    const plain_attempts attempts{&among, &on};
    plain_tried tried = co_await first_to_connect<plain_tried>(found.endpoints, attempts);
    if (!tried.connected())
        throw error(plain_code(tried.why), address.whole + ": " + std::strerror(tried.why));
    set_exchange_options(tried.made->reads);
    co_return plain_stream(std::move(tried.made));
}

RDMACORO_COLD task<plain_listener> listen_plain_at(std::string text) {
    const inet_address address = plain_address(text);
    scheduler& on = running_scheduler();
    co_await unless_stopped();
    plain_sockets& among = on.service<plain_sockets>();
    inet_resolve resolve(address, AI_PASSIVE);
    const inet_resolved found = co_await resolve;
    if (found.none()) found.throw_none("socket", address);
    constexpr unsigned queue = 1024;
    taken_port port(on, address);
    for (;;) {
        int fd = -1;
        const char* const step = listen_for_exchange(found.endpoints.front(), queue, fd);
        const int why = errno;
        if (step == nullptr) co_return plain_listener(own_plain(among, on, fd));
        if (fd >= 0) ::close(fd);
        if (!port.may_come_free(make_error_code(plain_code(why))))
            throw error(plain_code(why), address.whole + ": " + step + ": " + std::strerror(why));
        co_await port.wait();
    }
}

}  // namespace detail

RDMACORO_DECL task<> plain_stream::write_bytes(detail::plain_socket_owner self,
                                               std::span<const std::byte> from) {
    detail::plain_socket& s = detail::plain_there(self);
    co_await detail::unless_stopped();
    const detail::plain_turn turn(s, s.writing);
    if (s.shut) detail::throw_error(errc::closed, "plain_stream: a write after shutdown");
    for (std::size_t done = 0; done < from.size();) {
        if (!s.owner.may_go_on()) {
            const auto others = co_await as_result(yield());
            if (!others) detail::throw_plain(others.error(), "write", done);
        }
        if (s.closed) detail::throw_plain(make_error_code(errc::closed), "write", done);
        const ssize_t sent =
            ::send(s.reads, from.data() + done, from.size() - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            done += static_cast<std::size_t>(sent);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) {
            if (s.writes < 0) s.writes = ::fcntl(s.reads, F_DUPFD_CLOEXEC, 0);
            const auto waited = co_await as_result(detail::plain_wait(s, s.writes, EPOLLOUT, s.write_wait));
            if (!waited) detail::throw_plain(waited.error(), "write", done);
        } else if (errno != EINTR) {
            detail::throw_plain(make_error_code(errc::peer_lost), "write", done);
        }
    }
}

RDMACORO_DECL task<std::size_t> plain_stream::read_bytes(detail::plain_socket_owner self,
                                                         std::span<std::byte> into, bool all) {
    detail::plain_socket& s = detail::plain_there(self);
    co_await detail::unless_stopped();
    const detail::plain_turn turn(s, s.reading);
    std::size_t done = 0;
    while (done < into.size()) {
        if (!s.owner.may_go_on()) {  // its peer may send as fast as it reads
            const auto others = co_await as_result(yield());
            if (!others) detail::throw_plain(others.error(), "read", done);
        }
        if (s.closed) detail::throw_plain(make_error_code(errc::closed), "read", done);
        const ssize_t got = ::recv(s.reads, into.data() + done, into.size() - done, MSG_DONTWAIT);
        if (got > 0) {
            done += static_cast<std::size_t>(got);
            if (!all) break;
        } else if (got == 0) {
            s.ended = true;
            if (done != 0)
                detail::throw_plain(make_error_code(errc::closed), "the stream ended in the middle", done);
            break;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            const auto waited =
                co_await as_result(detail::plain_wait(s, s.reads, EPOLLIN | EPOLLRDHUP, s.read_wait));
            if (!waited) detail::throw_plain(waited.error(), "read", done);
        } else if (errno != EINTR) {
            detail::throw_plain(make_error_code(errc::peer_lost), "read", done);
        }
    }
    co_return done;
}

RDMACORO_DECL task<> plain_stream::shut_down(detail::plain_socket_owner self) {
    detail::plain_socket& s = detail::plain_there(self);
    const detail::plain_turn turn(s, s.writing);
    if (s.shut) co_await detail::turn_for_others();
    if (!s.shut && ::shutdown(s.reads, SHUT_WR) != 0)
        detail::throw_plain(make_error_code(errc::peer_lost), "shutdown", 0);
    s.shut = true;
}

RDMACORO_DECL task<> plain_stream::close_all(detail::plain_socket_owner self) {
    detail::plain_socket& s = detail::plain_there(self);
    const detail::plain_end at_last(s);
    co_await shut_down(self);
    std::array<std::byte, 4096> dropped;
    while (co_await read_bytes(self, dropped, false) != 0) {}
}

RDMACORO_DECL task<> plain_stream::nothing() { co_await detail::turn_for_others(); }

RDMACORO_DECL bool plain_stream::at_end() const noexcept { return state_ && state_->ended; }

RDMACORO_DECL task<plain_stream> connect_plain(std::string_view address) {
    return detail::connect_plain_to(std::string(address));
}
RDMACORO_DECL task<plain_listener> listen_plain(std::string_view address) {
    return detail::listen_plain_at(std::string(address));
}

RDMACORO_DECL task<plain_stream> plain_listener::accept_from(detail::plain_socket_owner self) {
    detail::plain_socket& s = detail::plain_there(self);
    co_await detail::unless_stopped();
    const detail::plain_turn turn(s, s.reading);
    for (;;) {
        if (s.closed) detail::throw_error(errc::closed, "plain_listener: destroyed while an accept waited");
        const int fd = ::accept4(s.reads, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            detail::set_exchange_options(fd);
            co_return plain_stream(detail::own_plain(s.in, s.owner, fd));
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            throw error(errc::no_resources, std::string("plain_listener: accept: ") + std::strerror(errno));
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            co_await detail::plain_wait(s, s.reads, EPOLLIN, s.read_wait);
        } else {  // what had connected is gone: another may have come
            co_await detail::turn_for_others();
        }
    }
}

RDMACORO_COLD std::string plain_listener::address() const {
    return detail::inet_endpoint::local(detail::plain_there(state_).reads).url("socket");
}

}  // namespace rdmacoro
