// gate: any thread sends and calls through the connections of one thread.
#pragma once

#include <rdmacoro/coro/detail/owner_check.hpp>
#include <rdmacoro/service/detail/gate_core.hpp>
#include <rdmacoro/service/detail/gate_entry.hpp>
#include <rdmacoro/service/detail/gate_put.hpp>
#include <rdmacoro/service/detail/gate_sender.hpp>
#include <rdmacoro/service/detail/gate_way.hpp>
#include <rdmacoro/service/detail/remote_task.hpp>
#include <rdmacoro/service/gate_call.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <variant>

namespace rdmacoro {

/// One thread's way through a gate. Made by `gate::pass`, on any thread, and used by one thread at a time. May outlive the gate: then
/// everything ends with `errc::closed`. Outlives its own calls.
///
/// `Over` is what the gate leads through: `node_calls` and `node` have peers by their ids, and each function takes the id first;
/// `calls` and `endpoint` have one peer, and it is left out.
template <class Over>
class gate_pass {
    using way = detail::gate_way<Over>;
    struct long_message {
        Over* over;
        std::uint32_t to;
        const_buffers from;
        tag_type tag;
        auto operator()() { return way::peer(*over, to).send(std::as_const(from), tag); }
    };
    using put_long = detail::remote_task<void, long_message, detail::gate_entry>;

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
    /// Its puts are sent all the same.
    ~gate_pass() { leave(); }

    /// Puts a message into the gate, by a copy, and returns: it is sent in its turn, behind what this pass has put for the same peer. Where that
    /// peer has its share of the thread's room, it sleeps until some of it was sent. A message that is longer than
    /// `gate_options::message_bytes` is not copied: it returns when the message has been sent, or throws why it was not. Throws `errc::closed`
    /// where the gate has ended, and `errc::invalid_argument` where it would have to sleep on the gate's own thread. Other errors of
    /// sending come with `flush`.
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

    /// The operation of `put`. Described at `put`.
    class [[nodiscard]] put_operation {
    public:
        using value_type = void;

        /// For `gate_pass`.
        put_operation(Over& over, detail::gate_lane& in, std::uint32_t to, const const_buffers& from,
                      tag_type tag) {
            if (from.size() <= in.message_bytes()) {
                way_.template emplace<detail::gate_put>(in, to, from, tag);
            } else {
                way_.template emplace<put_long>(in.port(), make_error_code(errc::closed),
                                                long_message{&over, to, from, tag},
                                                detail::gate_entry(in, to));
            }
        }
        void bind(const environment& env) noexcept {
            visit([&](auto& one) { one.bind(env); });
        }
        bool await_ready() noexcept {
            return visit([](auto& one) { return one.await_ready(); });
        }
        void await_suspend(std::coroutine_handle<> awaiting) noexcept {
            visit([&](auto& one) { one.await_suspend(awaiting); });
        }
        [[nodiscard]] bool ended_at_once() const noexcept {
            return visit_of(*this, [](const auto& one) { return one.ended_at_once(); });
        }
        void await_resume() {
            visit([](auto& one) { one.await_resume(); });
        }
        [[nodiscard]] result<void> take_result() noexcept {
            return visit([](auto& one) { return one.take_result(); });
        }

    private:
        template <class Self, class F>
        static decltype(auto) visit_of(Self& self, F&& f) {
            if (self.way_.index() == 1) return f(*std::get_if<1>(&self.way_));
            return f(*std::get_if<2>(&self.way_));
        }
        template <class F>
        decltype(auto) visit(F&& f) {
            return visit_of(*this, static_cast<F&&>(f));
        }

        std::variant<std::monostate, detail::gate_put, put_long> way_;
    };

    /// Awaitable. For coroutines of this thread's scheduler: as `send`, and the thread goes on where that sleeps.
    /// Completes: when the message is in the gate, copied; one that is longer than `gate_options::message_bytes`: when it has been sent.
    /// Buffers: borrowed until then.
    /// Concurrency: any number at a time; those for one peer go into the gate in the order in which they begin.
    /// Errors: `errc::closed` where the gate has ended, or ends; of a long message those of `endpoint::send` and `node_peer::send`. Others come
    ///     with `flushed` or `flush`.
    /// Cancellation: at any time; a message that was copied is sent.
    /// Example:
    ///     co_await pass.put(9, rc::bytes_of(number), 7);
    template <class Buffers = const_buffers>
        requires(way::by_id && detail::sendable<Buffers>)
    [[nodiscard]] detail::operation_on<put_operation, Buffers> put(node_id to, Buffers&& from,
                                                                   tag_type tag = 0) {
        return {*over_, lane(), to, detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag};
    }
    /// The same to the one peer of the gate.
    template <class Buffers = const_buffers>
        requires(!way::by_id && detail::sendable<Buffers>)
    [[nodiscard]] detail::operation_on<put_operation, Buffers> put(Buffers&& from, tag_type tag = 0) {
        return {*over_, lane(), 0, detail::as_buffers<const_buffers>(static_cast<Buffers&&>(from)), tag};
    }

