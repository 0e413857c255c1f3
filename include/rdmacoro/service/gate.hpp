// gate: any thread sends and calls through the connections of one thread.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/window.hpp>
#include <rdmacoro/service/detail/gate_core.hpp>
#include <rdmacoro/service/detail/gate_way.hpp>
#include <rdmacoro/service/detail/remote_task.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace rdmacoro {

/// A call through a gate: the operation of `gate_pass::call` and its like. Described at `gate_pass::call`.
template <class R, class Make>
class [[nodiscard]] gate_call : public detail::remote_task<R, Make> {
    using base = detail::remote_task<R, Make>;

public:
    /// For `gate_pass`.
    gate_call(detail::task_port& at, Make&& make)
        : base(at, make_error_code(errc::closed), std::move(make)) {}

    /// For `timeout`: the peer is told that the call has so much time.
    void set_limit(duration limit) noexcept { this->limit_ = limit; }

    /// For a thread without a scheduler. Begins the call unless it has begun, and sleeps until it has ended. Returns its value or throws its
    /// error. Throws `errc::invalid_argument` on the gate's own thread, which would wait for itself.
    R get() {
        wait("gate_call::get");
        return this->await_resume();
    }
    /// The same with a limit, of which the peer is told: `errc::timed_out` after it. The call must not have begun.
    R get(duration limit) {
        if (!this->begun()) set_limit(limit);
        return get();
    }
    /// As `get`, and returns the error instead of throwing it.
    [[nodiscard]] result<R> get_result() {
        wait("gate_call::get_result");
        return this->take_result();
    }
    /// Begins the call unless it has begun, and sleeps until it has ended, or `limit` has passed: then it returns false, and the call goes on.
    [[nodiscard]] bool wait_for(duration limit) {
        check("gate_call::wait_for");
        const time_point until = detail::monotonic_now() + limit;
        this->begin();
        return this->done() || this->wait_until(until);
    }
    /// For a thread without a scheduler: the call is to end soon, with `errc::canceled` unless it has ended; `get` waits for that.
    void stop() noexcept {
        if (this->begun() && !this->done()) this->ask_to_stop();
    }

private:
    void check(const char* what) const {
        if (scheduler::current() != nullptr && scheduler::current()->running_thread() != 0 &&
            &this->at_->owner() == scheduler::current())
            detail::throw_error(errc::invalid_argument,
                                std::string(what) + ": on the gate's own thread; co_await the call there");
        if (this->has_owner())
            detail::throw_error(errc::invalid_argument,
                                std::string(what) + ": a coroutine awaits the call already");
    }
    void wait(const char* what) {
        check(what);
        this->begin();
        if (!this->done()) static_cast<void>(this->wait_until(time_point::max()));
    }
};

/// As `timeout` for any operation, and the peer is told the limit.
///
/// Awaitable.
/// Completes: when the call does, which is canceled when `limit` has passed since it began.
/// Buffers: as for the call.
/// Concurrency: as for the call.
/// Errors: `errc::timed_out`; else those of the call.
/// Cancellation: passed on to the call.
/// Example:
///     auto value = co_await timeout(pass.call(9, kv::get, key), 2ms);
template <class R, class Make>
[[nodiscard]] auto timeout(gate_call<R, Make>&& op, duration limit) {
    op.set_limit(limit);
    return timeout_operation<gate_call<R, Make>>(std::move(op), limit);
}

/// One thread's way through a gate. Made by `gate::pass`, on any thread, and used by one thread at a time. May outlive the gate: then
/// everything ends with `errc::closed`. Outlives its own calls.
///
/// `Over` is what the gate leads through: `node_calls` and `node` have peers by their ids, and each function takes the id first;
/// `calls` and `endpoint` have one peer, and it is left out.
template <class Over>
class gate_pass {
    using way = detail::gate_way<Over>;

public:
    /// For `gate`.
    gate_pass(std::shared_ptr<detail::gate_core> of, Over& over)
        : core_(std::move(of)), over_(&over), lane_(&core_->enter()) {}
    gate_pass(gate_pass&& other) noexcept
        : core_(std::move(other.core_)), over_(other.over_), lane_(std::exchange(other.lane_, nullptr)) {}
    gate_pass& operator=(gate_pass&& other) noexcept {
        if (this != &other) {
            leave();
            core_ = std::move(other.core_);
            over_ = other.over_;
            lane_ = std::exchange(other.lane_, nullptr);
        }
        return *this;
    }
    /// What it has put is sent all the same.
    ~gate_pass() { leave(); }

