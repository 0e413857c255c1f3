// How a task begins on another thread, is canceled, and tells that it has ended.
#pragma once

#include <rdmacoro/service/call_error.hpp>
#include <rdmacoro/service/detail/task_port.hpp>

#include <new>
#include <thread>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD bool task_port::belongs_here() noexcept {
    posting_.fetch_add(1, std::memory_order_seq_cst);  // meanwhile it does not close, and the scheduler lives
    const bool here = !closed() && owner_.belongs_here();
    posting_.fetch_sub(1, std::memory_order_release);
    return here;
}
RDMACORO_COLD void task_port::close() noexcept {
    closed_.store(true, std::memory_order_seq_cst);
    while (posting_.load(std::memory_order_seq_cst) != 0) std::this_thread::yield();
    owner_.run_posted();
    flushed_ = true;
    while (remote_base* const one = unanswered_) {
        unanswered_ = one->next_;
        one->tell();
    }
    stop_.request_stop();
}
RDMACORO_COLD void task_port::join() noexcept {
    owner_.run_until([this] { return running() == 0; }, stop_);
}
RDMACORO_COLD void task_port::child_failed(std::exception_ptr) noexcept {}
RDMACORO_DECL std::coroutine_handle<> task_port::child_ended() noexcept {
    running_.fetch_sub(1, std::memory_order_relaxed);
    return std::noop_coroutine();
}

RDMACORO_COLD void remote_base::cancel_and_wait() noexcept {
    ask_to_stop();
    static_cast<void>(wait_until(time_point::max()));
}

RDMACORO_DECL void remote_base::prepare(maker make) noexcept {
    make_ = make;
    asked_at_ = monotonic_now();
    begin_node_.self = cancel_node_.self = end_node_.self = this;
    begin_node_.call = &begin_posted;
    cancel_node_.call = &cancel_there;
    end_node_.call = &end_here;
}
RDMACORO_DECL void remote_base::post() noexcept {
    if (at_->post(begin_node_)) {
        is_asked();
    } else {
        end_unbegun(when_stopped());
    }
}

RDMACORO_COLD void remote_base::begin_posted(posted_node& at) noexcept {
    static_cast<node&>(at).self->begin_there();
}
RDMACORO_COLD void remote_base::begin_there() noexcept {
    if (at_->closed()) {
        code_ = when_stopped_;
        ended();
        return;
    }
    stop_.follow(at_->stop_.get_token());
    try {
        at_->begin(make_(*at_, *this), stop_.get_token());
    } catch (const std::bad_alloc&) {
        code_ = errc::no_resources;
        ended();
    }
}

RDMACORO_COLD void remote_base::ask_to_stop() noexcept {
    if ((word_.fetch_or(cancels, std::memory_order_acq_rel) & (ends | cancels)) != 0) return;
    static_cast<void>(at_->post(cancel_node_));  // a closed port has canceled it
}
RDMACORO_COLD void remote_base::cancel_there(posted_node& at) noexcept {
    remote_base& self = *static_cast<node&>(at).self;
    self.cancel_arrived_ = true;
    if (!self.unanswered_) return self.stop_.request_stop();
    remote_base** one = &self.at_->unanswered_;
    while (*one != &self) one = &(*one)->next_;
    *one = self.next_;
    self.tell();
}

RDMACORO_DECL void remote_base::ended() noexcept {
    stop_.unfollow();
    const bool canceled = (word_.fetch_or(ends, std::memory_order_acq_rel) & cancels) != 0;
    if (canceled && !cancel_arrived_ && !at_->flushed_) {
        unanswered_ = true;
        next_ = std::exchange(at_->unanswered_, this);
        return;
    }
    tell();
}
RDMACORO_DECL void remote_base::tell() noexcept {
    if (owner_ != nullptr) {
        owner_->post(end_node_);
        word_.fetch_or(told, std::memory_order_release);  // until then the other thread's scheduler lives
    } else if ((word_.fetch_or(told, std::memory_order_acq_rel) & waits) != 0) {
        wake_threads(word_);
    }
}
RDMACORO_DECL void remote_base::end_here(posted_node& at) noexcept {
    remote_base& self = *static_cast<node&>(at).self;
    while ((self.word_.load(std::memory_order_acquire) & told) == 0) std::this_thread::yield();
    self.unlink();
    self.complete();
}

RDMACORO_DECL bool remote_base::wait_until(time_point until) noexcept {
    while (!done()) {
        std::uint32_t seen = word_.fetch_or(waits, std::memory_order_acq_rel) | waits;
        while ((seen & told) == 0) {
            if (until != time_point::max() && monotonic_now() >= until) return false;
            wait_for_change(word_, seen, until);
            seen = word_.load(std::memory_order_acquire);
        }
        complete();
    }
    return true;
}

RDMACORO_COLD void remote_base::rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
    throw_error(std::error_code(code_), facts_);
}

RDMACORO_COLD void remote_base::failed_with_current() noexcept {
    try {
        throw;
    } catch (const error& failed) {
        code_ = failed.code();
        facts_ = failed.facts();
    } catch (const std::system_error& failed) {
        code_ = failed.code();
    } catch (...) {
        code_ = make_error_code(call_errc::handler_failed);
    }
    if (!code_) code_ = make_error_code(call_errc::handler_failed);  // a code that means no error
    const bool by_port = code_.category == &error_category() &&
                         code_.value == static_cast<int>(errc::canceled) && at_->stop_.stop_requested() &&
                         (word_.load(std::memory_order_acquire) & cancels) == 0;
    if (by_port) {
        code_ = when_stopped_;
    } else {
        failure_ = std::current_exception();
    }
}

}  // namespace rdmacoro::detail
