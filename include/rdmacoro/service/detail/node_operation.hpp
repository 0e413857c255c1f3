// node_operation: a send or receive of another node's, over whichever transport carries its messages.
#pragma once

#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/detail/node_state.hpp>

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

namespace rdmacoro::detail {

/// The user's operation, whichever endpoint carries it out.
struct node_send {
    using value_type = void;
    static constexpr bool receives = false;
    static constexpr const char* name = "send";

    template <class T>
    using operation = send_operation<typename endpoint<T>::connection_type>;
    template <class T>
    [[gnu::always_inline]] operation<T> on(endpoint<T>& over) const noexcept {
        return synchronous ? over.ssend(from, tag) : over.send(from, tag);
    }

    const_buffers from;
    tag_type tag;
    bool synchronous;
};
struct node_receive {
    using value_type = received;
    static constexpr bool receives = true;
    static constexpr const char* name = "recv";

    template <class T>
    using operation = receive_operation<typename endpoint<T>::connection_type>;
    template <class T>
    [[gnu::always_inline]] operation<T> on(endpoint<T>& over) const noexcept {
        mutable_buffers here = into;
        return over.recv(here, wanted);
    }

    mutable_buffers into;
    tag_match wanted;
};
struct node_lent_receive {
    using value_type = message;
    static constexpr bool receives = true;
    static constexpr const char* name = "recv_lent";

    template <class T>
    using operation = lent_receive_operation<typename endpoint<T>::connection_type>;
    template <class T>
    [[gnu::always_inline]] operation<T> on(endpoint<T>& over) const noexcept {
        return over.recv_lent(wanted);
    }

    tag_match wanted;
};

/// Where there is a connection and the operation ends at once, that is all that happens: the transport is chosen by comparing a
/// number. An operation that waits, for a connection or for the peer, does so in a coroutine, with a frame of the pool.
template <class Request, transport... Ts>
class [[nodiscard]] node_operation {
    using state = node_state<Ts...>;
    template <class T>
    using operation = typename Request::template operation<T>;
    template <std::size_t I>
    using operation_at = operation<std::tuple_element_t<I, std::tuple<Ts...>>>;

public:
    using value_type = typename Request::value_type;

    /// `what`: the members of the request, in order.
    template <class... What>
    node_operation(const counted_ptr<node_peer>& to, What&&... what) noexcept
        : peer_(to), what_{static_cast<What&&>(what)...} {}
    /// Only before it is awaited.
    node_operation(node_operation&& other) noexcept : peer_(std::move(other.peer_)), what_(other.what_) {}
    ~node_operation() { drop(); }

    void bind(const environment& env) noexcept { env_ = env; }

    bool await_ready() {
        if (!peer_) [[unlikely]] {
            waiting_ = of_nothing();
            waiting_.bind(env_);
            return false;
        }
        node_record* const open = peer_->open();
        if (open == nullptr || !in_turn().empty() || (Request::receives && !peer_->plain_receives))
            [[unlikely]]
            return wait_for_connection();
        open->stamp = ++peer_->core->uses;
        ++open->operations;
        return state::with_endpoint(*open, [this, open](auto& over) { return this->begin(*open, over); });
    }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> awaiting) {
        waiter_.emplace(std::move(waiting_).operator co_await());
        return waiter_->await_suspend(awaiting);
    }
    value_type await_resume() {
        if (waiter_) return waiter_->await_resume();
        return take<0>();
    }

private:
    static constexpr std::size_t none = sizeof...(Ts);
    static constexpr std::size_t room = [] {
        std::size_t most = 0;
        ((most = std::max(most, sizeof(operation<Ts>))), ...);
        return most;
    }();
    static constexpr std::size_t alignment = [] {
        std::size_t most = 0;
        ((most = std::max(most, alignof(operation<Ts>))), ...);
        return most;
    }();

    template <std::size_t I>
    [[nodiscard, gnu::always_inline]] operation_at<I>& held() noexcept {
        return *std::launder(reinterpret_cast<operation_at<I>*>(room_));
    }
    template <class T>
    [[gnu::always_inline]] operation<T>& make(endpoint<T>& over) noexcept {
        auto* const made = ::new (static_cast<void*>(room_)) operation<T>(what_.on(over));
        index_ = index_in<T>();
        return *made;
    }
    template <class T>
    static constexpr std::size_t index_in() {
        std::size_t at = 0;
        static_cast<void>((... || (std::is_same_v<T, Ts> || (++at, false))));
        return at;
    }
    template <std::size_t I = 0>
    [[gnu::always_inline]] void drop() noexcept {
        if constexpr (I < sizeof...(Ts)) {
            if (index_ != I) return drop<I + 1>();
            std::destroy_at(&held<I>());
            index_ = none;
        }
    }

