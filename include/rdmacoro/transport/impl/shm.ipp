// The shared-memory transport's connections and listeners, as coroutines.
#pragma once

#include <rdmacoro/coro/sleep_for.hpp>
#include <rdmacoro/transport/shm.hpp>
#include <rdmacoro/transport/shm/listener.hpp>

#include <algorithm>
#include <chrono>

namespace rdmacoro {

RDMACORO_COLD shm::listener::~listener() { delete acceptor_; }

RDMACORO_COLD task<shm::connection> shm::listener::accept() { return accept_from(*acceptor_); }

RDMACORO_COLD task<shm::connection> shm::listener::accept_from(detail::shm::acceptor& from) {
    detail::shm::acceptor::accept_operation next(from);
    co_return connection(co_await next);
}

RDMACORO_COLD std::string shm::listener::address() const { return acceptor_->name(); }

RDMACORO_COLD task<shm::connection> shm::domain::connect(std::string_view address) {
    return connect_to(*this, detail::shm::socket_name(address));
}

RDMACORO_COLD task<shm::listener> shm::domain::listen(std::string_view address) {
    return listen_on(*this, detail::shm::socket_name(address));
}

RDMACORO_COLD task<shm::connection> shm::domain::connect_to(domain& self, detail::shm::socket_name address) {
    detail::shm::connector opening(self, address);
    const time_point end = detail::deadline_after(self.owner().now(), self.options().handshake_limit);
    // The kernel says of no socket when the listener's queue has room again.
    for (duration pause = std::chrono::microseconds(100); !opening.try_connect();) {
        if (self.owner().now() >= end) opening.give_up();
        co_await sleep_for(pause);
        pause = std::min<duration>(2 * pause, std::chrono::milliseconds(10));
    }
    detail::shm::readable_operation reply(self, opening.socket(), self.options().handshake_limit);
    co_await reply;
    co_return connection(opening.finish());
}

RDMACORO_COLD task<shm::listener> shm::domain::listen_on(domain& self, detail::shm::socket_name address) {
    // A process that was killed keeps its name until the kernel has taken its memory apart: some milliseconds.
    constexpr duration patience = std::chrono::milliseconds(200);
    constexpr duration pause = std::chrono::milliseconds(2);
    const time_point until = self.owner().now() + patience;
    for (;;) {
        try {
            co_return listener(new detail::shm::acceptor(self, address));
        } catch (const error& taken) {
            if (taken.code() != errc::address_in_use || self.owner().now() >= until) throw;
        }
        co_await sleep_for(pause);
    }
}

}  // namespace rdmacoro
