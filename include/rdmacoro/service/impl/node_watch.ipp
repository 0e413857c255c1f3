// Bodies of node_watch.hpp.
#pragma once

#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/service/node_watch.hpp>

#include <optional>

namespace rdmacoro {

RDMACORO_COLD node_watch::node_watch(detail::node_core& of, std::size_t most) {
    if (most == 0) throw error(errc::invalid_argument, "node: watch: a queue of no places");
    watcher_ = detail::counted_ptr<detail::node_watcher>(new detail::node_watcher(most));
    if (of.stopped) {
        watcher_->end();
    } else {
        of.watchers.push_back(*watcher_);
    }
}

RDMACORO_COLD task<node_event> node_watch::next_of(detail::counted_ptr<detail::node_watcher> from) {
    co_await detail::turn_for_others();
    for (;;) {
        if (const std::optional<node_event> first = from->take()) co_return *first;
        if (from->ended) throw error(errc::closed, "node: watch");
        co_await from->changed.wait();
    }
}

}  // namespace rdmacoro
