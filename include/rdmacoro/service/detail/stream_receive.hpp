// stream_receive: a receive of a stream, which a stop request ends without loss.
#pragma once

#include <rdmacoro/coro/detail/adaptor.hpp>
#include <rdmacoro/coro/timer.hpp>
#include <rdmacoro/protocol/requests.hpp>

namespace rdmacoro::detail {

/// Passes a stop request on at once while no message has met the receive, and else after a time, as a canceled receive loses a message
/// of which a part is there.
class patient_stop {
public:
    /// `delegated`: the link matches, and holds the receive from the beginning.
    patient_stop(receive_request& of, bool delegated, duration grace) noexcept
        : of_(of), delegated_(delegated), grace_(grace) {}
    patient_stop(const patient_stop&) = delete;
    patient_stop& operator=(const patient_stop&) = delete;
    ~patient_stop() { after_end(); }

    [[nodiscard]] environment bind(const environment& env) noexcept {
        owner_ = env.owner;
        around_ = env.stop;
        source_.belong_to(env.stop);
        if (around_.stop_requested()) source_.request_stop();
        return {env.owner, source_.get_token()};
    }
    static void before_begin() noexcept {}
    void before_wait() {
        if (around_.stop_requested()) {  // while it began: the receive is not attached to the source yet
            set_timer(duration::zero(),
                      [](timer_node& t) noexcept { static_cast<timer_hook&>(t).self->stopped(); });
            return;
        }
        stopped_.self = this;
        stopped_.attach(around_, [](local_stop_callback& hook) noexcept {
            static_cast<stop_hook&>(hook).self->stopped();
        });
    }
    void after_end() noexcept {
        stopped_.detach();
        if (timer_.queued()) owner_->remove_timer(timer_);
    }

    /// Whether it was canceled while its message came: that message is lost if the receive ended with `errc::canceled`.
    [[nodiscard]] bool gave_up() const noexcept { return gave_up_; }

private:
    struct stop_hook : local_stop_callback {
        patient_stop* self = nullptr;
    };
    struct timer_hook : timer_node {
        patient_stop* self = nullptr;
    };

    [[nodiscard]] bool comes() const noexcept {
        return of_.filling_ != nullptr &&
               !(delegated_ && of_.posted_.place == receive_request::stage::posted);
    }
    [[gnu::cold]] void stopped() noexcept {
        if (of_.done()) return;
        if (!comes()) return source_.request_stop();
        set_timer(grace_, [](timer_node& t) noexcept { static_cast<timer_hook&>(t).self->give_up(); });
    }
    void set_timer(duration after, timer_node::function expired) noexcept {
        timer_.self = this;
        timer_.expired = expired;
        timer_.deadline = deadline_after(owner_->now(), after);
        owner_->add_timer(timer_);
    }
    [[gnu::cold]] void give_up() noexcept {
        gave_up_ = !of_.done();
        source_.request_stop();
    }

    receive_request& of_;
    bool delegated_;
    bool gave_up_ = false;
    duration grace_;
    scheduler* owner_ = nullptr;
    local_stop_token around_;
    local_stop_source source_;  // the receive runs with its token
    stop_hook stopped_;
    timer_hook timer_;
};

/// A receive that ends with a result, and by a stop request only when that loses nothing, or `grace` later. Described at
/// `byte_stream::read_some`.
template <class Receive>
class stream_receive : public adaptor<Receive&, patient_stop> {
    using base = adaptor<Receive&, patient_stop>;

public:
    using value_type = result<typename Receive::value_type>;

    /// `of` lives until this has ended.
    stream_receive(Receive& of, bool delegated, duration grace) : base(of, of, delegated, grace) {}

    value_type await_resume() { return base::take_result(); }
    /// As `patient_stop::gave_up`, when it has ended.
    [[nodiscard]] bool gave_up() const noexcept { return this->hooks_.gave_up(); }
};

}  // namespace rdmacoro::detail
