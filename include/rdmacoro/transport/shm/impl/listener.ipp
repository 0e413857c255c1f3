// Listening and connecting over shared memory: sockets, timers and refusals.
#pragma once

#include <rdmacoro/transport/detail/close_elsewhere.hpp>
#include <rdmacoro/transport/shm/listener.hpp>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <new>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace rdmacoro::detail::shm {

RDMACORO_COLD void readable_operation::start() noexcept {
    fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<readable_operation&>(self).finish({});
    };
    timer_node::expired = [](timer_node& self) noexcept {
        static_cast<readable_operation&>(self).finish(make_error_code(errc::timed_out));
    };
    try {
        domain_.watch(*this, fd_, EPOLLIN | EPOLLRDHUP, true);
        deadline = deadline_after(owner().now(), limit_);
        owner().add_timer(*this);
    } catch (const std::system_error& failure) {
        finish(failure.code());
    } catch (const std::bad_alloc&) {
        finish(make_error_code(errc::no_resources));
    }
}

RDMACORO_COLD void readable_operation::finish(std::error_code outcome) noexcept {
    outcome_ = outcome;
    domain_.unwatch(*this);
    owner().remove_timer(*this);
    complete();
}

RDMACORO_COLD acceptor::acceptor(domain_base& domain, const socket_name& name)
    : domain_(domain), name_(name.text()) {
    socket_ = unique_fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_) throw_errno("socket for ", name_);
    // A listener that ended with many clients of other users in its queue leaves the name a moment later.
    constexpr int most_tries = 50;
    for (int tries = 1; ::bind(socket_.get(), name.raw(), name.length()) != 0; ++tries) {
        if (errno == EADDRINUSE && closing_elsewhere() != 0 && tries < most_tries) {
            ::usleep(1000);
            continue;
        }
        if (errno == EADDRINUSE)
            throw_named(errc::address_in_use, name_, ": another process listens there; choose another name");
        throw_errno("bind of ", name_);
    }
    if (::listen(socket_.get(), 1024) != 0) throw_errno("listen on ", name_);
    fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
        static_cast<acceptor&>(self).accept_all();
    };
    domain_.watch(*this, socket_.get(), EPOLLIN);
    pause_.self = this;
    pause_.expired = [](timer_node& t) noexcept { static_cast<pause&>(t).self->resume_accepting(); };
}

RDMACORO_COLD acceptor::~acceptor() {
    domain_.unwatch(*this);
    domain_.owner().remove_timer(pause_);
    // The clients that were not taken go with the socket. In a child made by fork it is the parent's, and is only closed.
    if (domain_.own_process()) close_listener(socket_.release());
    while (half_open* open = half_open_.front()) drop(*open);
    while (channel* unclaimed = accepted_.pop_front()) unclaimed->release();
    while (accept_operation* waiting = waiting_.pop_front()) waiting->fail(errc::closed);
}

RDMACORO_COLD void acceptor::accept_operation::start() noexcept {
    if (from_.accepted_.empty()) {
        from_.waiting_.push_back(*this);
    } else {
        take();
    }
}

RDMACORO_COLD void acceptor::accept_operation::cancel() noexcept {
    unlink();
    fail(errc::canceled);
}

RDMACORO_COLD result<channel_ref> acceptor::accept_operation::outcome() noexcept {
    if (outcome_) return outcome_;
    return std::move(made_);
}

RDMACORO_COLD void acceptor::accept_operation::take() noexcept {
    made_ = channel_ref(from_.accepted_.pop_front());
    --from_.accepted_count_;
    from_.resume_accepting();
    complete();
}

RDMACORO_COLD void acceptor::accept_operation::fail(errc why) noexcept {
    outcome_ = make_error_code(why);
    complete();
}

RDMACORO_COLD void acceptor::accept_all() noexcept {
    unsigned taken = 0;
    while (accepted_count_ < most_accepted && (half_open_count_ < most_half_open || drop_silent())) {
        // Clients may come, also those of another user that are refused, as fast as they are taken.
        if (taken++ == most_at_once) return;
        if (closing_elsewhere() >= most_closing) break;
        unique_fd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (!socket) {
            if (errno == EINTR || errno == ECONNABORTED) continue;
            if (errno == EAGAIN) return;
            if (drop_silent()) continue;
            break;  // out of descriptors or memory: try again a little later
        }
        try {
            admit(std::move(socket));
        } catch (const std::exception&) {  // only this client is lost
        }
    }
    domain_.unwatch(*this);
    if (!pause_.queued()) retry_later();
}

RDMACORO_COLD void acceptor::resume_accepting() noexcept {
    if (watched >= 0) return;
    domain_.owner().remove_timer(pause_);
    try {
        domain_.watch(*this, socket_.get(), EPOLLIN);
    } catch (const std::exception&) {
        retry_later();
    }
}

RDMACORO_COLD void acceptor::retry_later() {
    pause_.deadline = domain_.owner().now() + std::chrono::milliseconds(20);
    domain_.owner().add_timer(pause_);
}

