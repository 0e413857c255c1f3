// service: the methods that this side has for its peers' calls, and how many of them may run at a time.
#pragma once

#include <rdmacoro/coro/semaphore.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/detail/handler.hpp>
#include <rdmacoro/service/detail/pool_handler.hpp>
#include <rdmacoro/service/method.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace rdmacoro {

/// The limits of the handlers of a service, together.
struct service_options {
    /// Handlers at a time; at least 1. Answers that wait to be sent keep up to a half of these places, for all peers together; a peer to which
    /// `running` answers wait waits with further requests.
    std::size_t running = 256;
    std::size_t bytes = std::size_t{64} << 20;  ///< of the requests that are served
    decode_limits arguments{};                  ///< of one request
};

/// Handlers, by method: what peers may call. All methods of a service have one prefix, the part of their names before the first dot.
/// It is offered to a peer by `calls::serve`, to any number of peers; where `options.running` handlers run, or the requests of those that
/// run have `options.bytes`, further requests wait at their callers, but for one of each peer. Other services' requests go on.
///
/// A handler is any callable that returns the method's result, or a task of it. It gets the `call_context`, and the arguments by value; views among
/// them (`std::string_view`, `std::span<const T>` of numbers and the like) are of the request, which lives until the handler has ended. What it throws
/// goes to the caller: the code of a `std::system_error`, and the text.
///
/// One that returns the result itself is called where its request is received, before anything else happens: it is for what takes no
/// more than microseconds, has no coroutine, and hears of no stop. A task's stop token is stopped when the call's time is over, when the
/// caller cancels, and when the peer goes. Methods with streams are served by tasks.
///
///     rc::service store;
///     store.on(kv::get, [&](rc::call_context&, std::string key) { return values.at(key); });
///     store.on(kv::load, [&](rc::call_context& c, rc::remote_region from) -> rc::task<std::uint64_t> { co_return co_await load(c, from); });
///
/// For one thread. Outlives all `calls` that it was given to.
class service {
public:
    /// Throws `errc::invalid_argument` for a limit of 0.
    explicit service(const service_options& options = {});
    service(const service&) = delete;
    service& operator=(const service&) = delete;
    ~service();

    /// From now on calls of `M` go to `function`. Throws `errc::invalid_argument` where the method is there already, and where its
    /// prefix is another one than that of the methods before it.
    template <method_name Name, class R, class... P, class Function>
        requires detail::handles<std::decay_t<Function>, R, P...>
    void on(const method<Name, R(P...)>& what, Function&& function) {
        static_cast<void>(what);
        using handler = detail::handler_for<std::decay_t<Function>, R, P...>;
        add(new handler(method<Name, R(P...)>::facts, static_cast<Function&&>(function)));
    }

    /// The same on the threads of a pool, beside this one: for handlers that compute. The function is called as a constant, on several
    /// threads at a time; it gets a `pool_context`. Arguments and result are moved to its thread and back. Its token is stopped, on
    /// its thread, as that of other handlers is. Not for streams.
    template <method_name Name, class R, class... P, class Function>
        requires detail::handles_on_pool<std::decay_t<Function>, R, P...>
    void on(const method<Name, R(P...)>& what, scheduler_pool& pool, Function&& function) {
        static_cast<void>(what);
        using handler = detail::pool_handler<method<Name, R(P...)>, std::decay_t<Function>>;
        add(new handler(pool, static_cast<Function&&>(function)));
    }

    /// Handlers that run now, and answers that keep their places until they are sent.
    [[nodiscard]] std::size_t running() const noexcept { return options_.running - running_.available(); }
    /// Bytes of the requests that are served now.
    [[nodiscard]] std::size_t bytes() const noexcept { return options_.bytes - bytes_.available(); }
    /// The limits that it was made with.
    [[nodiscard]] const service_options& options() const noexcept { return options_; }
    /// For what offers services: throws `errc::invalid_argument` where this one cannot be offered beside those. `by` is the function that
    /// was called.
    void check_beside(std::span<service* const> offered, const char* by) const;

private:
    friend class detail::calls_base;

    /// From now on it is this one's, also where it throws.
    void add(detail::handler_base* given);
    /// nullptr: none.
    [[nodiscard]] detail::handler_base* find(std::uint64_t method) const noexcept;

    service_options options_;
    semaphore running_;
    semaphore bytes_;
    std::size_t unsent_ = 0;  // places that answers keep which wait to be sent
    std::vector<std::unique_ptr<detail::handler_base>> handlers_;  // sorted by number
    mutable detail::handler_base* last_ = nullptr;                 // that was found
    std::uint16_t number_ = 0;                                     // set with the first handler
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/calls_base.hpp>
#endif
