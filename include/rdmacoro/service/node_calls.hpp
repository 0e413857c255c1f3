// node_calls: calls between nodes, by their ids.
#pragma once

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/when_all.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/service/call_error.hpp>
#include <rdmacoro/service/calls.hpp>
#include <rdmacoro/service/node.hpp>
#include <rdmacoro/service/node_call_operation.hpp>
#include <rdmacoro/service/several_nodes.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rdmacoro {

/// Calls to other nodes, and services for theirs: what `calls` is to an endpoint. The first call to a node makes the connection, over the
/// best transport that both have; while calls are under way in either direction, it is not closed as idle. A call to a node that dies, or
/// is restarted, ends with an error that names the node and its generation; the next one goes to its next life.
///
/// Other messages are for `node::peer` as they are without it. Of a node that has left those of its last three connections are kept, while there
/// is a handle of it or it is in the address book; where more are not received, the receive that comes after those ends with `errc::no_resources`.
///
/// It takes the node's `on_connection`, and its calls end with the node. Made after the node; destroyed before it, as where an exception leaves
/// the scope of both, it stops the node first, as the node's destructor does, and waits as that does for handlers that still run. For the node's
/// scheduler.
template <transport... Ts>
class node_calls final : private detail::node_work {
public:
    /// Over a node that has no connections yet; offers these services, as `serve` does.
    template <std::same_as<service>... Services>
    explicit node_calls(node<Ts...>& over, Services&... offered) : over_(over), state_(over.state_) {
        (serve(offered), ...);
        state_->handle(connection{this}, false);
        state_->work_names = this;
    }
    node_calls(const node_calls&) = delete;
    node_calls& operator=(const node_calls&) = delete;
    ~node_calls() {
        state_->stop();  // unless it has: its connections refer to this
        state_->work_names = nullptr;
    }

    /// Offers a service over the connections that are made from now on. It outlives the node. Throws `errc::invalid_argument` for a service
    /// without methods, and where one with the same prefix is offered already.
    void serve(service& what) {
        what.check_beside(services_, "node_calls::serve");
        services_.push_back(&what);
    }

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
        detail::must_not_have_views<R>();
        using M = method<Name, R(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return by_node<M, R, arguments>(
            to,
            [](detail::calls_base& over, auto& kept, time_point until) {
                return detail::make_call<M, decltype(kept)>(over, kept, until);
            },
            static_cast<Args&&>(args)...);
    }

