// How a call with arguments of fixed length is made and ends.
#pragma once

#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/service/detail/calls_base.hpp>
#include <rdmacoro/service/detail/fixed_call.hpp>

#include <memory>
#include <new>
#include <system_error>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_DECL fixed_call_base::~fixed_call_base() {
    if (stage_ != stage::fresh) finish();
}
RDMACORO_DECL void fixed_call_base::finish() noexcept {
    further_ = task<message>();  // refers to the operation
    end_operation();
    if (std::exchange(counted_, false)) over_->ended();
}
RDMACORO_DECL void fixed_call_base::end_operation() noexcept {
    if (stage_ == stage::sending) {
        std::destroy_at(&send_);
    } else if (stage_ == stage::receiving) {
        std::destroy_at(&receive_);
    } else if (stage_ == stage::answered) {
        std::destroy_at(&answer_);
    }
    stage_ = stage::over;
}
RDMACORO_DECL void fixed_call_base::receive() {
    end_operation();
    ::new (static_cast<void*>(&receive_))
        any_lent_receive(over_->link(), call_tag(call_kind::answer, asked_), true);
    stage_ = stage::receiving;
    receive_.bind(env_);
}

RDMACORO_DECL bool fixed_call_base::begin(const method_facts& of, std::span<const std::byte> request) {
    stage_ = stage::over;
    if (env_.stop.stop_requested()) [[unlikely]] {
        ::new (static_cast<void*>(&send_)) any_send(over_->link(), request, tag_type{0});
        stage_ = stage::sending;
        send_.bind(env_);
        return send_.await_ready();  // nothing is sent
    }
    over_->began();
    counted_ = true;
    asked_ = over_->request_tag(call_kind::request, over_->next_number(), of.service);
    ::new (static_cast<void*>(&send_)) any_send(over_->link(), request, asked_);
    stage_ = stage::sending;
    send_.bind(env_);
    send_.begin();
    if (!send_.done()) [[unlikely]] {
        wait_for_sent(of);
        return false;
    }
    if (send_.code_) [[unlikely]]
        return send_.await_ready();  // not before others had their turn, where it is theirs
    receive();
    return receive_.await_ready();
}

RDMACORO_COLD void fixed_call_base::wait_for_sent(const method_facts& of) {
    try {
        further_ = over_->ask_further(send_, asked_, of);
    } catch (const std::bad_alloc&) {
        give_up();
        throw;
    }
    further_.bind(env_);
}
/// As a call that is canceled while its request is sent.
RDMACORO_COLD void fixed_call_base::give_up() noexcept {
    end_unawaited(send_);
    const std::error_code unsent = send_.code_;
    if (unsent && !calls_base::perhaps_sent(unsent, send_.facts())) return;  // no answer comes
    over_->tell_canceled(asked_, static_cast<bool>(unsent));
    local_stop_source stopped;
    stopped.request_stop();
    env_.stop = stopped.get_token();
    receive();
    static_cast<void>(receive_.await_ready());  // it ends canceled, and the answer is dropped when it comes
}

RDMACORO_DECL std::coroutine_handle<> fixed_call_base::suspend(std::coroutine_handle<> awaiting) noexcept {
    if (stage_ == stage::receiving) [[likely]] {
        receive_.await_suspend(awaiting);
        return std::noop_coroutine();
    }
    if (!further_.handle()) {  // it was not sent
        send_.await_suspend(awaiting);
        return std::noop_coroutine();
    }
    return task<message>::awaiter(further_.handle()).await_suspend(awaiting);
}

RDMACORO_DECL std::span<const std::byte> fixed_call_base::end(const method_facts& of) {
    if (stage_ == stage::receiving && !receive_.code_) [[likely]] {
        const std::span<const std::byte> bytes = receive_.bytes();
        check_answer(of, bytes);
        return bytes.subspan(sizeof(answer_head));
    }
    return end_unusually(of);
}
RDMACORO_COLD std::span<const std::byte> fixed_call_base::end_unusually(const method_facts& of) {
    if (further_.handle()) {
        message got = task<message>::awaiter(further_.handle()).await_resume();
        end_operation();
        ::new (static_cast<void*>(&answer_)) message(std::move(got));
        stage_ = stage::answered;
        return answer_.bytes().subspan(sizeof(answer_head));
    }
    if (stage_ == stage::receiving) over_->answer_lost(of, asked_, receive_.code_, receive_.facts());
    if (stage_ == stage::sending) throw_call_failure(of, send_.code_, send_.facts());
    throw_call_failure(of, make_error_code(errc::canceled), {});
}

}  // namespace rdmacoro::detail