    /// Puts a message into the gate, by a copy, and returns: it is sent in its turn, behind what this pass has put for the same peer. Where that
    /// peer has more than half of what is left of the thread's room, it sleeps until some of it was sent. A message that is longer than
    /// `gate_options::message_bytes` is not copied: it returns when the message has been sent. Throws `errc::closed` where the gate has
    /// ended, and `errc::invalid_argument` where it would have to sleep on the gate's own thread. Errors of sending come with `flush`.
    template <class Buffers = const_buffers>
        requires(way::by_id && detail::sendable<Buffers>)
    void send(node_id to, Buffers&& from, tag_type tag = 0) {
        put_or_wait(to, detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag);
    }
    /// The same to the one peer of the gate.
    template <class Buffers = const_buffers>
        requires(!way::by_id && detail::sendable<Buffers>)
    void send(Buffers&& from, tag_type tag = 0) {
        put_or_wait(0, detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag);
    }

    /// As `send`, and never sleeps: false where it would have to. Throws `errc::message_too_long` for one that `send` would not copy.
    template <class Buffers = const_buffers>
        requires(way::by_id && detail::sendable<Buffers>)
    [[nodiscard]] bool try_send(node_id to, Buffers&& from, tag_type tag = 0) {
        return try_put(to, detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag);
    }
    /// The same to the one peer of the gate.
    template <class Buffers = const_buffers>
        requires(!way::by_id && detail::sendable<Buffers>)
    [[nodiscard]] bool try_send(Buffers&& from, tag_type tag = 0) {
        return try_put(0, detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag);
    }

    /// Sleeps until everything that this pass has put was sent, as `endpoint::send` completes. Throws the first error since the last
    /// time, with the peer in its text: the messages that failed are lost, others were sent. Throws `errc::closed` where the gate has ended before,
    /// and `errc::invalid_argument` on the gate's own thread.
    void flush() {
        if (!flush_for(time_point::max())) detail::throw_error(errc::closed, "gate_pass::flush");
    }
    /// The same with a limit: false where it has passed.
    [[nodiscard]] bool flush(duration limit) {
        if (flush_for(detail::monotonic_now() + limit)) return true;
        if (lane().port().closed()) detail::throw_error(errc::closed, "gate_pass::flush");
        return false;
    }

    /// Awaitable.
    /// Ends with the method's result: as `calls::call` and `node_calls::call`, with their arguments. Awaited by a coroutine of this thread's
    /// scheduler, which is resumed there; a thread without one uses `get`.
    /// Completes: when the peer has answered.
    /// Buffers: as `calls::call`: variables among the arguments are borrowed until then, temporaries moved in.
    /// Concurrency: any number at a time; what a pass has put before a call begins is sent before it.
    /// Errors: as `calls::call`; `errc::closed` where the gate has ended, or ends.
    /// Cancellation: as `calls::call`; it ends when the gate's thread knows of it. Destroying one that a thread without a
    ///     scheduler has begun cancels it, and waits for that.
    /// Example:
    ///     std::string colour = pass.call(9, kv::get, "colour").get(2ms);
    template <class... Args>
        requires(!way::by_id &&
                 requires(Over& over, Args&&... args) { over.call(static_cast<Args&&>(args)...); })
    [[nodiscard]] auto call(Args&&... args) {
        return through(over_->call(static_cast<Args&&>(args)...));
    }
    /// The same to one of many peers.
    template <class... Args>
        requires(way::by_id && requires(Over& over, node_id to,
                                        Args&&... args) { over.call(to, static_cast<Args&&>(args)...); })
    [[nodiscard]] auto call(node_id to, Args&&... args) {
        return through(over_->call(to, static_cast<Args&&>(args)...));
    }
    /// Awaitable.
    /// Ends with a number of elements: as `calls::call_into`, with its arguments.
    /// Completes: when the peer has answered.
    /// Buffers: as `call`; the place is borrowed until then.
    /// Concurrency: as `call`.
    /// Errors: as `calls::call_into` and `call`.
    /// Cancellation: as `call`.
    /// Example:
    ///     std::size_t length = pass.call_into(std::span(row), kv::column, "temperature").get();
    template <class... Args>
        requires(!way::by_id &&
                 requires(Over& over, Args&&... args) { over.call_into(static_cast<Args&&>(args)...); })
    [[nodiscard]] auto call_into(Args&&... args) {
        return through(over_->call_into(static_cast<Args&&>(args)...));
    }
    /// The same to one of many peers.
    template <class... Args>
        requires(way::by_id && requires(Over& over, node_id to,
                                        Args&&... args) { over.call_into(to, static_cast<Args&&>(args)...); })
    [[nodiscard]] auto call_into(node_id to, Args&&... args) {
        return through(over_->call_into(to, static_cast<Args&&>(args)...));
    }
    /// Awaitable.
    /// Completes: when the request has been sent: as `calls::cast`, with its arguments.
    /// Buffers: as `call`, until then.
    /// Concurrency: as `call`.
    /// Errors: as `calls::cast` and `call`.
    /// Cancellation: as `call`.
    /// Example:
    ///     pass.cast(9, kv::note, event{7}).get();
    template <class... Args>
        requires(!way::by_id &&
                 requires(Over& over, Args&&... args) { over.cast(static_cast<Args&&>(args)...); })
    [[nodiscard]] auto cast(Args&&... args) {
        return through(over_->cast(static_cast<Args&&>(args)...));
    }
    /// The same to one of many peers.
    template <class... Args>
        requires(way::by_id && requires(Over& over, node_id to,
                                        Args&&... args) { over.cast(to, static_cast<Args&&>(args)...); })
    [[nodiscard]] auto cast(node_id to, Args&&... args) {
        return through(over_->cast(to, static_cast<Args&&>(args)...));
    }

