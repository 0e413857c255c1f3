// described_step: a step of the toolkit's own coroutines that is described as one operation, such as connecting.
#pragma once

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/detail/parked_wait.hpp>

#include <string>

namespace rdmacoro::detail {

/// The step lasts as long as the object, which lives in the coroutine's frame. `facts.more` must be empty.
class described_step final : public parked_wait {
public:
    /// `until`: when its time comes, if that is what it waits for.
    described_step(scheduler& on, const wait_facts& facts, const std::string& peer,
                   time_point until = time_point::max())
        : peer_(peer), facts_(facts), on_(&on), until_(until) {
        facts_.more = [](const parked_wait& of, pending_operation& into) {
            const auto& self = static_cast<const described_step&>(of);
            into.peer = self.peer_;
            if (self.until_ == time_point::max()) return;
            const time_point now = self.on_->now();
            into.left = self.until_ > now ? self.until_ - now : duration::zero();
        };
        begin_step(on, facts_);
    }
    described_step(const described_step&) = delete;
    described_step& operator=(const described_step&) = delete;
    ~described_step() = default;

private:
    std::string peer_;
    wait_facts facts_;
    scheduler* on_;
    time_point until_;
};

}  // namespace rdmacoro::detail
