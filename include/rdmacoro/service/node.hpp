// node: one participant among processes that come and go; messages to other nodes by their id, over the best transport that both have.
#pragma once

#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/memory/detail/owning_temporary.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/service/detail/node_operation.hpp>
#include <rdmacoro/service/detail/node_state.hpp>
#include <rdmacoro/service/node_card.hpp>
#include <rdmacoro/service/node_options.hpp>
#include <rdmacoro/service/node_watch.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace rdmacoro {

template <transport... Ts>
class node;
template <transport... Ts>
class node_calls;
class node_discovery;
namespace detail {
class node_joining;
template <transport... Ts>
class rank_links_over;
}  // namespace detail

/// Keeps the connection with a node from being closed as idle, as long as it lives. Made by `node_peer::hold`. Movable.
class node_hold {
public:
    node_hold() noexcept = default;
    /// For `node_peer`.
    explicit node_hold(detail::counted_ptr<detail::node_record> of) noexcept : use_(std::move(of)) {}

    /// The generation of the node that it is connected to.
    [[nodiscard]] generation born() const noexcept {
        return use_.get() != nullptr ? use_.get()->born : generation{};
    }

private:
    detail::node_use use_{{}};
};

/// Another node, by its id. Made by `node::peer`. Copies are of the same peer. For the scheduler's thread of its node; may outlive the
/// node: operations end with `errc::closed` then.
template <transport... Ts>
class node_peer : detail::takes_text_vectors_and_spans {
    using state = detail::node_state<Ts...>;
    template <class Request>
    using operation = detail::node_operation<Request, Ts...>;

public:
    using detail::takes_text_vectors_and_spans::recv;
    using detail::takes_text_vectors_and_spans::send;
    using detail::takes_text_vectors_and_spans::ssend;

    node_peer() noexcept = default;
    /// For `node`.
    explicit node_peer(detail::counted_ptr<detail::node_peer> to) noexcept : peer_(std::move(to)) {}

    /// Awaitable.
    /// Completes: as `endpoint::send`, over the connection with this node, which is made first where there is none.
    /// Buffers: as `endpoint::send`.
    /// Concurrency: any number at a time; messages over one connection match in the order in which their sends began.
    /// Errors: as `endpoint::send`, with the node and its generation in the text. Without a connection within
    ///     `node_options::connect_limit` that of the last attempt, with all attempts in the text; `errc::address_invalid` where the
    ///     address book does not have the node, or leads to another; `errc::closed` when this node stops. After `errc::closed` or `errc::peer_lost`
    ///     the other node may have received the message or not. A send that begins after its connection was closed as idle, or waits when that happens, goes over the next one.
    /// Cancellation: at any time while it waits for a connection, then as `endpoint::send`.
    /// Example:
    ///     co_await here.peer(9).send(text, 7);
    template <class Buffers = const_buffers>
        requires detail::sendable<Buffers>
    [[nodiscard]] detail::operation_on<operation<detail::node_send>, Buffers> send(Buffers&& from,
                                                                                   tag_type tag = 0) {
        return {peer_, detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag, false};
    }

    /// Awaitable.
    /// Completes: when the other node has matched the message with a receive.
    /// Buffers: as `send`.
    /// Concurrency: as `send`.
    /// Errors: as `send`.
    /// Cancellation: as `endpoint::ssend`.
    /// Example:
    ///     co_await here.peer(9).ssend(text, 7);
    template <class Buffers = const_buffers>
        requires detail::sendable<Buffers>
    [[nodiscard]] detail::operation_on<operation<detail::node_send>, Buffers> ssend(Buffers&& from,
                                                                                    tag_type tag = 0) {
        return {peer_, detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag, true};
    }

