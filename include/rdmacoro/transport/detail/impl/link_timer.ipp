// Bodies of link_timer.hpp.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/detail/link_timer.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL link_timer::link_timer(scheduler& owner, void* link, function call) noexcept
    : owner_(owner), link_(link), call_(call) {
    timer_node::expired = [](timer_node& node) noexcept {
        auto& self = static_cast<link_timer&>(node);
        self.call_(self.link_);
    };
}

RDMACORO_DECL void link_timer::set(duration after) noexcept {
    owner_.remove_timer(*this);
    deadline = deadline_after(owner_.now(), after);
    owner_.add_timer(*this);
}

RDMACORO_DECL void link_timer::cancel() noexcept { owner_.remove_timer(*this); }

}  // namespace rdmacoro::detail
