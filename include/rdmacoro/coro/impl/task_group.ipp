// How a task group starts, joins and stops its children.
#pragma once

#include <rdmacoro/coro/task_group.hpp>

namespace rdmacoro {

namespace detail {
RDMACORO_COLD error_handler::~error_handler() = default;
}  // namespace detail

RDMACORO_COLD task_group::~task_group() {
    if (size_ != 0) {
        request_stop();
        owner_->run_until([this] { return size_ == 0; }, source_);
    }
    delete handler_;
    if (failure_)
        detail::report_dropped(
            "a task of a group that nothing joined failed (see task_group::join, on_error)", failure_);
}

RDMACORO_COLD void task_group::set_handler(detail::error_handler* made) noexcept {
    detail::error_handler* const former = std::exchange(handler_, made);
    if (former != nullptr && former->calls != 0) {
        former->replaced = true;
    } else {
        delete former;
    }
}

RDMACORO_COLD void task_group::adopt(scheduler& running, detail::child made) noexcept {
    if (size_ != 0 && owner_ != &running) detail::group_on_two(*owner_, running, "given a task");
    owner_ = &running;
    ++size_;
    made.begin_soon({owner_, source_.get_token()});
}

RDMACORO_COLD void task_group::child_failed(std::exception_ptr failure) noexcept {
    if (source_.stop_requested() && detail::is_canceled(failure)) {
        child_canceled_ = true;
        return;
    }
    if (detail::error_handler* const called = handler_) {
        ++called->calls;
        called->call(std::move(failure));
        if (--called->calls == 0 && called->replaced) delete called;
    } else if (!failure_) {
        failure_ = std::move(failure);
    }
    if (policy_ == on_child_error::stop_others) request_stop();
}

RDMACORO_COLD std::coroutine_handle<> task_group::child_ended() noexcept {
    if (--size_ == 0 && joiner_ != nullptr) joiner_->finish();
    return std::noop_coroutine();
}

RDMACORO_COLD bool task_group::join_operation::await_ready() noexcept {
    if (group_->joiner_ != nullptr) detail::fatal("a task group is joined twice at a time");
    if (group_->size_ != 0 && owner_ != nullptr && owner_ != group_->owner_)
        detail::group_on_two(*group_->owner_, *owner_, "joined");
    if (stop.stop_requested()) {
        group_->request_stop();
        canceled_ = group_->size_ == 0;
    }
    return group_->size_ == 0 && goes_on();
}

RDMACORO_COLD void task_group::join_operation::await_suspend(std::coroutine_handle<> awaiting) noexcept {
    if (group_->size_ == 0) return resume_later(awaiting);
    state_ = state::pending;
    group_->joiner_ = this;
    former_ = group_->source_.belong_to(stop);
    suspend(awaiting, [](local_stop_callback& hook) noexcept {
        static_cast<join_operation*>(static_cast<stop_hook&>(hook).self)->group_->request_stop();
    });
}

RDMACORO_COLD void task_group::join_operation::await_resume() {
    if (group_->failure_) std::rethrow_exception(std::exchange(group_->failure_, {}));
    const bool cut_short = std::exchange(group_->child_canceled_, false) && stop.stop_requested();
    if (canceled_ || cut_short) detail::throw_error(errc::canceled);
}

RDMACORO_COLD void task_group::join_operation::finish() noexcept {
    group_->joiner_ = nullptr;
    group_->source_.belong_to(former_);
    complete();
}

}  // namespace rdmacoro