    /// Awaitable.
    /// Ends with the message's length and tag.
    /// Completes: when a message of this node that `wanted` accepts is in the buffer. Connects as `send` does.
    /// Buffers: as `endpoint::recv`.
    /// Concurrency: as `endpoint::recv`. Where the node has a function for its connections (`node::on_connection`), both compete.
    /// Errors: as `endpoint::recv` and `send`. When the connection is lost, each receive that waits ends with that error, or, if none does,
    ///     the next one, once: an answer that will not come any more is not waited for. Messages that came before are received first; while
    ///     those of four connections wait, no other is made.
    /// Cancellation: at any time.
    /// Example:
    ///     auto got = co_await here.peer(9).recv(buffer, 7);
    template <class Buffers = mutable_buffers>
        requires detail::receivable<Buffers>
    [[nodiscard]] operation<detail::node_receive> recv(Buffers&& into, tag_match wanted = any_tag) {
        return {peer_, detail::as_buffers<mutable_buffers>(static_cast<Buffers&&>(into)), wanted};
    }

    /// Awaitable.
    /// Ends with a `message` that is read where it lies.
    /// Completes: as `recv`.
    /// Buffers: as `endpoint::recv_lent`.
    /// Concurrency: as `recv`.
    /// Errors: as `recv`.
    /// Cancellation: at any time.
    /// Example:
    ///     rdmacoro::message m = co_await here.peer(9).recv_lent(7);
    [[nodiscard]] operation<detail::node_lent_receive> recv_lent(tag_match wanted = any_tag) {
        return {peer_, wanted};
    }

    /// Awaitable.
    /// Ends with a hold on the connection, which is made where there is none.
    /// Completes: when there is a connection.
    /// Buffers: none.
    /// Concurrency: any number at a time.
    /// Errors: as `send`, for want of a connection.
    /// Cancellation: at any time.
    /// Example:
    ///     auto connected = co_await nine.connect();
    ///     nine.visit([](auto& endpoint) { std::puts(endpoint.explain().c_str()); });
    [[nodiscard]] task<node_hold> connect() { return connect_to(peer_); }

    /// Awaitable.
    /// Ends with a region: `memory`, open to the other node over the transport that carries the connection; its `remote()` goes to that node in
    /// a call or message.
    /// Completes: when there is a connection, which is made where there is none.
    /// Buffers: the memory outlives the region, and the region ends before the node's domains do.
    /// Concurrency: any number at a time.
    /// Errors: as `send`, for want of a connection; as the domain's `register_memory`. The next connection may be over another transport, for which
    ///     memory is to be registered anew: a get or put by that node fails there.
    /// Cancellation: at any time.
    /// Example:
    ///     const region open = co_await here.peer(9).register_memory(bytes_of(bulk), access_rights::remote_read);
    ///     co_await peers.call(9, kv::load, key, open.remote());
    [[nodiscard]] task<region> register_memory(std::span<std::byte> memory,
                                               access_rights rights = access_rights::all) {
        return register_for(peer_, memory, rights);
    }

    /// Calls `f(endpoint)` with the `endpoint<T>` of the transport that carries the connection, and returns what it does. The endpoint
    /// lives until the next suspension, or as long as the function of `node::on_connection` that was called with it. It must not be
    /// moved from. Throws `errc::closed` where there is no connection: `connect` first.
    template <class F>
    decltype(auto) visit(F&& f) {
        return state::with_endpoint(connection(), static_cast<F&&>(f));
    }

    /// Keeps the connection, which must be there, from being closed as idle. Throws as `visit`.
    [[nodiscard]] node_hold hold() {
        return node_hold(detail::counted_ptr<detail::node_record>(&connection()));
    }

    /// Whether messages can be sent to it and received from it now.
    [[nodiscard]] bool is_open() const noexcept { return peer_ && peer_->open() != nullptr; }
    /// Its id; 0 for a default-constructed one.
    [[nodiscard]] node_id id() const noexcept { return peer_ ? peer_->id : 0; }
    /// Its generation when it was connected last; zero: never.
    [[nodiscard]] generation born() const noexcept { return peer_ ? peer_->last_born : generation{}; }

private:
    friend class node_calls<Ts...>;

