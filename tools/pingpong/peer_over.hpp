// Peers and listeners of one transport and list.
#pragma once

#include "measure.hpp"
#include "peer.hpp"
#include "services.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/connect.hpp>
#include <rdmacoro/protocol/explain.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace pingpong {

template <class Transport, class List>
class peer_over final : public peer {
    using endpoint_type = rdmacoro::endpoint<Transport, List>;

public:
    explicit peer_over(endpoint_type over) : over_(std::move(over)) {}

    rdmacoro::task<> send(control_bytes message) override { co_await over_.send(message, control_tag); }
    rdmacoro::task<control_message> receive() override {
        control_message message;
        const rdmacoro::received got = co_await over_.recv(message.raw, control_tag);
        message.bytes = got.bytes;
        co_return message;
    }
    rdmacoro::task<tick_count> ask(exchange& x, const rdmacoro::remote_region& there) override {
        return pingpong::ask(*this, over_, x, there);
    }
    rdmacoro::task<> answer(exchange& x) override { return pingpong::answer(*this, over_, x); }
    std::unique_ptr<service_side> make_services() override {
        if constexpr (std::is_same_v<endpoint_type, rdmacoro::endpoint<Transport>>) {
            return make_service_side(over_);
        } else {
            throw run_error("services go by the protocol list auto");
        }
    }
    rdmacoro::region register_memory(std::span<std::byte> memory, rdmacoro::access_rights rights) override {
        return over_.owner().template service<typename Transport::domain>().register_memory(memory, rights);
    }

    std::string_view transport_name() const override { return Transport::name; }
    std::string protocols() const override { return List::text(); }
    std::string policy_of(std::size_t bytes) const override {
        const auto chosen = List::choose({bytes, false}, over_.link_capabilities());
        return chosen == List::none ? std::string() : std::string(List::name_of(chosen));
    }
    std::string explain() const override { return over_.explain(); }
    const rdmacoro::capabilities& link() const override { return over_.link_capabilities(); }
    rdmacoro::metrics counts() const override { return over_.counts(); }

    bool is_open() const override { return over_.is_open(); }
    rdmacoro::task<> close() override {
        static_cast<void>(co_await rdmacoro::as_result(rdmacoro::timeout(over_.close(), close_limit)));
    }
    void abort() noexcept override { over_.abort(); }

private:
    endpoint_type over_;
};

template <class Transport, class List>
class peer_listener_over final : public peer_listener {
public:
    explicit peer_listener_over(rdmacoro::listener<Transport, List> raw) : raw_(std::move(raw)) {}

    std::string address() const override { return raw_.address(); }
    rdmacoro::task<std::unique_ptr<peer>> accept() override {
        rdmacoro::endpoint<Transport, List> came = co_await raw_.accept();
        co_return std::make_unique<peer_over<Transport, List>>(std::move(came));
    }

private:
    rdmacoro::listener<Transport, List> raw_;
};

template <class Transport, class List>
rdmacoro::task<std::unique_ptr<peer>> connect_over(std::string address) {
    rdmacoro::endpoint<Transport, List> made = co_await rdmacoro::connect<Transport, List>(address);
    co_return std::make_unique<peer_over<Transport, List>>(std::move(made));
}

template <class Transport, class List>
rdmacoro::task<std::unique_ptr<peer_listener>> listen_over(std::string address) {
    rdmacoro::listener<Transport, List> made = co_await rdmacoro::listen<Transport, List>(address);
    co_return std::make_unique<peer_listener_over<Transport, List>>(std::move(made));
}

}  // namespace pingpong
