// How the entries of `all_transports` are made from types.
#pragma once

#include "links.hpp"

#include "../../tools/pingpong/list_names.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/messaging/connect.hpp>

#include <chrono>
#include <exception>
#include <new>
#include <optional>
#include <utility>

namespace bench {

template <class Operation>
class started_over final : public started_operation {
public:
    explicit started_over(Operation&& operation) : operation_(std::move(operation)) {}

    void bind(const rc::environment& env) noexcept override { operation_.bind(env); }
    bool await_ready() noexcept override { return operation_.await_ready(); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept override {
        operation_.await_suspend(awaiting);
    }
    rc::received await_resume() override {
        if constexpr (std::is_void_v<typename Operation::value_type>) {
            operation_.await_resume();
            return {};
        } else {
            return operation_.await_resume();
        }
    }

    [[nodiscard]] static started_operation* make(operation_place& place, Operation&& operation) {
        static_assert(sizeof(started_over) <= sizeof(operation_place::memory) &&
                      alignof(started_over) <= alignof(operation_place));
        return new (place.memory.data()) started_over(std::move(operation));
    }

private:
    rc::started<Operation> operation_;
};

template <class Endpoint>
class peer_over final : public peer {
public:
    explicit peer_over(Endpoint&& connected) : endpoint_(std::move(connected)) {}

    started_operation* begin_send(operation_place& place, std::span<const std::byte> from,
                                  rc::tag_type tag) override {
        using operation = decltype(endpoint_.send(rc::const_buffers{}, tag));
        return started_over<operation>::make(place, endpoint_.send(from, tag));
    }
    started_operation* begin_recv(operation_place& place, std::span<std::byte> into,
                                  rc::tag_type tag) override {
        using operation = decltype(endpoint_.recv(rc::mutable_buffers{}, tag));
        return started_over<operation>::make(place, endpoint_.recv(into, tag));
    }
    rc::task<> probe(rc::tag_type tag) override { co_await endpoint_.probe(tag); }
    rc::task<> close() override {
        constexpr std::chrono::seconds limit{5};
        static_cast<void>(co_await rc::as_result(rc::timeout(endpoint_.close(), limit)));
    }
    bool is_open() const noexcept override { return endpoint_.is_open(); }
    const rc::metrics& counts() const noexcept override { return endpoint_.counts(); }
    std::string policy_for(std::size_t bytes) override {
        using list = typename Endpoint::protocols_type;
        return std::string(list::name_of(list::choose({bytes, false}, endpoint_.link_capabilities())));
    }

private:
    Endpoint endpoint_;
};

template <class Endpoint>
rc::task<> do_side(Endpoint connected, const side& what) {
    peer_over<Endpoint> other(std::move(connected));
    std::exception_ptr failed;
    try {
        co_await what(other);
    } catch (...) {
        failed = std::current_exception();
    }
    if (other.is_open()) co_await other.close();
    if (failed) std::rethrow_exception(failed);
}

template <class Transport, class List>
rc::task<> connect_and_do(std::string address, const side& what) {
    auto connected = co_await rc::connect<Transport, List>(address);
    co_await do_side(std::move(connected), what);
}

template <class Transport, class List>
rc::task<> listen_and_do(std::string address, const std::function<void(const std::string&)>& listening,
                         const side& what) {
    std::optional<rc::listener<Transport, List>> listener(co_await rc::listen<Transport, List>(address));
    listening(listener->address());
    auto connected = co_await listener->accept();
    listener.reset();
    co_await do_side(std::move(connected), what);
}

template <class Transport, class List>
void connect_side(const std::string& address, idle_kind idle, const side& what) {
    rc::scheduler owner{pingpong::chosen_idle(&idle)};
    owner.run(connect_and_do<Transport, List>(address, what));
}

template <class Transport, class List>
void listen_side(const std::string& address, idle_kind idle,
                 const std::function<void(const std::string&)>& listening, const side& what) {
    rc::scheduler owner{pingpong::chosen_idle(&idle)};
    owner.run(listen_and_do<Transport, List>(address, listening, what));
}

template <class Transport>
class registrar_over final : public registrar {
public:
    explicit registrar_over(rc::scheduler& owner)
        : domain_(owner.template service<typename Transport::domain>()) {}
    rc::region register_memory(std::span<std::byte> memory) override {
        return domain_.register_memory(memory, rc::access_rights::all);
    }

private:
    typename Transport::domain& domain_;
};

template <class Transport>
void with_domain_of(const std::function<void(registrar&)>& what) {
    rc::scheduler owner;
    registrar_over<Transport> registrar(owner);
    what(registrar);
}

template <class Transport>
[[nodiscard]] transport_entry entry_of() {
    transport_entry entry{Transport::name, {}, &with_domain_of<Transport>};
    pingpong::for_each_list<Transport>([&]<class List>(pingpong::list_name named) {
        entry.links.push_back({Transport::name, named.name, named.description, List::text(),
                               &connect_side<Transport, List>, &listen_side<Transport, List>});
    });
    return entry;
}

}  // namespace bench