    /// Whether the gate has ended.
    [[nodiscard]] bool closed() const noexcept { return core_ == nullptr || core_->port.closed(); }

private:
    using put_result = detail::gate_lane::put_result;

    template <class Op>
    [[nodiscard]] auto through(Op&& op) {
        auto make = [op = std::move(op)]() mutable { return std::move(op); };
        return gate_call<typename Op::value_type, decltype(make)>(lane().port(), std::move(make));
    }
    [[nodiscard]] detail::gate_lane& lane() const {
        if (lane_ == nullptr) detail::throw_error(errc::invalid_argument, "gate_pass: it was moved from");
        return *lane_;
    }
    [[gnu::cold]] void check_thread(const char* what) const {
        if (!core_->port.closed() && scheduler::current() == &core_->port.owner())
            detail::throw_error(errc::invalid_argument, std::string(what) +
                                                            ": on the gate's own thread, which would "
                                                            "wait for itself; send over the "
                                                            "connection there");
    }
    bool try_put(std::uint32_t to, const const_buffers& from, tag_type tag) {
        detail::gate_lane& over = lane();
        if (from.size() > over.message_bytes()) [[unlikely]]
            detail::throw_error(errc::message_too_long,
                                "gate_pass::try_send: longer than gate_options::message_bytes");
        const put_result got = over.put(over.flow(to), from, tag, false);
        if (got == put_result::closed) [[unlikely]]
            detail::throw_error(errc::closed, "gate_pass::try_send: the gate has ended");
        return got == put_result::done;
    }
    void put_or_wait(std::uint32_t to, const const_buffers& from, tag_type tag) {
        detail::gate_lane& over = lane();
        const bool borrow = from.size() > over.message_bytes();
        detail::gate_flow& flow = over.flow(to);
        if (borrow) check_thread("gate_pass::send");
        for (;;) {
            const put_result got = over.put(flow, from, tag, borrow);
            if (got == put_result::done) [[likely]]
                break;
            if (got == put_result::full) check_thread("gate_pass::send");
            if (got == put_result::closed || (!over.wait_for_room(flow, time_point::max()) && closed()))
                detail::throw_error(errc::closed, "gate_pass::send: the gate has ended");
        }
        if (borrow && !over.wait_until_back(&flow, time_point::max()))
            detail::throw_error(errc::closed, "gate_pass::send: the gate has ended");
    }
    bool flush_for(time_point until) {
        detail::gate_lane& over = lane();
        if (!over.all_back()) {
            check_thread("gate_pass::flush");
            if (!over.wait_until_back(nullptr, until)) return false;
        }
        std::uint32_t peer = 0;
        if (const std::error_code failed = over.take_error(peer))
            throw error(failed, way::by_id ? "gate_pass::flush: a message to node " + std::to_string(peer)
                                           : std::string("gate_pass::flush: a message"));
        return true;
    }
    void leave() noexcept {
        if (lane_ != nullptr) core_->leave(*std::exchange(lane_, nullptr));
    }

    std::shared_ptr<detail::gate_core> core_;
    Over* over_;
    detail::gate_lane* lane_;
};

