// Listening and connecting over shared memory.
#pragma once

#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/shm/handshake.hpp>

#include <deque>
#include <memory>

namespace rdmacoro::detail::shm {

/// Waits until a descriptor has something to read, at most for `limit`. Ends with `errc::timed_out` after that.
class readable_operation : public basic_operation<readable_operation, void>,
                           private fd_handler,
                           private timer_node {
public:
    readable_operation(domain_base& domain, int fd, duration limit) noexcept
        : basic_operation(&domain.owner()), domain_(domain), fd_(fd), limit_(limit) {}

    void start() noexcept {
        fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
            static_cast<readable_operation&>(self).finish({});
        };
        timer_node::expired = [](timer_node& self) noexcept {
            static_cast<readable_operation&>(self).finish(make_error_code(errc::timed_out));
        };
        try {
            domain_.watch(*this, fd_, EPOLLIN | EPOLLRDHUP, true);
            deadline = owner().now() + limit_;
            owner().add_timer(*this);
        } catch (const std::system_error& failure) {
            finish(failure.code());
        } catch (const std::bad_alloc&) {
            finish(make_error_code(errc::no_resources));
        }
    }
    void cancel() noexcept { finish(make_error_code(errc::canceled)); }
    void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }
    result<void> outcome() noexcept { return outcome_; }

private:
    void finish(std::error_code outcome) noexcept {
        outcome_ = outcome;
        domain_.unwatch(*this);
        owner().remove_timer(*this);
        complete();
    }

    domain_base& domain_;
    int fd_;
    duration limit_;
    std::error_code outcome_{};
};

/// Accepts sockets, shakes hands with each on its own, and queues the connections that result.
class acceptor : private fd_handler {
public:
    acceptor(domain_base& domain, const socket_name& name) : domain_(domain), name_(name.text()) {
        socket_ = unique_fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        if (!socket_) throw_errno("socket for " + name_);
        if (::bind(socket_.get(), name.raw(), name.length()) != 0) {
            if (errno == EADDRINUSE)
                throw error(errc::address_in_use,
                            name_ + ": another process listens there; choose another name");
            throw_errno("bind of " + name_);
        }
        if (::listen(socket_.get(), 1024) != 0) throw_errno("listen on " + name_);
        fd_handler::ready = [](fd_handler& self, std::uint32_t) noexcept {
            static_cast<acceptor&>(self).accept_all();
        };
        domain_.watch(*this, socket_.get(), EPOLLIN);
        pause_.self = this;
        pause_.expired = [](timer_node& t) noexcept { static_cast<pause&>(t).self->resume_accepting(); };
    }
    acceptor(const acceptor&) = delete;
    acceptor& operator=(const acceptor&) = delete;
    ~acceptor() {
        domain_.unwatch(*this);
        domain_.owner().remove_timer(pause_);
        while (half_open* open = half_open_.front()) drop(*open);
        while (accept_operation* waiting = waiting_.pop_front()) waiting->fail(errc::closed);
    }

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] domain_base& domain() noexcept { return domain_; }

    /// Ends with the next connection.
    class accept_operation : public basic_operation<accept_operation, channel_ref>,
                             public list_node<accept_operation> {
    public:
        explicit accept_operation(acceptor& from) noexcept
            : basic_operation(&from.domain_.owner()), from_(from) {}
        void start() noexcept {
            if (from_.done_.empty()) {
                from_.waiting_.push_back(*this);
            } else {
                take();
            }
        }
        void cancel() noexcept {
            unlink();
            fail(errc::canceled);
        }
        void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }
        result<channel_ref> outcome() noexcept {
            if (outcome_) return outcome_;
            return std::move(made_);
        }

    private:
        friend class acceptor;
        void take() noexcept {
            made_ = std::move(from_.done_.front());
            from_.done_.pop_front();
            from_.resume_accepting();
            complete();
        }
        void fail(errc why) noexcept {
            outcome_ = make_error_code(why);
            complete();
        }

        acceptor& from_;
        channel_ref made_;
        std::error_code outcome_{};
    };