    /// Awaitable.
    /// Ends with the number of elements that were received into `place`, as `calls::call_into`.
    /// Completes: when node `to` has answered.
    /// Buffers: as `calls::call_into`.
    /// Concurrency: as `calls::call`.
    /// Errors: as `calls::call_into`, and as `call`.
    /// Cancellation: as `calls::call_into`.
    /// Example:
    ///     std::vector<float> row(1 << 20);
    ///     std::size_t length = co_await peers.call_into(9, std::span(row), kv::column, "temperature");
    template <class E, method_name Name, class R, class... Q, class... Args>
        requires(detail::row_of_values<const R&> && std::is_same_v<E, std::ranges::range_value_t<R>>)
    [[nodiscard]] auto call_into(node_id to, std::span<E> place, const method<Name, R(Q...)>& what,
                                 Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, R(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return by_node<M, std::size_t, arguments>(
            to,
            [place](detail::calls_base& over, auto& kept, time_point until) {
                return detail::make_call_into<M, E, decltype(kept)>(over, place, kept, until);
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
        return by_node<M, void, arguments>(
            to,
            [](detail::calls_base& over, auto& kept, time_point until) {
                return detail::make_cast<M, decltype(kept)>(over, kept, until);
            },
            static_cast<Args&&>(args)...);
    }

    /// Awaitable.
    /// Ends with the reading end of a stream from node `to`, which is to be destroyed before the node.
    /// Completes: when the request has been sent.
    /// Buffers: as `calls::open`.
    /// Concurrency: as `calls::open`.
    /// Errors: as `calls::open`, and as `node_peer::send` for want of a connection.
    ///     Those of the stream name the node and its generation, too.
    /// Cancellation: as `calls::open`.
    /// Example:
    ///     auto rows = co_await peers.open(9, kv::scan, "a");
    template <method_name Name, class E, class... Q, class... Args>
        requires(!detail::takes_stream<Q...>)
    [[nodiscard]] auto open(node_id to, const method<Name, stream<E>(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, stream<E>(Q...)>;
        using arguments = detail::call_arguments<std::tuple<Q...>, Args...>;
        return by_node<M, stream_reader<E>, arguments>(
            to,
            [](detail::calls_base& over, auto& kept, time_point until) {
                return detail::make_reader<M, E, decltype(kept)>(over, kept, until);
            },
            static_cast<Args&&>(args)...);
    }

    /// Awaitable.
    /// Ends with a `call_writer` to node `to`, which is to be destroyed before the node.
    /// Completes: when the request has been sent.
    /// Buffers: as `calls::open`.
    /// Concurrency: as `calls::open`.
    /// Errors: as `calls::open`, and as `node_peer::send` for want of a connection.
    ///     Those of the stream name the node and its generation, too.
    /// Cancellation: as `calls::open`.
    /// Example:
    ///     auto rows = co_await peers.open(9, kv::load);
    template <method_name Name, class R, class... Q, class... Args>
        requires(detail::takes_stream<Q...>)
    [[nodiscard]] auto open(node_id to, const method<Name, R(Q...)>& what, Args&&... args) {
        static_cast<void>(what);
        using M = method<Name, R(Q...)>;
        using arguments = detail::call_arguments<typename M::parameters, Args...>;
        return by_node<M, call_writer<typename M::written_type, R>, arguments>(
            to,
            [](detail::calls_base& over, auto& kept, time_point until) {
                return detail::make_writer<M, decltype(kept)>(over, kept, until);
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
        detail::must_not_have_views<R>();
        using M = method<Name, R(Q...)>;
        return by_nodes<M, R, detail::call_arguments<std::tuple<Q...>, Args...>>(
            std::move(to),
            [](detail::calls_base& over, auto& kept, time_point until) {
                return detail::make_call<M, decltype(kept)>(over, kept, until);
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
        return by_nodes<M, void, detail::call_arguments<std::tuple<Q...>, Args...>>(
            std::move(to),
            [](detail::calls_base& over, auto& kept, time_point until) {
                return detail::make_cast<M, decltype(kept)>(over, kept, until);
            },
            static_cast<Args&&>(args)...);
    }

    /// For requests that may be done twice: `make()` gives a task of calls, and is called again whenever that ends because its node was lost or has
    /// left. The calls of the next task wait for the node's next life, as all do, for `node_options::connect_limit`.
    /// A call that ends with `call_errc::stopped`, or with whatever else its handler has ended by, is not repeated: its node may be there, and answer
    /// the same again. A task that ends with `errc::peer_lost` or `errc::closed` for a reason of its own is repeated without end.
    ///
    /// Awaitable.
    /// Ends with the task's result.
    /// Completes: when a task has ended well, or with another error.
    /// Buffers: what `make` refers to stays; it is kept itself.
    /// Concurrency: any number at a time.
    /// Errors: those of the last task; `errc::closed` when this side's node stops.
    /// Cancellation: as the tasks'.
    /// Example:
    ///     auto value = co_await peers.repeat_if_lost([&] { return ask(peers, key); });
    template <class Make>
        requires requires(Make& make) { make().handle(); }
    [[nodiscard]] std::invoke_result_t<Make&> repeat_if_lost(Make make) {
        for (;;) {
            try {
                co_return co_await make();
            } catch (const error& failed) {
                const bool lost = failed.code() == errc::peer_lost || failed.code() == errc::closed;
                if (!lost || was_answered(failed) || state_->stopped) throw;
            }
            co_await yield();  // others go on, also where each task ends at once
        }
    }

    /// Awaitable.
    /// Completes: when the handlers that run have ended and their answers are sent; no further request is received, over no connection. Then the node
    /// may be closed.
    /// Buffers: none.
    /// Concurrency: once.
    /// Errors: none.
    /// Cancellation: at any time; the requests that have come stay.
    /// Example:
    ///     co_await timeout(peers.drain(), 5s);
    ///     co_await here.close();
    [[nodiscard]] task<> drain() {
        drained_ = true;  // connections that are made from now on receive no request
        std::vector<task<>> all;
        for (link* one = all_.front(); one != nullptr; one = all_.next(*one))
            all.push_back(drain_link(link_use(*one)));
        co_await when_all(std::move(all));
    }

    /// The node that it was made with.
    [[nodiscard]] node<Ts...>& over() noexcept { return over_; }

private:
    /// The calls over one connection, as long as its function runs.
    struct link : detail::list_node<link> {
        link(generation life, detail::calls_base& calls, const void* over,
             detail::counted_ptr<detail::node_peer> to)
            : born(life), at(calls), end(over), of(*to), peer(std::move(to)) {
            ++of.own;
        }
        link(const link&) = delete;
        link& operator=(const link&) = delete;
        ~link() {
            --of.own;
            this->unlink();
        }

        generation born;
        detail::calls_base& at;
        const void* end;        // the endpoint
        detail::node_peer& of;  // as `peer`, which keeps it
        node_peer<Ts...> peer;
        event rested{};
        node_hold held{};         // while calls are under way
        std::size_t drained = 0;  // coroutines of `drain` that use it

        [[nodiscard]] bool in_use() const noexcept { return drained != 0 || at.active(); }
        void rest() noexcept {
            rested.set();
            rested.reset();
        }
    };
    struct link_use {
        explicit link_use(link& of) noexcept : used(&of) { ++used->drained; }
        link_use(link_use&& other) noexcept : used(std::exchange(other.used, nullptr)) {}
        link_use& operator=(link_use&&) = delete;
        ~link_use() {
            if (used == nullptr) return;
            --used->drained;
            used->rest();
        }
        link* used;
    };
    static task<> drain_link(link_use of) {
        const link_use here(std::move(of));
        co_await here.used->at.drained();
    }

    /// While it exists, a node that is destroyed by a coroutine lets coroutines go on that are not its own: those that made the calls.
    struct others_go_on {
        explicit others_go_on(scheduler& owner) noexcept : on(owner) { on.unstopped_wait_began(); }
        others_go_on(const others_go_on&) = delete;
        others_go_on& operator=(const others_go_on&) = delete;
        ~others_go_on() { on.unstopped_wait_ended(); }
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
            mine.base().belongs_to(id, born);
            for (service* const one : of.services_) mine.serve(*one);
            // Its requests wait for the next life, as those over connections that were drained.
            if (of.drained_) co_await mine.base().drained();
            link here(born, mine.base(), &end, of.state_->peer(id));
            of.all_.push_back(here);
            mine.on_activity(
                [](void* context, bool active) noexcept {
                    auto& changed = *static_cast<link*>(context);
                    if (active) {
                        if (changed.peer.is_open()) changed.held = changed.peer.hold();
                    } else {
                        changed.held = node_hold();
                        changed.rest();
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
            // The node stops, and calls of this side end; or the peer has sent what no node does, and the next connection carries calls.
            if (ended == errc::canceled || !detail::calls_base::ends_link(ended)) end.abort();
            mine.stop_handlers();
            const others_go_on calls_of_this_side(of.state_->owner);
            while (here.in_use()) co_await without_stop(here.rested.wait());
            co_await without_stop(mine.base().drained());  // so that the destructor waits for nothing
            // What is left is for receives.
            end.discard(tag_match(detail::calls_bit, detail::calls_bit));
        }
    };

    /// The calls over the connection that carries new messages to that node; nullptr when there is none, or earlier messages still wait for it.
    [[nodiscard]] link* ready_link(node_id to) const noexcept {
        const auto at = links_.find(to);
        if (at == links_.end()) return nullptr;
        detail::node_record* const open = at->second->peer.ready();
        return open != nullptr && is_over(*at->second, *open) ? at->second : nullptr;
    }
    [[nodiscard]] static bool is_over(const link& one, detail::node_record& open) noexcept {
        return detail::node_state<Ts...>::with_endpoint(
            open, [&](auto& end) { return static_cast<const void*>(&end) == one.end; });
    }

    template <class M, class R, class Arguments, class Run, class... Args>
    [[nodiscard]] auto by_node(node_id to, Run run, Args&&... args) {
        auto make = [this, to, run, kept = typename Arguments::type(static_cast<Args&&>(args)...)](
                        time_point until) mutable { return call_of<M, R>(to, run, kept, until); };
        return node_call_operation<R, decltype(make)>(std::move(make));
    }
    template <class M, class R, class Run, class Kept>
    [[nodiscard]] auto call_of(node_id to, Run& run, Kept& kept, time_point until) {
        using call = std::invoke_result_t<Run&, detail::calls_base&, Kept&, time_point>;
        if (link* const now = ready_link(to)) [[likely]]
            return detail::node_call<R, call>{to, now->born, run(now->at, kept, until), {}};
        return detail::node_call<R, call>{to, generation(), {}, through<M, R>(*this, to, run, kept, until)};
    }
    /// Of a node to which there is no connection yet.
    template <class M, class R, class Run, class Kept>
    static task<R> through(node_calls& self, node_id to, Run run, Kept& kept, time_point until) {
        const detail::counted_ptr<detail::node_peer> peer = self.state_->peer(to);
        std::optional<detail::node_turn> turn;
        for (unsigned lost = 0;;) {
            const detail::counted_ptr<detail::node_record> open =
                co_await detail::node_core::connected_in_turn(peer, turn, M::facts);
            const detail::node_use held(open);
            // The connection's function has to begin.
            link* found = nullptr;
            while (found == nullptr && peer->open() == open.get()) {
                const auto at = self.links_.find(to);
                if (at != self.links_.end() && is_over(*at->second, *open)) {
                    found = at->second;
                } else {
                    co_await detail::node_core::turn_before_calls(*open, M::facts);
                }
            }
            if (found == nullptr) {
                // Both may have connected at once, and one of the two connections is gone.
                if (++lost == 4)
                    detail::throw_of_node(
                        to, open->born,
                        error(errc::peer_lost, "its connections ended before its calls could begin"));
                continue;
            }
            turn.reset();  // what waits behind it begins after it
            try {
                auto call = run(found->at, kept, until);
                co_return co_await std::move(call);
            } catch (const error& why) {
                detail::throw_of_node(to, open->born, why);
            }
        }
    }

    template <class M, class R, class Arguments, class Run, class... Args>
    [[nodiscard]] auto by_nodes(std::vector<node_id>&& to, Run run, Args&&... args) {
        auto make = [this, ids = std::move(to), run,
                     kept = typename Arguments::type(static_cast<Args&&>(args)...)](
                        std::optional<duration> limit) { return to_all<M, R>(*this, ids, run, kept, limit); };
        return several_nodes_operation<R, decltype(make)>(std::move(make));
    }
    template <class M, class R, class Run, class Kept>
    static task<std::vector<node_outcome<R>>> to_all(node_calls& self, const std::vector<node_id>& to,
                                                     Run run, const Kept& kept,
                                                     std::optional<duration> limit) {
        encoder once;
        std::apply([&](const auto&... each) { (once.write(each), ...); }, kept);
        const detail::encoded_arguments encoded{once.pieces()};
        detail::encoded_arguments::type sent(encoded);
        std::vector<task<node_outcome<R>>> each;
        each.reserve(to.size());
        const time_point until =
            limit ? detail::deadline_after(self.state_->owner.now(), *limit) : time_point();
        for (const node_id one : to) each.push_back(to_one<M, R>(self, one, run, sent, limit, until));
        co_return co_await when_all(std::move(each));
    }
    template <class M, class R, class Run>
    static task<node_outcome<R>> to_one(node_calls& self, node_id to, Run run,
                                        detail::encoded_arguments::type& sent, std::optional<duration> limit,
                                        time_point until) {
        try {
            auto make = [&](time_point) { return self.template call_of<M, R>(to, run, sent, until); };
            node_call_operation<R, decltype(make)> called(std::move(make));
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
        } catch (const error& failed) {
            if (failed.code() == errc::canceled && !was_answered(failed)) throw;
            co_return node_outcome<R>{to, result<R>(failed.code()), failed.what()};
        } catch (const std::system_error& failed) {
            co_return node_outcome<R>{to, result<R>(failed.code()), failed.what()};
        }
    }

    std::string running_for(node_id id) override {
        std::string text;
        for (link* one = all_.front(); one != nullptr && text.empty(); one = all_.next(*one)) {
            if (one->peer.id() == id) text = one->at.running_methods();
        }
        return text;
    }

    node<Ts...>& over_;
    detail::counted_ptr<detail::node_state<Ts...>> state_;
    std::vector<service*> services_;
    std::unordered_map<node_id, link*> links_;  // that carry calls of this side
    detail::intrusive_list<link> all_;          // and those that have ended, while handlers run
    bool drained_ = false;
};

}  // namespace rdmacoro
