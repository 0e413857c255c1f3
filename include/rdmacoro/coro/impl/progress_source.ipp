// The default functions of a progress source.
#pragma once

#include <rdmacoro/coro/progress_source.hpp>
#include <rdmacoro/coro/scheduler.hpp>

namespace rdmacoro {

RDMACORO_DECL progress_source::~progress_source() { unlink(); }
RDMACORO_DECL void progress_source::unlink() noexcept {
    if (!linked()) return;
    if (polled_by_->next_source_ == this) polled_by_->next_source_ = polled_by_->sources_.next(*this);
    list_hook::unlink();
}
RDMACORO_DECL int progress_source::wake_fd() noexcept { return -1; }
RDMACORO_DECL void progress_source::arm() noexcept {}
RDMACORO_DECL void progress_source::disarm() noexcept {}

}  // namespace rdmacoro
