// The tcp transport opened on one scheduler: its engine behind the public class.
#pragma once

#include <rdmacoro/transport/detail/taken_port.hpp>
#include <rdmacoro/transport/tcp/address.hpp>
#include <rdmacoro/transport/tcp/connect.hpp>
#include <rdmacoro/transport/tcp/domain.hpp>
#include <rdmacoro/transport/tcp/engine.hpp>
#include <rdmacoro/transport/tcp/listen_state.hpp>

#include <new>

#include <netdb.h>
#include <unistd.h>

namespace rdmacoro {

namespace detail {

RDMACORO_DECL task<tcp_listener> listen_tcp(tcp_engine& engine, inet_address address) {
    engine.enable();
    inet_resolve resolve(address, AI_PASSIVE);
    const inet_resolved resolved = co_await resolve;
    if (resolved.none()) resolved.throw_none("tcp", address);
    const inet_endpoint& at = tcp_listening_endpoint(address, resolved.endpoints);
    taken_port port(running_scheduler(), address);
    for (;;) {
        try {
            const int fd = open_tcp_listener(address, at, engine.options().most_waiting);
            auto* const state = new (std::nothrow) tcp_listen_state(engine, fd);
            if (state == nullptr) {
                ::close(fd);
                throw_error(errc::no_resources, "tcp: memory for a listener");
            }
            co_return tcp_listener(state);
        } catch (const error& refused) {
            if (!port.may_come_free(refused.code())) throw;
        }
        co_await port.wait();
    }
}

}  // namespace detail

RDMACORO_DECL tcp_domain::tcp_domain(scheduler& owner, const tcp_options& options)
    : engine_(new detail::tcp_engine(owner, options)) {
    owner.add_source(*this);
}

RDMACORO_DECL tcp_domain::~tcp_domain() {
    engine_->owner().remove_source(*this);
    delete engine_;
}

RDMACORO_DECL task<tcp_connection> tcp_domain::connect(std::string_view address) {
    return detail::connect_tcp(*engine_, detail::parse_tcp_address(address));
}

RDMACORO_DECL task<tcp_listener> tcp_domain::listen(std::string_view address) {
    return detail::listen_tcp(*engine_, detail::parse_tcp_address(address));
}

RDMACORO_DECL region tcp_domain::register_memory(std::span<std::byte> memory, access_rights rights) {
    detail::require_thread_of(&engine_->owner(), "memory for", "was registered");
    return region(*engine_, memory, engine_->regions().add(memory, rights));
}

RDMACORO_DECL scheduler& tcp_domain::owner() noexcept { return engine_->owner(); }
RDMACORO_DECL std::string tcp_domain::describe() const { return engine_->describe(); }
RDMACORO_DECL std::size_t tcp_domain::sockets() const noexcept { return engine_->sockets(); }
RDMACORO_DECL std::size_t tcp_domain::registered() noexcept { return engine_->regions().registered(); }
RDMACORO_DECL std::uint64_t tcp_domain::system_calls() const noexcept { return engine_->system_calls(); }
RDMACORO_DECL std::size_t tcp_domain::chunks() noexcept { return engine_->chunks().in_use(); }

RDMACORO_DECL bool tcp_domain::poll() noexcept { return engine_->poll(); }
RDMACORO_DECL int tcp_domain::wake_fd() noexcept { return engine_->wake_fd(); }
RDMACORO_DECL void tcp_domain::arm() noexcept { engine_->arm(); }
RDMACORO_DECL void tcp_domain::disarm() noexcept { engine_->disarm(); }

}  // namespace rdmacoro
