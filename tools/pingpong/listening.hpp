// The listening side: takes part in the exchanges that its client asks for.
#pragma once

#include "measure.hpp"
#include "options.hpp"
#include "talk.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/messaging/connect.hpp>

#include <exception>
#include <functional>
#include <optional>
#include <string>

namespace pingpong {

/// Throws `run_error` when a client asks for what cannot be done.
void check_exchange(const exchange_message& plan);

/// Prints why a client's run failed.
void print_failure(const std::exception_ptr& failure);

[[noreturn]] void fail_listening(const std::exception_ptr& failure);

template <class Endpoint>
class listening_side {
public:
    explicit listening_side(Endpoint& peer) : peer_(peer) {}

    /// Serves exchanges until the client sends `bye`. Throws when an exchange failed.
    rdmacoro::task<> serve() {
        std::uint64_t wrong = 0;
        for (;;) {
            watch::expect("waiting for the client to go on", 0);
            const control_message message = co_await receive_any_control(peer_);
            if (kind_of(message.raw, message.bytes) == control_kind::bye) {
                const auto bye = decode<bye_message>(message.raw, message.bytes);
                if (wrong != 0) throw run_error(std::to_string(wrong) + " messages arrived wrong");
                if (bye.failed != 0) throw run_error("the client gave up");
                co_return;
            }
            const auto plan = decode<exchange_message>(message.raw, message.bytes);
            check_exchange(plan);
            co_await serve_one(plan);
            wrong += exchange_.found.wrong;
        }
    }

private:
    rdmacoro::task<> serve_one(exchange_message plan) {
        exchange_.prepare(plan);
        watch::expect(std::string(facts_of(plan.test).name), plan.windows());
        const rdmacoro::region memory = open_memory(plan.test);
        const rdmacoro::remote_region remote = memory ? memory.remote() : rdmacoro::remote_region{};
        co_await send_control(peer_, ready_message{std::bit_cast<std::array<std::uint64_t, 4>>(remote)});
        co_await answer(peer_, exchange_);
        co_await send_control(peer_, done_message{exchange_.found});
    }

    /// The memory that the client can reach in this exchange.
    [[nodiscard]] rdmacoro::region open_memory(test_kind test) {
        using domain = typename Endpoint::transport_type::domain;
        if (!is_one_sided(test)) return {};
        payload& memory = test == test_kind::get ? exchange_.out : exchange_.in;
        return peer_.owner().template service<domain>().register_memory(
            memory.whole(), test == test_kind::get ? rdmacoro::access_rights::remote_read
                                                   : rdmacoro::access_rights::remote_write);
    }

    Endpoint& peer_;
    exchange exchange_;
};

/// One client, from its plan to its goodbye.
template <class Endpoint>
rdmacoro::task<> serve_client(Endpoint& peer, const options& asked, idle_kind& idle) {
    std::exception_ptr failed;
    try {
        const control_message first = co_await rdmacoro::timeout(receive_any_control(peer), greeting_limit);
        if (kind_of(first.raw, first.bytes) == control_kind::bye) {
            // It connected for the link's table only.
            static_cast<void>(co_await rdmacoro::as_result(rdmacoro::timeout(peer.close(), close_limit)));
            co_return;
        }
        const auto plan = decode<plan_message>(first.raw, first.bytes);
        if (!asked.idle && plan.idle < idle_names.size()) idle = static_cast<idle_kind>(plan.idle);
        const int cpu = asked.cpus.empty() ? -1 : asked.cpus.back();
        watch::begin("pingpong, listening side", plan.timeout_seconds, false);
        co_await send_control(peer, answer_message{.cpu_plus_one = static_cast<std::uint64_t>(cpu + 1),
                                                   .idle = static_cast<std::uint64_t>(idle)});
        listening_side side(peer);
        co_await side.serve();
    } catch (...) {
        failed = std::current_exception();
    }
    watch::stop();
    if (peer.is_open())
        static_cast<void>(co_await rdmacoro::as_result(rdmacoro::timeout(peer.close(), close_limit)));
    if (failed) fail_listening(failed);
}

template <class Transport, class List>
rdmacoro::task<> listen_and_serve(const options& asked, idle_kind& idle,
                                  const std::function<void(const std::string&)>& listening) {
    using listener_type = rdmacoro::listener<Transport, List>;
    const idle_kind resting = idle;
    std::optional<listener_type> listener(co_await rdmacoro::listen<Transport, List>(asked.where.whole));
    listening(listener->address());
    for (;;) {
        auto peer = co_await listener->accept();
        if (!asked.forever) listener.reset();
        std::exception_ptr failed;
        try {
            co_await serve_client(peer, asked, idle);
        } catch (...) {
            failed = std::current_exception();
        }
        if (!asked.forever) {
            if (failed) std::rethrow_exception(failed);
            co_return;
        }
        if (failed) print_failure(failed);
        idle = resting;
    }
}

}  // namespace pingpong
