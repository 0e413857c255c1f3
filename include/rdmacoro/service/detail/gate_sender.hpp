// gate_senders: sends that have left a gate's lanes, as they begin one after the other and end in any order.
#pragma once

#include <rdmacoro/coro/start.hpp>
#include <rdmacoro/service/detail/gate_core.hpp>

#include <coroutine>
#include <cstddef>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// `Op` is the operation of a send. Each has a place here that is used again, and one that waits is ended by a coroutine of the place: nothing
/// is allocated once there are as many as were under way at a time. All must have ended before it is destroyed.
template <class Op>
class gate_senders {
    class place;

public:
    explicit gate_senders(gate_core& of) noexcept : core_(of) {}
    gate_senders(const gate_senders&) = delete;
    gate_senders& operator=(const gate_senders&) = delete;

    /// Sends what the slot has, by `peer.send`, and gives it back when that has ended. Throws `std::bad_alloc`; then it was not begun.
    template <class Peer>
    void send(Peer&& peer, gate_slot& slot) {
        place* one = free_;
        if (one == nullptr) {
            places_.push_back(std::make_unique<place>(*this));
            one = places_.back().get();
        } else {
            free_ = one->next;
        }
        one->send(peer, slot);
    }
    /// How many were under way at a time.
    [[nodiscard]] std::size_t places() const noexcept { return places_.size(); }

private:
    /// A coroutine that is resumed when an operation has ended, and else rests.
    struct ending {
        struct promise_type {
            ending get_return_object() noexcept {
                return {std::coroutine_handle<promise_type>::from_promise(*this)};
            }
            static std::suspend_always initial_suspend() noexcept { return {}; }
            static std::suspend_always final_suspend() noexcept { return {}; }
            static void return_void() noexcept {}
            static void unhandled_exception() noexcept { std::terminate(); }
        };
        std::coroutine_handle<promise_type> frame;
    };

    class place {
    public:
        explicit place(gate_senders& of) : among_(of), end_(ends(*this)) {}
        place(const place&) = delete;
        place& operator=(const place&) = delete;
        ~place() { end_.frame.destroy(); }

        template <class Peer>
        void send(Peer& peer, gate_slot& slot) noexcept {
            slot_ = &slot;
            gate_core& core = among_.core_;
            try {
                const const_buffers inside(std::span<const std::byte>(slot.inside(), slot.bytes));
                const const_buffers& bytes = slot.kind == gate_slot::content::lent ? slot.loan->from : inside;
                op_ = ::new (static_cast<void*>(room_)) Op(peer.send(bytes, slot.tag));
                op_->bind({&core.port.owner(), core.port.stop().get_token()});
                if constexpr (hot_startable<Op>) {
                    op_->begin();
                    if (op_->done()) return has_ended();
                    waits_ = true;
                    core.began();
                    if (op_->await_ready()) return has_ended();  // it was asked to stop
                    op_->await_suspend(end_.frame);
                } else {
                    if (op_->await_ready()) return has_ended();
                    waits_ = true;
                    core.began();
                    core.port.owner().resume_child(op_->await_suspend(end_.frame));
                }
            } catch (...) {
                const std::exception_ptr why = std::current_exception();
                give_back(code_of_current(), &why);
            }
        }

        place* next = nullptr;

    private:
        static ending ends(place& self) {
            for (;;) {
                self.has_ended();
                co_await std::suspend_always();
            }
        }
        void has_ended() noexcept {
            if constexpr (hot_startable<Op>) {
                give_back(status(op_->take_result().error()));
            } else {
                try {
                    op_->await_resume();
                } catch (...) {
                    const std::exception_ptr why = std::current_exception();
                    return give_back(code_of_current(), &why);
                }
                give_back({});
            }
        }
        void give_back(status failed, const std::exception_ptr* why = nullptr) noexcept {
            if (failed && among_.core_.port.stop().stop_requested()) {
                failed = errc::closed;
                why = nullptr;  // it tells of the cancellation
            }
            if (op_ != nullptr) std::destroy_at(std::exchange(op_, nullptr));
            gate_lane& lane = *slot_->lane;
            lane.give_back(*slot_, failed, why);
            next = std::exchange(among_.free_, this);
            if (std::exchange(waits_, false)) among_.core_.ended(lane);
        }
        [[gnu::cold]] static status code_of_current() noexcept {
            try {
                throw;
            } catch (const std::system_error& why) {
                return status(why.code());
            } catch (...) {
                return errc::no_resources;
            }
        }

        gate_senders& among_;
        ending end_;
        gate_slot* slot_ = nullptr;
        Op* op_ = nullptr;
        bool waits_ = false;
        alignas(Op) std::byte room_[sizeof(Op)];
    };

    gate_core& core_;
    place* free_ = nullptr;
    std::vector<std::unique_ptr<place>> places_;
};

}  // namespace rdmacoro::detail
