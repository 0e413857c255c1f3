// node_calls: calls between nodes, by their ids.
#pragma once

#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/service/node.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
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
        requires(!detail::is_stream<R> && !std::is_same_v<R, one_way>)
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

    node<Ts...>& over_;
    std::vector<service*> services_;
    std::unordered_map<node_id, link*> links_;
};

}  // namespace rdmacoro