    /// Awaitable. For coroutines of this thread's scheduler: as `flush`, and the thread goes on where that sleeps.
    /// Completes: when everything that this pass has put was sent.
    /// Buffers: none.
    /// Concurrency: any number at a time.
    /// Errors: the first error since the last `flushed` or `flush`, with the peer in its text, a node with its generation; `errc::closed` where the gate has ended before.
    /// Cancellation: at any time.
    /// Example:
    ///     co_await pass.flushed();
    [[nodiscard]] task<> flushed() {
        detail::gate_lane& over = lane();
        co_await detail::gate_flush(over);
        throw_failed(over);
    }

    /// Sleeps until everything that this pass has put was sent, as `endpoint::send` completes. Throws the first error since the last
    /// time, with the peer in its text, a node with its generation: the messages that failed are lost, others were sent. Throws `errc::closed` where the gate has ended before,
    /// and `errc::invalid_argument` where it has to wait on the gate's own thread.
    void flush() {
        if (!flush_for(time_point::max())) detail::throw_error(errc::closed, "gate_pass::flush");
    }
    /// The same with a limit: false where it has passed.
    [[nodiscard]] bool flush(duration limit) {
        if (flush_for(detail::deadline_after(detail::monotonic_now(), limit))) return true;
        if (lane().port().closed()) detail::throw_error(errc::closed, "gate_pass::flush");
        return false;
    }

    /// Awaitable.
    /// Ends with the method's result: as `calls::call` and `node_calls::call`, with their arguments. Awaited by a coroutine of this thread's
    /// scheduler, which is resumed there; a thread without one uses `get`.
    /// Completes: when the peer has answered.
    /// Buffers: as `calls::call`: variables among the arguments are borrowed until then, temporaries moved in.
    /// Concurrency: any number at a time; what a pass has put before a call begins is sent before it. A call that finds no room in the gate waits for it.
    /// Errors: as `calls::call`; `errc::closed` where the gate has ended, or ends.
    /// Cancellation: as `calls::call`; it ends when the gate's thread knows of it. Destroying one that a thread without a
    ///     scheduler has begun cancels it, and waits for that.
    /// Example:
    ///     std::string colour = pass.call(9, kv::get, "colour").get(2ms);
    template <class... Args>
        requires(!way::by_id &&
                 requires(Over& over, Args&&... args) { over.call(static_cast<Args&&>(args)...); })
    [[nodiscard]] auto call(Args&&... args) {
        return through(0, over_->call(static_cast<Args&&>(args)...));
    }
    /// The same to one of many peers.
    template <class... Args>
        requires(way::by_id && requires(Over& over, node_id to,
                                        Args&&... args) { over.call(to, static_cast<Args&&>(args)...); })
    [[nodiscard]] auto call(node_id to, Args&&... args) {
        return through(to, over_->call(to, static_cast<Args&&>(args)...));
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
        return through(0, over_->call_into(static_cast<Args&&>(args)...));
    }
    /// The same to one of many peers.
    template <class... Args>
        requires(way::by_id && requires(Over& over, node_id to,
                                        Args&&... args) { over.call_into(to, static_cast<Args&&>(args)...); })
    [[nodiscard]] auto call_into(node_id to, Args&&... args) {
        return through(to, over_->call_into(to, static_cast<Args&&>(args)...));
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
        return through(0, over_->cast(static_cast<Args&&>(args)...));
    }
    /// The same to one of many peers.
    template <class... Args>
        requires(way::by_id && requires(Over& over, node_id to,
                                        Args&&... args) { over.cast(to, static_cast<Args&&>(args)...); })
    [[nodiscard]] auto cast(node_id to, Args&&... args) {
        return through(to, over_->cast(to, static_cast<Args&&>(args)...));
    }