/// A way for other threads to the connections of this one: each takes a `pass`, by which it sends and calls. `Over` is a `calls`, `node_calls`,
/// `endpoint` or `node`.
///
/// Each pass has a bounded room for its messages; putting one there takes no lock and allocates nothing. The gate's thread takes
/// what all have put when it comes to it, in turns, and sends each peer's in their order: many go to the network together without being asked.
/// A peer that takes nothing leaves room for all others, in each thread. A thread that ends in the middle of a message has put nothing.
///
/// Made and destroyed on the scheduler of `over`, before `over` is; passes may outlive it. Destroying it ends what has not been sent, all
/// calls and all that wait, with `errc::closed`: let the threads `flush` first.
///
///     rc::gate gate(peers);
///     std::jthread worker([pass = gate.pass()]() mutable {
///         pass.send(9, std::string_view("hello"), 7);
///         std::string colour = pass.call(9, kv::get, "colour").get();
///     });
template <class Over>
class gate {
    using way = detail::gate_way<Over>;

public:
    /// What a thread uses.
    using pass_type = gate_pass<Over>;

    /// Throws `errc::invalid_argument` for limits of 0.
    explicit gate(Over& over, const gate_options& options = {})
        : over_(over), core_(std::make_shared<core>(over, options)) {
        if (options.messages == 0 || options.message_bytes == 0)
            detail::throw_error(errc::invalid_argument, "gate: a limit of 0 lets no message through");
    }
    gate(const gate&) = delete;
    gate& operator=(const gate&) = delete;
    /// Ends the process with a message where its scheduler runs on another thread.
    ~gate() {
        detail::require_thread_of(&core_->port.owner(), "a gate of", "was destroyed");
        core_->end();
    }

    /// A way through for one thread. Any thread, as long as the gate lives. Throws `errc::closed` while it ends.
    [[nodiscard]] pass_type pass() { return pass_type(core_, over_); }
    /// The most passes that there were at a time: that is what it has memory for.
    [[nodiscard]] std::size_t lanes() { return core_->lanes(); }

private:
    /// Sends the messages of each peer, one after the other, by a task of its own.
    class core final : public detail::gate_core {
    public:
        core(Over& over, const gate_options& options) : gate_core(way::owner(over), options), over_(over) {}

    private:
        detail::gate_target* make_target(std::uint32_t peer) noexcept override {
            try {
                targets_.push_back(std::make_unique<detail::gate_target>());
                detail::gate_target& made = *targets_.back();
                port.begin(send_all(port, *this, made, peer), port.stop().get_token());
                return &made;
            } catch (const std::bad_alloc&) {
                return nullptr;
            }
        }
        static detail::child send_all(detail::child_owner&, core& self, detail::gate_target& from,
                                      std::uint32_t peer) {
            detail::status why{errc::closed};
            try {
                auto&& to = way::peer(self.over_, peer);
                window<decltype(to.send(std::declval<const const_buffers&>()))> sends(at_a_time);
                detail::gate_slot* under_way[at_a_time];
                std::size_t begun = 0;
                for (std::size_t ended = 0;;) {
                    // All that is there, so that the transport may send it together.
                    while (!sends.full()) {
                        detail::gate_slot* const slot = from.pop();
                        if (slot == nullptr) break;
                        under_way[begun++ % at_a_time] = slot;
                        const const_buffers inside(std::span<const std::byte>(slot->inside(), slot->bytes));
                        const const_buffers& bytes = slot->borrowed != nullptr ? *slot->borrowed : inside;
                        sends.start(to.send(bytes, slot->tag));
                    }
                    if (sends.empty()) {
                        co_await from.news.wait();
                        continue;
                    }
                    const auto sent = co_await as_result(sends.next());
                    detail::status failed(sent.error());
                    if (failed && self.port.stop().stop_requested()) failed = errc::closed;
                    detail::gate_slot& slot = *under_way[ended++ % at_a_time];
                    slot.lane->give_back(slot, failed);
                }
            } catch (const std::system_error& failed) {
                if (failed.code() != errc::canceled) why = failed.code();
            }
            from.over = why;
            from.give_all_back(why);
        }

        /// Of one peer's.
        static constexpr std::size_t at_a_time = 64;

        Over& over_;
        std::vector<std::unique_ptr<detail::gate_target>> targets_;
    };

    Over& over_;
    std::shared_ptr<core> core_;
};

}  // namespace rdmacoro
