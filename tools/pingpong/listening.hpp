// The listening side: takes part in the exchanges that its client asks for.
#pragma once

#include "cpus.hpp"
#include "idle_choice.hpp"
#include "measure.hpp"
#include "options.hpp"
#include "services.hpp"
#include "talk.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/messaging/connect.hpp>

#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace pingpong {

/// Throws `run_error` when a client asks for what cannot be done.
void check_exchange(const exchange_message& plan);
void check_plan(const plan_message& plan, bool may_have_threads);

/// Prints why a client's run failed.
void print_failure(const std::exception_ptr& failure);

[[noreturn]] void fail_listening(const std::exception_ptr& failure);

template <class Endpoint>
class listening_side {
public:
    /// `leads`: it is the thread that is watched.
    listening_side(Endpoint& peer, bool leads) : peer_(peer), leads_(leads) {}

    /// Serves exchanges until the client sends `bye`. Throws when an exchange failed.
    rdmacoro::task<> serve() {
        std::uint64_t wrong = 0;
        for (;;) {
            if (leads_) watch::expect("waiting for the client to go on", 0);
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
        if (leads_) watch::expect(std::string(facts_of(plan.test).name), plan.windows());
        const bool service = is_service(plan.test);
        if (service) services().prepare(exchange_, false);
        const rdmacoro::region memory = open_memory(plan.test);
        const rdmacoro::remote_region remote = memory ? memory.remote() : rdmacoro::remote_region{};
        co_await send_control(peer_, ready_message{std::bit_cast<std::array<std::uint64_t, 4>>(remote)});
        if (service) {
            co_await services_->answer();
        } else {
            co_await answer(peer_, exchange_);
        }
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

    service_side& services() {
        if constexpr (has_services<Endpoint>) {
            if (!services_) services_ = make_service_side(peer_);
            return *services_;
        } else {
            throw run_error("services go by the protocol list auto");
        }
    }

    Endpoint& peer_;
    const bool leads_;
    exchange exchange_;
    std::unique_ptr<service_side> services_;  // from the first such test on
};

/// Further threads of this side, each with a client's connection.
class listening_members {
public:
    listening_members() = default;
    listening_members(const listening_members&) = delete;
    listening_members& operator=(const listening_members&) = delete;
    ~listening_members();

    /// A thread that runs `body`, which listens, gives its address, and serves. Gives that address.
    std::string add(std::function<void(std::promise<std::string>&)> body);
    /// Waits for their ends. Throws what one of them failed with.
    void join();

private:
    struct member {
        std::future<void> ended;
        std::thread thread;
    };
    std::vector<member> members_;
};

/// The address of a further listener beside `address`: any free port, or the name with a number.
[[nodiscard]] std::string further_address(const std::string& address, std::uint64_t index);

template <class Transport, class List>
void listen_as_member(const options& asked, std::uint64_t index, idle_kind idle,
                      std::promise<std::string>& place);

/// One client, from its plan to its goodbye. `leads`: it may ask for further threads, and is watched.
template <class Endpoint>
rdmacoro::task<> serve_client(Endpoint& peer, const options& asked, idle_kind& idle, bool leads) {
    using transport_type = typename Endpoint::transport_type;
    using list = typename Endpoint::protocols_type;
    std::exception_ptr failed;
    listening_members members;
    try {
        const control_message first = co_await rdmacoro::timeout(receive_any_control(peer), greeting_limit);
        if (kind_of(first.raw, first.bytes) == control_kind::bye) {
            // It connected for the link's table only.
            static_cast<void>(co_await rdmacoro::as_result(rdmacoro::timeout(peer.close(), close_limit)));
            co_return;
        }
        const auto plan = decode<plan_message>(first.raw, first.bytes);
        if (!asked.idle && plan.idle < idle_names.size()) idle = static_cast<idle_kind>(plan.idle);
        const int cpu = cpu_of(asked, false, 0);
        check_plan(plan, leads);
        if (leads) watch::begin("pingpong, listening side", plan.timeout_seconds, false);
        co_await send_control(peer, answer_message{.cpu_plus_one = static_cast<std::uint64_t>(cpu + 1),
                                                   .idle = static_cast<std::uint64_t>(idle)});
        for (std::uint64_t index = 1; index < plan.threads; ++index) {
            const std::string place =
                members.add([&asked, index, resting = idle](std::promise<std::string>& told) {
                    listen_as_member<transport_type, list>(asked, index, resting, told);
                });
            co_await send_control(peer, place_of(place));
        }
        listening_side side(peer, leads);
        co_await side.serve();
    } catch (...) {
        failed = std::current_exception();
    }
    if (leads) watch::stop();
    if (peer.is_open())
        static_cast<void>(co_await rdmacoro::as_result(rdmacoro::timeout(peer.close(), close_limit)));
    try {
        members.join();
    } catch (...) {
        if (!failed) failed = std::current_exception();
    }
    if (failed) fail_listening(failed);
}

template <class Transport, class List>
rdmacoro::task<> serve_one_client(const options& asked, std::uint64_t index, idle_kind& idle,
                                  std::promise<std::string>& place) {
    using listener_type = rdmacoro::listener<Transport, List>;
    std::optional<listener_type> listener(
        co_await rdmacoro::listen<Transport, List>(further_address(asked.where.whole, index)));
    place.set_value(listener->address());
    auto peer = co_await rdmacoro::timeout(listener->accept(), greeting_limit);
    listener.reset();
    co_await serve_client(peer, asked, idle, false);
}

/// The body of a further thread.
template <class Transport, class List>
void listen_as_member(const options& asked, std::uint64_t index, idle_kind idle,
                      std::promise<std::string>& place) {
    if (!asked.cpus.empty()) pin_to(cpu_of(asked, false, static_cast<std::size_t>(index)));
    rdmacoro::scheduler owner{chosen_idle(&idle)};
    owner.run(serve_one_client<Transport, List>(asked, index, idle, place));
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
            co_await serve_client(peer, asked, idle, true);
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