    /// Whether the gate has ended.
    [[nodiscard]] bool closed() const noexcept { return core_ == nullptr || core_->port.closed(); }

private:
    using put_result = detail::gate_lane::put_result;

    template <class Op>
    [[nodiscard]] auto through(std::uint32_t to, Op&& op) {
        auto make = [op = std::move(op)]() mutable { return std::move(op); };
        return gate_call<typename Op::value_type, decltype(make)>(lane(), to, std::move(make));
    }
    [[nodiscard]] detail::gate_lane& lane() const {
        if (lane_ == nullptr) detail::throw_error(errc::invalid_argument, "gate_pass: it was moved from");
        return *lane_;
    }
    [[gnu::cold]] void check_thread(const char* what) const {
        if (core_->port.belongs_here())
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
        const put_result got = over.put(over.flow(to), from, tag);
        if (got == put_result::closed) [[unlikely]]
            detail::throw_error(errc::closed, "gate_pass::try_send: the gate has ended");
        return got == put_result::done;
    }
    void put_or_wait(std::uint32_t to, const const_buffers& from, tag_type tag) {
        detail::gate_lane& over = lane();
        if (from.size() > over.message_bytes()) [[unlikely]]
            return lend_and_wait(to, from, tag);
        detail::gate_flow& flow = over.flow(to);
        for (;;) {
            const put_result got = over.put(flow, from, tag);
            if (got == put_result::done) [[likely]]
                return;
            wait_for_room(got, flow);
        }
    }
    [[gnu::noinline]] void lend_and_wait(std::uint32_t to, const const_buffers& from, tag_type tag) {
        check_thread("gate_pass::send");
        detail::gate_lane& over = lane();
        detail::gate_flow& flow = over.flow(to);
        detail::gate_loan loan(from);
        for (;;) {
            const put_result got = over.lend(flow, loan, tag);
            if (got == put_result::done) break;
            wait_for_room(got, flow);
        }
        over.wait_until_back(loan);
        if (loan.failed) throw_failure("gate_pass::send", std::error_code(loan.failed), to, loan.why);
    }
    [[gnu::noinline]] void wait_for_room(put_result why, detail::gate_flow& flow) {
        if (why == put_result::full) check_thread("gate_pass::send");
        if (why == put_result::closed || (!lane().wait_for_room(flow, time_point::max()) && closed()))
            detail::throw_error(errc::closed, "gate_pass::send: the gate has ended");
    }
    bool flush_for(time_point until) {
        detail::gate_lane& over = lane();
        if (!over.all_back()) {
            check_thread("gate_pass::flush");
            if (!over.wait_until_back(until)) return false;
        }
        throw_failed(over);
        return true;
    }
    static void throw_failed(detail::gate_lane& of) {
        std::uint32_t peer = 0;
        std::exception_ptr why;
        if (const std::error_code failed = of.take_error(peer, why))
            throw_failure("gate_pass::flush", failed, peer, why);
    }
    /// With the text of the send's own error, where it had one: that names a node with its generation.
    [[noreturn, gnu::cold]] static void throw_failure(const char* where, const std::error_code& code,
                                                      std::uint32_t peer, const std::exception_ptr& why) {
        std::string text(where);
        text += ": a message";
        try {
            if (why) std::rethrow_exception(why);
        } catch (const error& failed) {
            if (const std::string own = failed.context(); !own.empty())
                throw error(code, text + ": " + own, failed.facts());
        } catch (...) {}
        if constexpr (way::by_id) text += " to node " + std::to_string(peer);
        throw error(code, text);
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
/// Each pass has a bounded room for its messages, a ring of its own in ordinary memory; putting one there takes no lock, and allocates nothing
/// once there is a record of the peer: a pass keeps those of as many peers as it has slots. The gate's thread takes what all have put when it
/// comes to it, in turns, and sends each peer's in their order: many go to the network together without being asked.
/// A peer that takes nothing leaves room for all others, in each thread. A thread that ends in the middle of a message has put nothing.
///
/// Made and destroyed on the scheduler of `over`, before `over` is; passes may outlive it. Destroying it ends what has not been sent, all
/// calls and all that wait, with `errc::closed`: let the threads `flush` first.
///
/// The gate's thread does not join one that waits for an answer, which would come by it: it awaits its end first, as here, also where
/// something throws meanwhile. examples/worker_pool.cpp has many threads, and what goes wrong in them.
///
///     rc::gate gate(peers);
///     rc::event ended;
///     std::jthread worker([&ended, &mine = *rc::scheduler::current(), pass = gate.pass()]() mutable {
///         try {
///             pass.send(9, std::string_view("hello"), 7);
///             std::string colour = pass.call(9, kv::get, "colour").get();
///         } catch (const std::exception&) {}  // such as: node 9 is lost
///         mine.post([&ended] { ended.set(); });
///     });
///     co_await ended.wait();
template <class Over>
class gate {
    using way = detail::gate_way<Over>;

public:
    /// The part of a thread.
    using pass_type = gate_pass<Over>;

    /// Throws `errc::invalid_argument` for limits of 0, and for more than 2,147,483,648 messages.
    explicit gate(Over& over, const gate_options& options = {})
        : over_(over), core_(std::make_shared<core>(over, options)) {
        if (options.messages == 0 || options.message_bytes == 0 || options.passes == 0)
            detail::throw_error(errc::invalid_argument, "gate: a limit of 0 lets no message through");
        if (options.message_bytes > 0xffffffff)
            detail::throw_error(errc::invalid_argument, "gate: messages of 4 GiB are not copied");
        if (options.messages > std::size_t{1} << 31)
            detail::throw_error(errc::invalid_argument, "gate: a pass holds 2,147,483,648 messages at most");
    }
    gate(const gate&) = delete;
    gate& operator=(const gate&) = delete;
    /// Ends the process with a message where its scheduler runs on another thread.
    ~gate() {
        detail::require_alive(&core_->port.owner(), "a gate");
        detail::require_thread_of(&core_->port.owner(), "a gate of", "was destroyed");
        core_->end();
        core_->forget_peers();
    }

    /// A way through for one thread. Any thread, as long as the gate lives. Throws `errc::closed` while it ends, `errc::no_resources` where
    /// there are `gate_options::passes`.
    [[nodiscard]] pass_type pass() { return pass_type(core_, over_); }
    /// What it has memory for: the most passes that there were at a time, with those that are gone and of which something is still on its way.
    [[nodiscard]] std::size_t lanes() { return core_->lanes(); }

private:
    /// Begins the sends of messages and the calls, in the order of each lane.
    class core final : public detail::gate_core {
    public:
        core(Over& over, const gate_options& options)
            : gate_core(way::owner(over), options, way::by_id), over_(over), senders_(*this) {}

        /// After the end, on the scheduler's thread: passes may keep this longer, and peers count their owners on that thread alone.
        void forget_peers() noexcept {
            if constexpr (way::by_id) known_.fill({});
        }

    private:
        using peer_type = decltype(way::peer(std::declval<Over&>(), 0));
        using operation =
            decltype(std::declval<peer_type>().send(std::declval<const const_buffers&>(), tag_type{}));

        unsigned serve(detail::gate_lane& lane, unsigned most) noexcept override {
            for (unsigned count = 0; count != most; ++count) {
                detail::gate_slot* const slot = lane.take();
                if (slot == nullptr) return count;
                if (slot->kind == detail::gate_slot::content::call) {
                    detail::remote_base& asked = *slot->call;
                    lane.give_back(*slot, {});
                    asked.begin_there();
                } else if (this->port.closed()) {
                    lane.give_back(*slot, errc::closed);
                } else {
                    send(*slot);
                }
            }
            return most;
        }
        void send(detail::gate_slot& slot) noexcept {
            try {
                if constexpr (way::by_id) {
                    // The peers that were sent to last are kept: finding one takes longer than a send.
                    const std::uint32_t id = slot.flow->peer;
                    peer_type& to = known_[id % known_.size()];
                    if (to.id() != id) to = way::peer(over_, id);
                    senders_.send(to, slot);
                } else {
                    senders_.send(way::peer(over_, 0), slot);
                }
            } catch (const std::system_error& failed) {
                const std::exception_ptr why = std::current_exception();
                slot.lane->give_back(slot, failed.code(), &why);
            } catch (...) {
                slot.lane->give_back(slot, errc::no_resources);
            }
        }

        struct nothing {};
        Over& over_;
        std::conditional_t<way::by_id, std::array<std::remove_reference_t<peer_type>, 64>, nothing> known_;
        detail::gate_senders<operation> senders_;
    };

    Over& over_;
    std::shared_ptr<core> core_;
};

}  // namespace rdmacoro
