// The simulated transport: connections and listeners by name.
#pragma once

#include <rdmacoro/transport/detail/scheme.hpp>
#include <rdmacoro/transport/sim.hpp>

#include <string>

namespace rdmacoro {

RDMACORO_DECL sim::connection& sim::connection::operator=(connection&& other) noexcept {
    std::swap(wire_, other.wire_);
    std::swap(side_, other.side_);
    return *this;
}

RDMACORO_DECL sim::connection::~connection() {
    if (wire_ == nullptr) return;
    wire_->end(side_);
    wire_->release();
}

RDMACORO_DECL std::string sim::domain::plain(std::string_view address) {
    if (const std::string wrong = detail::wrong_scheme(name, address); !wrong.empty())
        throw error(errc::address_invalid, "\"" + std::string(address) + "\": " + wrong);
    return std::string(detail::without_scheme(name, address));
}

}  // namespace rdmacoro

namespace rdmacoro::detail::sim {

RDMACORO_DECL task<rdmacoro::sim::connection> backlog::take(backlog& from) {
    co_await from.arrived.acquire();
    rdmacoro::sim::connection next = std::move(from.waiting.front());
    from.waiting.pop_front();
    co_return next;
}

}  // namespace rdmacoro::detail::sim

namespace rdmacoro {

RDMACORO_DECL sim::listener::listener(domain& in, std::string called)
    : name_(std::move(called)), backlog_(std::make_unique<detail::sim::backlog>()) {
    if (!in.world().listeners().emplace(name_, backlog_.get()).second)
        throw error(errc::address_in_use, "sim://" + name_ + ": choose another name");
    backlog_->at = &in;
}

RDMACORO_DECL sim::listener& sim::listener::operator=(listener&& other) noexcept {
    close();
    name_ = std::move(other.name_);
    backlog_ = std::move(other.backlog_);
    return *this;
}

RDMACORO_DECL sim::listener::~listener() { close(); }

RDMACORO_DECL task<sim::connection> sim::listener::accept() { return detail::sim::backlog::take(*backlog_); }

RDMACORO_DECL void sim::listener::close() noexcept {
    if (backlog_ != nullptr) backlog_->at->world().listeners().erase(name_);
}

RDMACORO_DECL task<sim::connection> sim::domain::connect(std::string_view address) {
    return connect_to(*this, plain(address));
}

RDMACORO_DECL task<sim::listener> sim::domain::listen(std::string_view address) {
    return listen_on(*this, plain(address));
}

RDMACORO_DECL task<sim::connection> sim::domain::connect_to(domain& self, std::string to) {
    if (to.empty()) throw error(errc::address_invalid, "sim://: a name is missing");
    const auto found = self.world().listeners().find(to);
    if (found == self.world().listeners().end())
        throw error(errc::connection_refused, "sim://" + to + ": there is no listener in this world");
    detail::sim::backlog& there = *found->second;
    auto* made = new detail::sim::wire(self, *there.at);
    connection here(*made, 0);
    connection theirs(*made, 1);
    there.waiting.push_back(std::move(theirs));  // without memory for it both ends are gone
    there.arrived.release();
    co_return here;
}

RDMACORO_DECL task<sim::listener> sim::domain::listen_on(domain& self, std::string at) {
    if (at.empty()) throw error(errc::address_invalid, "sim://: a name is missing");
    co_return listener(self, std::move(at));
}

}  // namespace rdmacoro
