// node_watch: the changes among the nodes that a node knows, one after another.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/detail/node_core.hpp>
#include <rdmacoro/service/node_options.hpp>

#include <cstddef>
#include <utility>

namespace rdmacoro {

/// Tells of nodes that came, left and failed. Made by `node::watch`. Movable; may outlive the node. For its scheduler's thread.
class node_watch {
public:
    /// For `node`. Throws `errc::invalid_argument` when `most` is 0.
    node_watch(detail::node_core& of, std::size_t most);

    /// Awaitable.
    /// Ends with the change that happened first among those that were not read.
    /// Completes: when there is one.
    /// Buffers: none. A queue of a bounded length: see `node_event::missed`.
    /// Concurrency: any number; each change goes to one of them.
    /// Errors: `errc::closed` when the node was stopped and each change was read.
    /// Cancellation: at any time; no change is lost.
    /// Example:
    ///     auto changes = here.watch();
    ///     for (;;) {
    ///         rdmacoro::node_event change = co_await changes.next();
    ///     }
    [[nodiscard]] task<node_event> next() { return next_of(watcher_); }

private:
    [[nodiscard]] static task<node_event> next_of(detail::counted_ptr<detail::node_watcher> from);

    detail::counted_ptr<detail::node_watcher> watcher_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/node_watch.ipp>
#endif