RDMACORO_COLD void acceptor::admit(unique_fd socket) {
    const ucred peer = peer_credentials(socket.get());
    if (!is_this_user(peer.uid)) {
        hello refusal;
        refusal.status = static_cast<std::uint32_t>(errc::permission_denied);
        try {
            send_hello(socket.get(), refusal, nullptr, 0);
        } catch (const error&) {  // it has gone
        }
        close_elsewhere(socket.release());
        return;
    }
    auto* open = new half_open;
    open->owner = this;
    open->socket = std::move(socket);
    open->ready = [](fd_handler& self, std::uint32_t) noexcept {
        auto& here = static_cast<half_open&>(self);
        here.owner->shake_hands(here);
    };
    open->expired = [](timer_node& self) noexcept {
        auto& here = static_cast<half_open&>(self);
        here.owner->drop(here);
    };
    half_open_.push_back(*open);
    ++half_open_count_;
    try {
        domain_.watch(*open, open->socket.get(), EPOLLIN | EPOLLRDHUP, true);
        open->since = domain_.owner().now();
        open->deadline = deadline_after(open->since, domain_.options().handshake_limit);
        domain_.owner().add_timer(*open);
    } catch (...) {
        drop(*open);
        throw;
    }
}

RDMACORO_COLD void acceptor::shake_hands(half_open& open) noexcept {
    try {
        accepted_.push_back(*connected(open).detach());
        ++accepted_count_;
    } catch (const error& failure) {
        refuse(open, failure.code());
    } catch (const std::exception&) {
        refuse(open, make_error_code(errc::no_resources));
    }
    drop(open);
    if (!accepted_.empty()) {
        if (accept_operation* waiting = waiting_.pop_front()) waiting->take();
    }
}

RDMACORO_COLD channel_ref acceptor::connected(half_open& open) {
    received_hello peer = receive_hello(open.socket.get());
    if (peer.count != 3 || !peer.contents.shape.acceptable()) throw error(errc::protocol_violation);
    channel_ref made(new channel);
    made->domain = &domain_;
    made->attach(peer.descriptors[2].get(), peer.contents.shape, false);
    made->name = name_;
    admit_peer(*made, domain_, peer.pid);
    adopt(*made, domain_, peer, open.socket.get());
    const own_hello own = introduce(domain_, peer.contents.shape, -1);
    send_hello(open.socket.get(), own.contents, own.descriptors, own.count);
    domain_.unwatch(open);
    made->socket = std::move(open.socket);
    return made;
}

RDMACORO_COLD void acceptor::refuse(half_open& open, std::error_code why) noexcept {
    hello refusal;
    const bool ours = why.category() == error_category();
    refusal.status = static_cast<std::uint32_t>(ours ? static_cast<errc>(why.value()) : errc::no_resources);
    try {
        send_hello(open.socket.get(), refusal, nullptr, 0);
    } catch (const std::exception&) {  // the client has closed its socket
    }
}

RDMACORO_COLD void acceptor::drop(half_open& open) noexcept {
    domain_.unwatch(open);
    domain_.owner().remove_timer(open);
    open.list_node<half_open>::unlink();
    --half_open_count_;
    delete &open;
}

RDMACORO_COLD bool acceptor::drop_silent() noexcept {
    half_open* const oldest = half_open_.front();
    const duration grace = domain_.options().handshake_limit / grace_part;
    if (oldest == nullptr || domain_.owner().now() - oldest->since < grace) return false;
    drop(*oldest);
    return true;
}

RDMACORO_COLD connector::connector(domain_base& domain, const socket_name& name)
    : domain_(domain),
      name_(name),
      socket_(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    if (!socket_) throw_errno("socket for ", name.text());
}

RDMACORO_COLD void connector::give_up() const {
    throw_named(errc::no_resources, name_.text(),
                closing_elsewhere() >= most_closing
                    ? ": what processes of other users have sent takes too long to close"
                    : ": the listener's queue stayed full; it accepts nothing, or is too busy");
}

RDMACORO_COLD bool connector::try_connect() {
    const socket_name& name = name_;
    if (closing_elsewhere() >= most_closing) return false;  // this socket may become one more of them
    if (::connect(socket_.get(), name.raw(), name.length()) != 0) {
        if (errno == ECONNREFUSED || errno == ENOENT)
            throw_named(errc::connection_refused, name.text(), ": start the listening process first");
        if (errno == EAGAIN) return false;
        throw_errno("connect to ", name.text());
    }
    const ucred peer = peer_credentials(socket_.get());
    if (!is_this_user(peer.uid)) {
        close_elsewhere(socket_.release());
        if (is_indistinct_user())
            throw_named(errc::permission_denied, name.text(),
                        ": this process runs as the user as which its user namespace shows all users that it "
                        "does not map, and cannot tell its peers' users; run it as another one");
        char why[96];
        std::snprintf(why, sizeof why, ": the listener belongs to user %lu, this process runs as %lu",
                      static_cast<unsigned long>(peer.uid), static_cast<unsigned long>(::geteuid()));
        throw_named(errc::permission_denied, name.text(), why);
    }
    pid_ = peer.pid;
    made_ = channel_ref(new channel);
    made_->domain = &domain_;
    made_->name = name.text();
    const geometry shape = domain_.options().shape;
    if (!shape.acceptable()) throw error(errc::invalid_argument, "shm_options::shape");
    const unique_fd file = segment::create(shape);
    made_->attach(file.get(), shape, true);
    admit_peer(*made_, domain_, pid_);
    const own_hello own = introduce(domain_, shape, file.get());
    send_hello(socket_.get(), own.contents, own.descriptors, own.count);
    return true;
}

RDMACORO_COLD channel_ref connector::finish() {
    received_hello peer = receive_hello(socket_.get());
    if (peer.count != 2)
        throw_named(errc::protocol_violation, made_->name, ": the listener's hello is not complete");
    adopt(*made_, domain_, peer, socket_.get());
    made_->socket = std::move(socket_);
    return std::move(made_);
}

}  // namespace rdmacoro::detail::shm
