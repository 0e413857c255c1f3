// remote_task: an operation of one thread that awaits something on the scheduler of another.
#pragma once

#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/service/detail/task_port.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

template <class R>
using value_or_nothing = std::conditional_t<std::is_void_v<R>, char, R>;

/// The way of a task to the port's thread by a post.
struct posted_entry {
    static void enter(remote_base& of) noexcept { of.post(); }
    static bool leave(remote_base&) noexcept { return false; }
};

/// `Make` is called on the port's thread and gives the awaitable, which ends with an `R`. It is moved there, and destroyed there.
/// `Entry` is its way there: `enter` takes it, and `leave`, when it is canceled, answers whether it has ended without having begun.
template <class R, class Make, class Entry = posted_entry>
class [[nodiscard]] remote_task : public basic_operation<remote_task<R, Make, Entry>, R, remote_base> {
    using base = basic_operation<remote_task<R, Make, Entry>, R, remote_base>;

public:
    remote_task(task_port& at, std::error_code when_stopped, Make&& make, Entry&& entry = Entry())
        : base(at, when_stopped), make_(std::move(make)), entry_(std::move(entry)) {}
    /// Only before it begins.
    remote_task(remote_task&& other) noexcept(std::is_nothrow_move_constructible_v<Make>)
        : base(std::move(other)), make_(std::move(other.make_)), entry_(std::move(other.entry_)) {}
    ~remote_task() { this->abandon(); }

    /// Throws the task's own exception.
    [[noreturn]] void throw_failure() const { this->rethrow(); }
    [[nodiscard]] error_facts facts() const noexcept { return this->facts_; }

private:
    friend base;

    void start() noexcept {
        this->prepare(&run);
        entry_.enter(*this);
    }
    void cancel() noexcept {
        if (!entry_.leave(*this)) this->ask_to_stop();
    }
    void finish_canceled() noexcept { this->code_ = errc::canceled; }
    result<R> outcome() noexcept {
        if (this->code_) return std::error_code(this->code_);
        if constexpr (std::is_void_v<R>) {
            return {};
        } else {
            return *std::move(value_);
        }
    }

    static child run(child_owner&, remote_base& of) {
        auto& self = static_cast<remote_task&>(of);
        {
            Make make(std::move(self.make_));
            try {
                if (self.limit_ == remote_base::no_limit) {
                    if constexpr (std::is_void_v<R>) {
                        co_await make();
                    } else {
                        self.value_.emplace(co_await make());
                    }
                } else {
                    const duration left = self.left();
                    if (left == duration::zero()) throw_error(errc::timed_out);
                    if constexpr (std::is_void_v<R>) {
                        co_await timeout(make(), left);
                    } else {
                        self.value_.emplace(co_await timeout(make(), left));
                    }
                }
            } catch (...) {
                self.failed_with_current();
            }
        }
        self.ended();
    }

    Make make_;
    std::optional<value_or_nothing<R>> value_;

protected:
    Entry entry_;
};

}  // namespace rdmacoro::detail
