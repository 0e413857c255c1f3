// calls: what both ends of a connection ask of each other by name, with typed arguments, results, deadlines and cancellation.
#pragma once

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/service/any_calls.hpp>

#include <cstddef>
#include <span>

namespace rdmacoro {

/// Calls over one endpoint, in both directions: `call`, `cast` and `open` go to the peer, and `serve` offers a service to it: see
/// `any_calls`, which functions that make calls may take. Uses tags with the highest bit set; messages with other tags are the program's
/// own (`recv` with `tag_match(0, 1ull << 63)`, not `any_tag`).
///
/// Made and used on the endpoint's scheduler, which runs; it must be destroyed before the endpoint. Destroying it asks handlers
/// to stop and runs the scheduler until they have ended; calls of this side must have ended before.
template <transport T, protocol_list P = default_protocols<T>>
class calls final : public any_calls {
public:
    /// Over an open endpoint, which is borrowed.
    explicit calls(endpoint<T, P>& over) : any_calls(over.connection()), over_(over) { this->begin(); }
    /// The same, and serves.
    calls(endpoint<T, P>& over, service& offered) : calls(over) { serve(offered); }
    ~calls() override { this->end(); }

    /// The endpoint that it was made with.
    [[nodiscard]] endpoint<T, P>& over() noexcept { return over_; }

private:
    task<> arrival(tag_match wanted) override { static_cast<void>(co_await over_.probe(wanted)); }
    void abort_link() noexcept override { over_.abort(); }
    task<> get(const remote_region& there, std::span<std::byte> into) override {
        if constexpr (requires { over_.rdma_get(there, into); }) {
            co_await over_.rdma_get(there, into);
        } else {
            detail::throw_error(errc::unsupported, "call::get: the transport has no one-sided operations");
        }
        co_return;
    }
    task<> put(std::span<const std::byte> from, const remote_region& there) override {
        if constexpr (requires { over_.rdma_put(from, there); }) {
            co_await over_.rdma_put(from, there);
        } else {
            detail::throw_error(errc::unsupported, "call::put: the transport has no one-sided operations");
        }
        co_return;
    }

    endpoint<T, P>& over_;
};

}  // namespace rdmacoro