    /// The open connection; nullptr: there is none, or sends wait for it, which go first.
    [[nodiscard]] detail::node_record* ready() const noexcept {
        return peer_->sends.empty() ? peer_->open() : nullptr;
    }
    [[nodiscard]] detail::node_record& connection() const {
        if (!peer_)
            detail::throw_error(errc::invalid_argument,
                                "node: a peer that was default-constructed or moved from");
        if (peer_->core != nullptr)
            peer_->core->check_thread("node: the peer is of a node of another scheduler");
        detail::node_record* const open = peer_->open();
        if (open == nullptr)
            throw error(errc::closed, detail::node_text(peer_->id, peer_->last_born) + " is not connected");
        return *open;
    }
    [[gnu::cold]] static task<node_hold> connect_to(detail::counted_ptr<detail::node_peer> to) {
        if (!to)
            detail::throw_error(errc::invalid_argument,
                                "node: a peer that was default-constructed or moved from");
        co_await detail::turn_for_others();  // where there is a connection it ends at once
        detail::counted_ptr<detail::node_record> found;
        found = co_await detail::node_core::connected(std::move(to), false, 0);
        co_return node_hold(std::move(found));
    }

    [[gnu::cold]] static task<region> register_for(detail::counted_ptr<detail::node_peer> to,
                                                   std::span<std::byte> memory, access_rights rights) {
        const node_hold held = co_await connect_to(to);
        detail::node_record* const open = to->open();
        if (open == nullptr) throw error(errc::closed, detail::node_text(to->id, to->last_born));
        co_return open->register_memory(memory, rights);
    }

    detail::counted_ptr<detail::node_peer> peer_;
};

/// One participant on one scheduler: it listens, knows other nodes by their cards, and sends them messages by their ids. The first message
/// to a node makes the connection, over shared memory where both are on one host, else over the first transport of `Ts` that both
/// have and that connects; where one does not, the next is tried. Between two nodes there is one connection, also when both connect at once.
///
/// Each side of a connection says its id, its generation and its card, and compares them with what it knows: a card that leads to another
/// node ends the attempt with an error that names what differs. A node that was restarted has another generation: what was
/// pending ends with an error, and the next message connects to the new one.
///
/// Destroying it ends its connections and all that is pending with `errc::closed`; `close` first to be sure that sent messages arrive. It waits until
/// the functions of its connections have ended, and handlers of their calls, which are asked to stop: one that does not end holds it up, and after
/// `node_options::close_limit` a line on stderr says which. Neither copied nor moved. Only for its scheduler's thread.
template <transport... Ts>
class node {
    static_assert(sizeof...(Ts) >= 1, "a node needs a transport");
    static_assert(detail::all_differ<Ts...>, "a node has each transport once");
    using state = detail::node_state<Ts...>;

public:
    /// The handle of another node.
    using peer_type = node_peer<Ts...>;

    /// A node on the scheduler that runs on this thread, over its own domains. Throws `errc::invalid_argument` where none runs, for id 0 and for
    /// limits that have to be at least 1, or more than 0, and are not.
    explicit node(node_id id, const node_options& options = {})
        : state_(new state(detail::running_scheduler(), id, options, typename state::domains{})) {}
    /// The same over domains of the caller's, one of each transport in their order. They outlive the node.
    node(node_id id, const node_options& options, typename Ts::domain&... in)
        : state_(new state(detail::running_scheduler(), id, options, typename state::domains{&in...})) {}
    /// The same over the domains of another node on its scheduler.
    node(node_id id, const node_options& options, const node& beside)
        : state_(new state(beside.state_->owner, id, options, beside.state_->in())) {}
    node(const node&) = delete;
    node& operator=(const node&) = delete;
    ~node() { state_->stop(); }

