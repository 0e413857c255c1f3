#pragma once

// An operation of any transport and protocol list behind one type, so that a test is compiled once for all of them. Allocates
// nothing: the operation lies in it, and runs as it would in the frame that awaits it.

#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/start.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace rdmacoro::test {

namespace erased {

/// The functions of an operation that ends with a `T`, but for those that `operation_base` has.
template <class T>
class operation_face {
public:
    virtual ~operation_face() = default;
    virtual rdmacoro::detail::operation_base& base() noexcept = 0;
    virtual operation_face* move_to(void* memory) noexcept = 0;
    virtual void bind(const environment& env) noexcept = 0;
    virtual void begin() noexcept = 0;
    virtual bool await_ready() noexcept = 0;
    virtual void await_suspend(std::coroutine_handle<> awaiting) noexcept = 0;
    virtual result<T> take_result() noexcept = 0;
};

template <class T, class Operation>
class operation_of final : public operation_face<T> {
public:
    explicit operation_of(Operation&& made) noexcept : operation_(std::move(made)) {}
    rdmacoro::detail::operation_base& base() noexcept override { return operation_; }
    operation_face<T>* move_to(void* memory) noexcept override {
        return ::new (memory) operation_of(std::move(operation_));
    }
    void bind(const environment& env) noexcept override { operation_.bind(env); }
    void begin() noexcept override {
        if constexpr (requires { operation_.begin(); }) {
            operation_.begin();
        } else {  // gets, puts and atomics hide it
            static_cast<basic_operation<Operation, T>&>(operation_).begin();
        }
    }
    bool await_ready() noexcept override { return operation_.await_ready(); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept override {
        operation_.await_suspend(awaiting);
    }
    result<T> take_result() noexcept override { return operation_.take_result(); }

private:
    Operation operation_;
};

}  // namespace erased

/// An operation that ends with a `T`. Awaited, started and adapted as the operation in it is.
template <class T>
class [[nodiscard]] any_operation {
public:
    using value_type = T;

    template <class Operation>
        requires std::derived_from<Operation, rdmacoro::detail::operation_base>
    any_operation(Operation&& made) noexcept
        : face_(::new(static_cast<void*>(memory_)) erased::operation_of<T, Operation>(std::move(made))) {
        static_assert(sizeof(erased::operation_of<T, Operation>) <= room, "any_operation: make more room");
        static_assert(alignof(erased::operation_of<T, Operation>) <= alignof(std::max_align_t));
    }
    any_operation(any_operation&& other) noexcept : face_(other.face_->move_to(memory_)) {}
    ~any_operation() { std::destroy_at(face_); }

    void bind(const environment& env) noexcept { face_->bind(env); }
    [[nodiscard]] bool done() const noexcept { return face_->base().done(); }
    [[nodiscard]] scheduler& owner() const noexcept { return face_->base().owner(); }
    void begin() noexcept { face_->begin(); }
    bool await_ready() noexcept { return face_->await_ready(); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { face_->await_suspend(awaiting); }
    [[nodiscard]] result<T> take_result() noexcept { return face_->take_result(); }
    T await_resume() {
        result<T> ended = face_->take_result();
        if (!ended) rdmacoro::detail::throw_error(ended.error(), ended.facts());
        if constexpr (!std::is_void_v<T>) return *std::move(ended);
    }

private:
    static constexpr std::size_t room = 768;  // of the largest operation: a receive and its buffers

    alignas(std::max_align_t) std::byte memory_[room];
    erased::operation_face<T>* face_;
};

}  // namespace rdmacoro::test

namespace rdmacoro {

/// Begins in place, as operations do, without a helper coroutine's frame.
template <class T>
class [[nodiscard]] started<test::any_operation<T>> {
public:
    using value_type = T;

    explicit started(test::any_operation<T>&& op) : op_(std::move(op)) {
        op_.bind({scheduler::current(), {}});
        op_.begin();
    }
    started(const started&) = delete;
    started& operator=(const started&) = delete;
    ~started() {
        if (awaited_) return;
        detail::check_abandoned();
        if (op_.done()) return;
        local_stop_source stopped;
        stopped.request_stop();
        op_.bind({nullptr, stopped.get_token()});
        if (!op_.await_ready()) op_.owner().run_until([this] { return op_.done(); }, stopped);
    }

    [[nodiscard]] bool done() const noexcept { return op_.done(); }
    void bind(const environment& env) noexcept { op_.bind(env); }
    bool await_ready() noexcept { return op_.await_ready(); }
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { op_.await_suspend(awaiting); }
    T await_resume() {
        awaited_ = true;
        return op_.await_resume();
    }
    [[nodiscard]] result<T> take_result() noexcept {
        awaited_ = true;
        return op_.take_result();
    }

private:
    test::any_operation<T> op_;
    bool awaited_ = false;
};

}  // namespace rdmacoro