    template <class T>
    [[gnu::always_inline]] bool begin(node_record& over, endpoint<T>& with) {
        operation<T>& made = make(with);
        made.bind(env_);
        if (made.await_ready()) [[likely]] {
            born_ = over.born;
            return true;
        }
        return wait_for_end<index_in<T>()>(over);
    }
    template <std::size_t I>
    [[gnu::noinline]] bool wait_for_end(node_record& over) {
        try {
            waiting_ = finish<I>(this, counted_ptr<node_record>(&over));
        } catch (const std::bad_alloc&) {
            end_unawaited(held<I>());
            throw;
        }
        waiting_.bind(env_);
        return false;
    }
    /// The operations of its kind that wait for a connection.
    [[nodiscard]] node_turn::list& in_turn() const noexcept {
        return Request::receives ? peer_->receives : peer_->sends;
    }
    [[gnu::noinline]] bool wait_for_connection() {
        waiting_ = again(this, 0);
        waiting_.bind(env_);
        return false;
    }
    /// It ended at once.
    template <std::size_t I>
    [[gnu::always_inline]] value_type take() {
        if constexpr (I + 1 < sizeof...(Ts)) {
            if (index_ != I) return take<I + 1>();
        }
        try {
            return held<I>().await_resume();
        } catch (const error& why) {
            rethrow(why, born_);
        }
    }
    [[noreturn, gnu::cold]] void rethrow(const error& why, generation born) const {
        std::string context = node_text(peer_->id, born);
        if (const std::string inner = why.context(); !inner.empty()) context += ": " + inner;
        throw error(why.code(), context, why.facts());
    }

    /// Waits for the end of the operation that has begun over `over`.
    template <std::size_t I>
    static task<value_type> finish(node_operation* self, counted_ptr<node_record> over) {
        const node_use use(over);
        std::optional<error> failed;
        try {
            if constexpr (std::is_void_v<value_type>) {
                co_await self->template held<I>();
                co_return;
            } else {
                co_return co_await self->template held<I>();
            }
        } catch (const error& why) {
            failed.emplace(why);
        }
        self->drop();
        const std::error_code why = failed->code();
        const bool ended = why == errc::closed || why == errc::peer_lost || why == errc::protocol_violation;
        if (ended && over->kept) {
            // It has no message that is wanted: what comes is of a later connection.
            co_return co_await again(self, over->number);
        }
        // Nothing was lost: what this asks for goes over the next connection.
        if (why == errc::closed && over->closed_idle()) co_return co_await again(self, 0);
        if (ended && Request::receives) {
            over->told = true;
            const std::error_code lost = self->peer_->lost;
            if (lost && lost != errc::no_resources && self->peer_->lost_born == over->born) {
                self->peer_->lost = {};
                self->peer_->see_receives();
            }
        }
        self->rethrow(*failed, over->born);
    }
    /// Waits for a connection, and does it there.
    static task<value_type> again(node_operation* self, std::uint64_t after) {
        // One that a former connection had no message for is before all others already.
        std::optional<node_turn> turn;
        if (after == 0) turn.emplace(self->in_turn());
        counted_ptr<node_record> over;
        for (;;) {
            over = co_await node_core::connected(self->peer_, Request::receives, after);
            if (!turn || turn->is_first()) break;
            co_await turn->comes.wait();
        }
        turn.reset();  // the next one is resumed after this one has begun
        over->stamp = ++self->peer_->core->uses;
        ++over->operations;
        task<value_type> rest = state::with_endpoint(*over, [self, &over](auto& with) {
            self->make(with);
            return rest_over(self, with, over);
        });
        co_return co_await std::move(rest);
    }
    template <class T>
    static task<value_type> rest_over(node_operation* self, endpoint<T>&, counted_ptr<node_record> over) {
        return finish<index_in<T>()>(self, std::move(over));
    }
    static task<value_type> of_nothing() {
        throw error(errc::invalid_argument, "node: a peer that was default-constructed or moved from");
        co_return co_await of_nothing();  // never reached: it makes this a coroutine
    }

    counted_ptr<node_peer> peer_;
    Request what_;
    environment env_{};
    generation born_{};
    std::size_t index_ = none;
    task<value_type> waiting_{};
    std::optional<typename task<value_type>::awaiter> waiter_{};
    alignas(alignment) std::byte room_[room];
};

}  // namespace rdmacoro::detail
