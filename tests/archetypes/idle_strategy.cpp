// The least that models idle::strategy: what a scheduler asks of it, and nothing more.

#include <rdmacoro/coro/scheduler.hpp>

namespace {

class least_strategy {
public:
    least_strategy() = delete;
    explicit least_strategy(int) {}
    least_strategy(least_strategy&&) = default;
    least_strategy& operator=(least_strategy&&) = delete;

    rdmacoro::idle::action next(rdmacoro::clock&) noexcept { return rdmacoro::idle::action::yield; }
    void progress() noexcept {}
};

static_assert(rdmacoro::idle::strategy<least_strategy>);
static_assert(rdmacoro::idle::strategy<rdmacoro::idle::spin>);
static_assert(rdmacoro::idle::strategy<rdmacoro::idle::yield>);
static_assert(rdmacoro::idle::strategy<rdmacoro::idle::adaptive>);

struct may_throw {
    rdmacoro::idle::action next(rdmacoro::clock&) { return rdmacoro::idle::action::yield; }
    void progress() noexcept {}
};
struct says_nothing {
    void next(rdmacoro::clock&) noexcept {}
    void progress() noexcept {}
};
struct never_told {
    rdmacoro::idle::action next(rdmacoro::clock&) noexcept { return rdmacoro::idle::action::yield; }
};
static_assert(!rdmacoro::idle::strategy<may_throw>);
static_assert(!rdmacoro::idle::strategy<says_nothing>);
static_assert(!rdmacoro::idle::strategy<never_told>);

[[maybe_unused]] bool runs() {
    rdmacoro::scheduler on(least_strategy(1));
    return on.turn();
}

}  // namespace
