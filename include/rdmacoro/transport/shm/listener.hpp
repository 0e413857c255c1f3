// Listening and connecting over shared memory.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/transport/shm/handshake.hpp>

#include <cstddef>
#include <string>

namespace rdmacoro::detail::shm {

/// Waits until a descriptor has something to read, at most for `limit`. Ends with `errc::timed_out` after that.
class readable_operation : public basic_operation<readable_operation, void>,
                           private fd_handler,
                           private timer_node {
public:
    readable_operation(domain_base& domain, int fd, duration limit) noexcept
        : basic_operation(&domain.owner()), domain_(domain), fd_(fd), limit_(limit) {}

    void start() noexcept;
    void cancel() noexcept { finish(make_error_code(errc::canceled)); }
    void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }
    result<void> outcome() noexcept { return outcome_; }

private:
    void finish(std::error_code outcome) noexcept;

    domain_base& domain_;
    int fd_;
    duration limit_;
    std::error_code outcome_{};
};

/// Accepts sockets, shakes hands with each on its own, and queues the connections that result. When as many are silent as may be, those
/// that have said nothing for a tenth of the time they have give way to new ones.
class acceptor : private fd_handler {
public:
    acceptor(domain_base& domain, const socket_name& name);
    acceptor(const acceptor&) = delete;
    acceptor& operator=(const acceptor&) = delete;
    ~acceptor();

    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] domain_base& domain() noexcept { return domain_; }

    /// Ends with the next connection.
    class accept_operation : public basic_operation<accept_operation, channel_ref>,
                             public list_node<accept_operation> {
    public:
        explicit accept_operation(acceptor& from) noexcept
            : basic_operation(&from.domain_.owner()), from_(from) {}
        void start() noexcept;
        void cancel() noexcept;
        void finish_canceled() noexcept { outcome_ = make_error_code(errc::canceled); }
        result<channel_ref> outcome() noexcept;

    private:
        friend class acceptor;
        void take() noexcept;
        void fail(errc why) noexcept;

        acceptor& from_;
        channel_ref made_;
        std::error_code outcome_{};
    };

private:
    static constexpr std::size_t most_half_open = 256;
    static constexpr std::size_t most_accepted = 1024;
    static constexpr unsigned most_at_once =
        16;                                // clients that are taken between two polls of everything else
    static constexpr int grace_part = 10;  // of the time for a hello, in which no new client takes the place

    /// A socket that has not received its hello yet.
    struct half_open : list_node<half_open>, fd_handler, timer_node {
        acceptor* owner = nullptr;
        unique_fd socket;
        time_point since{};
    };
    struct pause : timer_node {
        acceptor* self = nullptr;
    };

    void accept_all() noexcept;
    void resume_accepting() noexcept;
    void retry_later();
    void admit(unique_fd socket);
    void shake_hands(half_open& open) noexcept;
    [[nodiscard]] channel_ref connected(half_open& open);
    /// Sends the reason to a client, if that is still possible.
    static void refuse(half_open& open, std::error_code why) noexcept;
    void drop(half_open& open) noexcept;
    /// Drops the oldest silent one. False: there is none, or it has its grace still.
    bool drop_silent() noexcept;

    domain_base& domain_;
    std::string name_;
    unique_fd socket_;
    pause pause_;
    intrusive_list<half_open> half_open_;  // oldest first
    std::size_t half_open_count_ = 0;
    intrusive_list<channel> accepted_;  // not yet returned by accept(); one use of each is the acceptor's
    std::size_t accepted_count_ = 0;
    intrusive_list<accept_operation> waiting_;
};

/// The connecting side, up to its hello: a socket that is connected to the listener, and the channel made for it. `name`
/// outlives it.
class connector {
public:
    connector(domain_base& domain, const socket_name& name);

    /// Connects and sends the hello; false when the listener's queue is full, or too many sockets are being closed elsewhere. Throws.
    [[nodiscard]] bool try_connect();
    [[noreturn]] void give_up() const;

    [[nodiscard]] int socket() const noexcept { return socket_.get(); }
    /// The listener's hello has come. Throws.
    [[nodiscard]] channel_ref finish();

private:
    domain_base& domain_;
    const socket_name& name_;
    unique_fd socket_;
    pid_t pid_ = -1;
    channel_ref made_;
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/listener.ipp>
#endif
