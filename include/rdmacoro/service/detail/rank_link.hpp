// rank_link: a rank's connection to another rank as collectives use it, without the types of its transport.
#pragma once

#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/protocol/metrics.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <span>
#include <system_error>

namespace rdmacoro::detail {

class rank_links;

/// A connection that sends and receives for another rank. One virtual call for each message.
class rank_link {
public:
    rank_link() noexcept = default;
    rank_link(const rank_link&) = delete;
    rank_link& operator=(const rank_link&) = delete;

    virtual void send(send_request& r) noexcept = 0;
    virtual void cancel_send(send_request& r) noexcept = 0;
    virtual void receive(receive_request& r) noexcept = 0;
    virtual void cancel_receive(receive_request& r) noexcept = 0;
    /// Drops the stored messages of groups that are revoked or were left. Throws `std::bad_alloc`.
    virtual void drop_stale(const rank_links& of) = 0;
    /// How many messages wait for a receive.
    [[nodiscard]] virtual std::size_t unread() noexcept = 0;
    /// The connection's counts.
    [[nodiscard]] virtual const metrics& counts() const noexcept = 0;

protected:
    ~rank_link() = default;
};

/// Whether a message with that tag will never be received. By `rank_links`.
[[nodiscard]] bool is_stale(const rank_links& at, tag_type tag) noexcept;

/// Over an endpoint, which outlives it.
template <class Endpoint>
class rank_link_over final : public rank_link {
public:
    explicit rank_link_over(Endpoint& end) noexcept : link_(end.connection()) {}

    void send(send_request& r) noexcept override { link_.send(r); }
    void cancel_send(send_request& r) noexcept override { link_.cancel_send(r); }
    void receive(receive_request& r) noexcept override { begin_receive(link_, r); }
    void cancel_receive(receive_request& r) noexcept override { detail::cancel_receive(link_, r); }
    void drop_stale(const rank_links& of) override {
        link_.mailbox().discard_if(link_.source(),
                                   [&of](tag_type tag) noexcept { return is_stale(of, tag); });
    }
    [[nodiscard]] std::size_t unread() noexcept override { return link_.mailbox().matching().unexpected(); }
    [[nodiscard]] const metrics& counts() const noexcept override { return link_.counts(); }

private:
    typename Endpoint::connection_type& link_;
};

class rank_send;
class rank_receive;

/// Another rank: its connection, or the transfers that wait for one, or why there will be none.
class rank_peer {
public:
    rank_peer() noexcept = default;
    rank_peer(const rank_peer&) = delete;
    rank_peer& operator=(const rank_peer&) = delete;

    [[gnu::always_inline]] void send(rank_send& r) noexcept;
    [[gnu::always_inline]] void receive(rank_receive& r) noexcept;
    void cancel(rank_send& r) noexcept;
    void cancel(rank_receive& r) noexcept;
    /// What waits for a connection ends.
    void fail_waiting(std::error_code why) noexcept;

    rank_links* of = nullptr;
    unsigned rank = 0;
    rank_link* link = nullptr;  // nullptr: there is none
    std::error_code lost{};     // there will be none
    bool left = false;  // it has closed the connection in good order: what it had sent may still be there
    bool connecting = false;  // it was asked for
    std::size_t kept = 0;     // messages that lay unread after the last look for stale ones, or fewer
    // That wait for the connection, in the order in which they began.
    intrusive_list<send_request> sends;
    intrusive_list<receive_request> receives;

private:
    void send_later(rank_send& r) noexcept;
    void receive_later(rank_receive& r) noexcept;
};

/// A send to another rank. Its memory is borrowed until it has ended.
class rank_send final : public basic_operation<rank_send, void, send_request> {
public:
    rank_send(rank_peer& to, scheduler& on, std::span<const std::byte> from, tag_type tag) noexcept
        : basic_operation(&on, const_buffers(from), tag, false), peer_(&to) {}
    rank_send(rank_send&&) noexcept = default;

    void start() noexcept { peer_->send(*this); }
    void cancel() noexcept { peer_->cancel(*this); }
    void finish_canceled() noexcept { this->fail_unbegun(errc::canceled); }
    result<void> outcome() noexcept { return this->code_; }
    [[nodiscard]] rank_peer& peer() const noexcept { return *peer_; }

    rank_link* given = nullptr;  // the link that has it

private:
    rank_peer* peer_;
};

/// A receive from another rank. If it is canceled its group is revoked, and its message is dropped with all others of that group.
class rank_receive final : public basic_operation<rank_receive, received, receive_request> {
public:
    /// `consumer`: takes what need not be copied `into` the memory; may be nullptr.
    rank_receive(rank_peer& from, scheduler& on, std::span<std::byte> into, tag_type tag,
                 arrival_consumer* consumer = nullptr) noexcept
        : basic_operation(&on, tag_match(tag), peer_id{0}, mutable_buffers(into), nullptr), peer_(&from) {
        if (consumer != nullptr) consume_by(*consumer);
    }
    rank_receive(rank_receive&& other) noexcept
        : basic_operation(std::move(other), nullptr), peer_(other.peer_) {}

    void start() noexcept { peer_->receive(*this); }
    void cancel() noexcept { peer_->cancel(*this); }
    void finish_canceled() noexcept { this->fail_unbegun(errc::canceled); }
    result<received> outcome() noexcept {
        if (this->code_) [[unlikely]]
            return this->code_;
        return this->got_;
    }
    [[nodiscard]] rank_peer& peer() const noexcept { return *peer_; }

    rank_link* given = nullptr;  // the link that has it

private:
    rank_peer* peer_;
};

[[gnu::always_inline]] inline void rank_peer::send(rank_send& r) noexcept {
    if (link == nullptr) [[unlikely]]
        return send_later(r);
    r.given = link;
    link->send(r);
}
[[gnu::always_inline]] inline void rank_peer::receive(rank_receive& r) noexcept {
    if (link == nullptr) [[unlikely]]
        return receive_later(r);
    r.given = link;
    link->receive(r);
}

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/rank_links.hpp>  // with the bodies
#endif
