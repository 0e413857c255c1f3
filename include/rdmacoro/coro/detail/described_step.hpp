// described_step: a step of the toolkit's own coroutines that is described as one operation, such as connecting.
#pragma once

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/detail/parked_wait.hpp>

#include <string>

namespace rdmacoro::detail {

/// The step lasts as long as the object, which lives in the coroutine's frame. `facts.more` must be empty.
class described_step final : public parked_wait {
public:
    described_step(scheduler& on, const wait_facts& facts, const std::string& peer)
        : peer_(peer), facts_(facts) {
        facts_.more = [](const parked_wait& of, pending_operation& into) {
            into.peer = static_cast<const described_step&>(of).peer_;
        };
        begin_step(on, facts_);
    }
    described_step(const described_step&) = delete;
    described_step& operator=(const described_step&) = delete;
    ~described_step() = default;

private:
    std::string peer_;
    wait_facts facts_;
};

}  // namespace rdmacoro::detail
