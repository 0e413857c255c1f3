// node_calls: calls between nodes, by their ids.
#pragma once

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/when_all.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/service/node.hpp>
#include <rdmacoro/service/several_nodes.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace rdmacoro {

/// Calls to other nodes, and services for theirs: what `calls` is to an endpoint. The first call to a node makes the connection, over the
/// best transport that both have; while calls are under way in either direction, it is not closed as idle. A call to a node that dies, or
/// is restarted, ends with an error that names the node and its generation; the next one goes to its next life.
///
/// It takes the node's `on_connection`. Made after the node and destroyed after it, or after the node was closed: its calls end with the
/// node. For the node's scheduler.
template <transport... Ts>
class node_calls {
public:
    /// Over a node that has no connections yet.
    explicit node_calls(node<Ts...>& over) : over_(over) { over.on_connection(connection{this}); }
    node_calls(const node_calls&) = delete;
    node_calls& operator=(const node_calls&) = delete;
    ~node_calls() {
        if (!links_.empty())
            detail::fatal("a node_calls object was destroyed before the connections of its node had ended");
    }

    /// Offers a service over the connections that are made from now on. It outlives the node.
    void serve(service& what) { services_.push_back(&what); }

    /// Awaitable.
    /// Ends with the method's result.
    /// Completes: when node `to` has answered.
    /// Buffers: as `calls::call`.
    /// Concurrency: as `calls::call`.
    /// Errors: as `calls::call`, and as `node_peer::send` for want of a connection. After `errc::peer_lost` or `errc::closed` the handler may have
    ///     run or not.
    /// Cancellation: as `calls::call`.
    /// Example:
    ///     std::string value = co_await peers.call(9, kv::get, "colour");
    template <method_name Name, class R, class... Q, class... Args>
        requires(!detail::is_stream<R> && !detail::takes_stream<Q...> && !std::is_same_v<R, one_way>)
    [[nodiscard]] auto call(node_id to, const method<Name, R(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, R(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return by_node<R, arguments>(
            to,
            [](auto& over, auto& kept, std::uint32_t time) {
                return std::remove_reference_t<decltype(over)>::template run_call<M, arguments>(over, kept,
                                                                                                time);
            },
            static_cast<Args&&>(args)...);
    }

    /// Awaitable.
    /// Completes: when the request has been sent to node `to`.
    /// Buffers: as `calls::cast`.
    /// Concurrency: as `calls::cast`.
    /// Errors: as `calls::cast`, and as `node_peer::send` for want of a connection.
    /// Cancellation: as `calls::cast`.
    /// Example:
    ///     co_await peers.cast(9, kv::note, event{7});
    template <method_name Name, class... Q, class... Args>
    [[nodiscard]] auto cast(node_id to, const method<Name, one_way(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, one_way(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return by_node<void, arguments>(
            to,
            [](auto& over, auto& kept, std::uint32_t time) {
                return std::remove_reference_t<decltype(over)>::template run_cast<M, arguments>(over, kept,
                                                                                                time);
            },
            static_cast<Args&&>(args)...);
    }

    /// Awaitable.
    /// Ends with the reading end of a stream from node `to`, which is to be destroyed before the node.
    /// Completes: when the request has been sent.
    /// Buffers: as `calls::open`.
    /// Concurrency: as `calls::open`.
    /// Errors: as `calls::open`, and as `node_peer::send` for want of a connection.
    /// Cancellation: as `calls::open`.
    /// Example:
    ///     auto rows = co_await peers.open(9, kv::scan, "a");
    template <method_name Name, class E, class... Q, class... Args>
        requires(!detail::takes_stream<Q...>)
    [[nodiscard]] auto open(node_id to, const method<Name, stream<E>(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, stream<E>(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return by_node<stream_reader<E>, arguments>(
            to,
            [](auto& over, auto& kept, std::uint32_t time) {
                return std::remove_reference_t<decltype(over)>::template run_open<M, E, arguments>(over, kept,
                                                                                                   time);
            },
            static_cast<Args&&>(args)...);
    }

    /// Awaitable.
    /// Ends with a `call_writer` to node `to`, which is to be destroyed before the node.
    /// Completes: when the request has been sent.
    /// Buffers: as `calls::open`.
    /// Concurrency: as `calls::open`.
    /// Errors: as `calls::open`, and as `node_peer::send` for want of a connection.
    /// Cancellation: as `calls::open`.
    /// Example:
    ///     auto rows = co_await peers.open(9, kv::load);
    template <method_name Name, class R, class... Q, class... Args>
        requires(detail::takes_stream<Q...>)
    [[nodiscard]] auto open(node_id to, const method<Name, R(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, R(Q...)>;
        using arguments = detail::call_arguments<typename M::parameters, Args...>;
        return by_node<call_writer<typename M::written_type, R>, arguments>(
            to,
            [](auto& over, auto& kept, std::uint32_t time) {
                return std::remove_reference_t<decltype(over)>::template run_write<M, arguments>(over, kept,
                                                                                                 time);
            },
            static_cast<Args&&>(args)...);
    }

    /// The same call to several nodes at a time: the arguments are encoded once, and rows of 1 KiB and more go to each from where they are.
    ///
    /// Awaitable.
    /// Ends with a `node_outcome` for each of `to`, in their order: its result, or why there is none.
    /// Completes: when each has answered or failed; a node that fails harms no other.
    /// Buffers: as `calls::call`.
    /// Concurrency: as `calls::call`.
    /// Errors: none but a cancellation; those of the calls are in their outcomes.
    /// Cancellation: at any time; all calls are canceled. `timeout` gives each call its time, and keeps the results of those in time.
    /// Example:
    ///     for (const auto& one : co_await peers.call_all(ids, kv::get, "colour")) use(one.id, one.ended);
    template <method_name Name, class R, class... Q, class... Args>
        requires(!detail::is_stream<R> && !detail::takes_stream<Q...> && !std::is_same_v<R, one_way>)
    [[nodiscard]] auto call_all(std::vector<node_id> to, const method<Name, R(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, R(Q...)>;
        return by_nodes<R, detail::call_arguments<std::tuple<Q...>, Args...>>(
            std::move(to),
            [](auto& over, auto& kept, std::uint32_t time) {
                using link_calls = std::remove_reference_t<decltype(over)>;
                return link_calls::template run_call<M, detail::encoded_arguments>(over, kept, time);
            },
            static_cast<Args&&>(args)...);
    }

    /// The same for one-way calls.
    ///
    /// Awaitable.
    /// Ends with a `node_outcome` for each of `to`, in their order: whether the request was sent, or why not.
    /// Completes: when the requests have been sent, or have failed; a node that fails harms no other.
    /// Buffers: as `calls::cast`.
    /// Concurrency: as `calls::cast`.
    /// Errors: none but a cancellation; those of the calls are in their outcomes.
    /// Cancellation: as `call_all`.
    /// Example:
    ///     co_await peers.cast_all(ids, kv::note, event{7});
    template <method_name Name, class... Q, class... Args>
    [[nodiscard]] auto cast_all(std::vector<node_id> to, const method<Name, one_way(Q...)>& what,
                                Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, one_way(Q...)>;
        return by_nodes<void, detail::call_arguments<std::tuple<Q...>, Args...>>(
            std::move(to),
            [](auto& over, auto& kept, std::uint32_t time) {
                using link_calls = std::remove_reference_t<decltype(over)>;
                return link_calls::template run_cast<M, detail::encoded_arguments>(over, kept, time);
            },
            static_cast<Args&&>(args)...);
    }

    /// The node that it was made with.
    [[nodiscard]] node<Ts...>& over() noexcept { return over_; }

private:
    using any_calls = std::variant<calls<Ts>*...>;

    /// The calls over one connection, as long as its function runs.
    struct link {
        generation born;
        any_calls at;
        event rested;
        node_peer<Ts...> peer;
        node_hold held;  // while calls are under way
    };

    /// While it exists, a node that is destroyed by a coroutine lets coroutines go on that are not its own: those that made the calls.
    struct others_go_on {
        explicit others_go_on(scheduler& owner) noexcept : on(owner) { on.unbound_wait_began(); }
        others_go_on(const others_go_on&) = delete;
        others_go_on& operator=(const others_go_on&) = delete;
        ~others_go_on() { on.unbound_wait_ended(); }
        scheduler& on;
    };

    /// The function of a connection.
    struct connection {
        node_calls* self;

        template <class T>
        task<> operator()(endpoint<T>& end, node_id id, generation born) const {
            node_calls& of = *self;  // the function may be moved
            calls<T> mine(end);
            co_await detail::calls_base::part_of_current{mine, true};
            for (service* const one : of.services_) mine.serve(*one);
            link here{born, &mine, event(), of.over_.peer(id), node_hold()};
            mine.on_activity(
                [](void* context, bool active) noexcept {
                    auto& changed = *static_cast<link*>(context);
                    if (active) {
                        if (changed.peer.is_open()) changed.held = changed.peer.hold();
                    } else {
                        changed.held = node_hold();
                        changed.rested.set();
                        changed.rested.reset();
                    }
                },
                &here);
            of.links_[id] = &here;
            std::error_code ended;
            while (!ended) {
                const auto got = co_await as_result(end.recv_lent(detail::no_message));
                ended = got.error();
            }
            if (const auto at = of.links_.find(id); at != of.links_.end() && at->second == &here)
                of.links_.erase(at);
            if (ended == errc::canceled) end.abort();  // the node stops: calls of this side end
            mine.stop_handlers();
            const others_go_on calls_of_this_side(of.over_.owner());
            while (mine.active()) co_await without_stop(here.rested.wait());
        }
    };

    template <class R, class Arguments, class Run, class... Args>
    [[nodiscard]] auto by_node(node_id to, Run run, Args&&... args) {
        auto make = [this, to, run, kept = typename Arguments::type(static_cast<Args&&>(args)...)](
                        std::uint32_t time) mutable { return through<R>(*this, to, run, kept, time); };
        return call_operation<R, decltype(make)>(std::move(make));
    }
    template <class R, class Run, class Kept>
    static task<R> through(node_calls& self, node_id to, Run run, Kept& kept, std::uint32_t time) {
        node_peer<Ts...> peer = self.over_.peer(to);
        for (;;) {
            const node_hold hold = co_await peer.connect();
            const auto at = self.links_.find(to);
            if (at == self.links_.end() || at->second->born != hold.born()) {
                co_await yield();  // the connection's function begins
                continue;
            }
            try {
                co_return co_await std::visit([&](auto* over) { return run(*over, kept, time); },
                                              at->second->at);
            } catch (const error& failed) {
                if (failed.code() == errc::canceled) throw;
                throw error(failed.code(), detail::node_text(to, hold.born()) + ": " + failed.context(),
                            failed.facts());
            }
        }
    }

    template <class R, class Arguments, class Run, class... Args>
    [[nodiscard]] auto by_nodes(std::vector<node_id>&& to, Run run, Args&&... args) {
        auto make = [this, ids = std::move(to), run,
                     kept = typename Arguments::type(static_cast<Args&&>(args)...)](
                        std::optional<duration> limit) { return to_all<R>(*this, ids, run, kept, limit); };
        return several_nodes_operation<R, decltype(make)>(std::move(make));
    }
    template <class R, class Run, class Kept>
    static task<std::vector<node_outcome<R>>> to_all(node_calls& self, const std::vector<node_id>& to,
                                                     Run run, const Kept& kept,
                                                     std::optional<duration> limit) {
        encoder once;
        std::apply([&](const auto&... each) { (once.write(each), ...); }, kept);
        const detail::encoded_arguments encoded{once.pieces()};
        detail::encoded_arguments::type sent(encoded);
        std::vector<task<node_outcome<R>>> each;
        each.reserve(to.size());
        for (const node_id one : to) each.push_back(to_one<R>(self, one, run, sent, limit));
        co_return co_await when_all(std::move(each));
    }
    template <class R, class Run>
    static task<node_outcome<R>> to_one(node_calls& self, node_id to, Run run,
                                        detail::encoded_arguments::type& sent,
                                        std::optional<duration> limit) {
        try {
            auto called = through<R>(self, to, run, sent, limit ? detail::time_to_send(*limit) : 0);
            if constexpr (std::is_void_v<R>) {
                if (limit) {
                    co_await rdmacoro::timeout(std::move(called), *limit);
                } else {
                    co_await std::move(called);
                }
                co_return node_outcome<R>{to, result<R>(), std::string()};
            } else if (limit) {
                auto value = co_await rdmacoro::timeout(std::move(called), *limit);
                co_return node_outcome<R>{to, result<R>(std::move(value)), std::string()};
            } else {
                auto value = co_await std::move(called);
                co_return node_outcome<R>{to, result<R>(std::move(value)), std::string()};
            }
        } catch (const std::system_error& failed) {
            if (failed.code() == errc::canceled) throw;
            co_return node_outcome<R>{to, result<R>(failed.code()), failed.what()};
        }
    }

    node<Ts...>& over_;
    std::vector<service*> services_;
    std::unordered_map<node_id, link*> links_;
};

}  // namespace rdmacoro