private:
    static constexpr std::size_t most_half_open = 256;
    static constexpr std::size_t most_done = 1024;

    /// A socket whose hello has not come yet.
    struct half_open : list_node<half_open>, fd_handler, timer_node {
        acceptor* owner = nullptr;
        unique_fd socket;
        pid_t pid = -1;
    };
    struct pause : timer_node {
        acceptor* self = nullptr;
    };

    void accept_all() noexcept {
        while (half_open_count_ < most_half_open && done_.size() < most_done) {
            unique_fd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
            if (!socket) {
                if (errno == EINTR || errno == ECONNABORTED) continue;
                if (errno == EAGAIN) return;
                break;  // out of descriptors or memory: try again a little later
            }
            try {
                admit(std::move(socket));
            } catch (const std::exception&) {  // this client's loss
            }
        }
        domain_.unwatch(*this);
        if (!pause_.queued()) {
            pause_.deadline = domain_.owner().now() + std::chrono::milliseconds(20);
            domain_.owner().add_timer(pause_);
        }
    }

    void resume_accepting() noexcept {
        if (watched >= 0) return;
        domain_.owner().remove_timer(pause_);
        try {
            domain_.watch(*this, socket_.get(), EPOLLIN);
        } catch (const std::exception&) {
            pause_.deadline = domain_.owner().now() + std::chrono::milliseconds(20);
            domain_.owner().add_timer(pause_);
        }
    }

    void admit(unique_fd socket) {
        const ucred who = peer_credentials(socket.get());
        if (who.uid != ::geteuid()) {
            hello refusal;
            refusal.status = static_cast<std::uint32_t>(errc::permission_denied);
            send_hello(socket.get(), refusal, {});
            return;
        }
        auto open = std::make_unique<half_open>();
        open->owner = this;
        open->pid = who.pid;
        open->socket = std::move(socket);
        open->ready = [](fd_handler& self, std::uint32_t) noexcept {
            auto& here = static_cast<half_open&>(self);
            here.owner->shake_hands(here);
        };
        open->expired = [](timer_node& self) noexcept {
            auto& here = static_cast<half_open&>(self);
            here.owner->drop(here);
        };
        domain_.watch(*open, open->socket.get(), EPOLLIN | EPOLLRDHUP, true);
        open->deadline = domain_.owner().now() + domain_.options().handshake_limit;
        try {
            domain_.owner().add_timer(*open);
        } catch (const std::bad_alloc&) {
            domain_.unwatch(*open);
            throw;
        }
        half_open_.push_back(*open.release());
        ++half_open_count_;
    }

    void shake_hands(half_open& open) noexcept {
        try {
            received_hello peer = receive_hello(open.socket.get());
            if (peer.count != 4 || !peer.said.shape.acceptable()) throw error(errc::protocol_violation);
            channel_ref made(new channel);
            made->domain = &domain_;
            made->attach(peer.descriptors[3].get(), peer.said.shape, false);
            made->name = name_ + " (process " + std::to_string(open.pid) + ")";
            admit_peer(domain_, open.pid);
            adopt(*made, domain_, peer, open.pid);
            const own_hello own = introduce(domain_, peer.said.shape, -1);
            send_hello(open.socket.get(), own.said, std::span(own.descriptors).first(own.count));
            domain_.unwatch(open);
            made->socket = std::move(open.socket);
            done_.push_back(std::move(made));
        } catch (const error& failure) {
            refuse(open, failure.code());
        } catch (const std::exception&) {
            refuse(open, make_error_code(errc::no_resources));
        }
        drop(open);
        if (!done_.empty()) {
            if (accept_operation* waiting = waiting_.pop_front()) waiting->take();
        }
    }

    /// Tells a client why, as far as it can be told.
    static void refuse(half_open& open, std::error_code why) noexcept {
        hello refusal;
        const bool ours = why.category() == error_category();
        refusal.status =
            static_cast<std::uint32_t>(ours ? static_cast<errc>(why.value()) : errc::no_resources);
        try {
            send_hello(open.socket.get(), refusal, {});
        } catch (const std::exception&) {  // it is gone: nobody to tell
        }
    }

    void drop(half_open& open) noexcept {
        domain_.unwatch(open);
        domain_.owner().remove_timer(open);
        open.list_node<half_open>::unlink();
        --half_open_count_;
        delete &open;
    }

    domain_base& domain_;
    std::string name_;
    unique_fd socket_;
    pause pause_;
    intrusive_list<half_open> half_open_;
    std::size_t half_open_count_ = 0;
    std::deque<channel_ref> done_;
    intrusive_list<accept_operation> waiting_;
};

/// The connecting side.
template <class = void>
task<channel_ref> connect_channel(domain_base& domain, socket_name name) {
    unique_fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket) throw_errno("socket for " + name.text());
    if (::connect(socket.get(), name.raw(), name.length()) != 0) {
        if (errno == ECONNREFUSED || errno == ENOENT) {
            throw error(errc::connection_refused, name.text() + ": start the listening process first");
        }
        if (errno == EAGAIN)
            throw error(errc::no_resources, name.text() + ": the listener's queue is full; try again");
        throw_errno("connect to " + name.text());
    }
    const ucred who = peer_credentials(socket.get());
    if (who.uid != ::geteuid()) {
        throw error(errc::permission_denied, name.text() + ": the listener belongs to user " +
                                                 std::to_string(who.uid) + ", this process runs as " +
                                                 std::to_string(::geteuid()));
    }
    channel_ref made(new channel);
    made->domain = &domain;
    made->name = name.text();
    const geometry shape = domain.options().shape;
    if (!shape.acceptable()) throw error(errc::invalid_argument, "shm_options::shape");
    {
        const unique_fd file = segment::create(shape);
        made->attach(file.get(), shape, true);
        admit_peer(domain, who.pid);
        const own_hello own = introduce(domain, shape, file.get());
        send_hello(socket.get(), own.said, std::span(own.descriptors).first(own.count));
    }
    readable_operation reply(domain, socket.get(), domain.options().handshake_limit);
    co_await reply;
    received_hello peer = receive_hello(socket.get());
    if (peer.count != 3)
        throw error(errc::protocol_violation, name.text() + ": the listener's hello is not complete");
    adopt(*made, domain, peer, who.pid);
    made->socket = std::move(socket);
    co_return made;
}

}  // namespace rdmacoro::detail::shm