    /// Awaitable.
    /// Ends with the URL that other nodes connect to, which becomes part of the card: with the real port where 0 was asked for.
    /// Completes: when other nodes can connect.
    /// Buffers: the URL is copied.
    /// Concurrency: any number at a time, at different URLs.
    /// Errors: as `listen`; `errc::address_invalid` where no transport has the URL's scheme; `errc::invalid_argument` when the card would
    ///     get longer than 1 KB.
    /// Cancellation: at any time.
    /// Example:
    ///     co_await here.listen("tcp://0.0.0.0:7471", "tcp://alpha:7471");  // the second is what others are told
    [[nodiscard]] task<std::string> listen(std::string_view url, std::string_view told = {}) {
        return detail::node_connections::listen(connecting(), std::string(url), std::string(told));
    }

    /// Adds a card to the address book, or replaces that of the same id; a connection that is open stays. Throws `errc::invalid_argument`
    /// for a card that cannot be one and for this node's own id.
    void add(const node_card& card) { state_->add(card); }
    /// Takes a card out of the address book. A connection that is open stays; no other is made to that node. False: it was not there.
    bool remove(node_id id) { return state_->remove(id); }
    /// This node's own card.
    [[nodiscard]] const node_card& card() const noexcept { return state_->self; }

    /// A handle of another node, which need not be in the address book yet. Throws `errc::invalid_argument` for 0 and for this node's own id.
    [[nodiscard]] peer_type peer(node_id id) { return peer_type(state_->peer(id)); }

    /// From now on `f(endpoint, id, generation)`, which returns a `task<>`, runs for each connection, whichever side made it, as a child of the
    /// node. It is called with the `endpoint<T>&` of the transport: a lambda takes `auto&`. The endpoint lives until the task has ended.
    /// When the connection has ended the task's operations end with the reason; it is asked to stop when the node stops. An exception of it
    /// ends the connection. Example:
    ///
    ///     here.on_connection([](auto& peer, rdmacoro::node_id, rdmacoro::generation) -> rdmacoro::task<> {
    ///         for (;;) co_await peer.send((co_await peer.recv_lent()).bytes());
    ///     });
    template <class F>
        requires(... && std::is_invocable_r_v<task<>, F&, endpoint<Ts>&, node_id, generation>)
    void on_connection(F f) {
        state_->handle(std::move(f), true);
    }

    /// Tells of nodes that come, leave and fail, from now on. At most `most` changes, 1 to 65,536, wait to be read; of more the oldest are dropped and counted.
    [[nodiscard]] node_watch watch(std::size_t most = 256) { return node_watch(*state_, most); }

    /// How the node of that id is connected, and what became of each URL when it was last tried: a line each. Of this node's own id: where it
    /// accepts connections, and where no longer.
    [[nodiscard]] std::string explain(node_id id) const { return state_->explain(id); }

    /// Open connections.
    [[nodiscard]] std::size_t connections() const noexcept { return state_->open_connections(); }
    /// The scheduler that it is on.
    [[nodiscard]] scheduler& owner() noexcept { return state_->owner; }

    /// Awaitable.
    /// Completes: when what was sent has arrived, and all connections are closed; the other nodes know that this one has left.
    /// Buffers: none.
    /// Concurrency: once. Everything that waits for a connection ends with `errc::closed` at its beginning.
    /// Errors: `errc::timed_out` where functions of connections, or handlers of their calls, do not end, though they were asked to stop, with their
    ///     names; the connections are closed all the same, and it may be called again. It takes `node_options::close_limit` three times at most.
    /// Cancellation: closes at once; sent messages may be lost.
    /// Example:
    ///     co_await here.close();
    [[nodiscard]] task<> close() { return detail::node_connections::close(connecting()); }

private:
    friend class node_calls<Ts...>;
    friend class node_discovery;
    friend class detail::node_joining;
    template <transport... Us>
    friend class detail::rank_links_over;

    [[nodiscard]] detail::counted_ptr<detail::node_connections> connecting() const noexcept {
        return detail::counted_ptr<detail::node_connections>(state_.get());
    }

    detail::counted_ptr<state> state_;
};

}  // namespace rdmacoro
