// Steps of a program among the events of a simulated network.
#pragma once

#include <rdmacoro/transport/sim/actor.hpp>

#include <rdmacoro/transport/sim/world.hpp>

namespace rdmacoro {

RDMACORO_DECL void sim_step::start() noexcept {
    using detail::sim::event_key;
    using detail::sim::event_kind;
    hook_.self = this;
    hook_.key = event_key::of(event_kind::step, of_->number_, of_->steps_++);
    hook_.nodes = of_->at_->bit() | of_->also_;
    hook_.fire = [](detail::sim::event& e) noexcept { static_cast<hook&>(e).self->complete(); };
    owner_ = &of_->at_->owner();
    of_->at_->world().schedule(hook_, of_->at_->world().clock_now() + of_->at_->world().extra());
}

RDMACORO_DECL void sim_step::cancel() noexcept {
    of_->at_->world().unschedule(hook_);
    outcome_ = errc::canceled;
    complete();
}

}  // namespace rdmacoro
