// A scheduler inside an asio::io_context.

#include <rdmacoro/adapters/asio.hpp>

#include "support/loop.hpp"

#include <rdmacoro/coro/coro.hpp>

#include <chrono>
#include <exception>

namespace rdmacoro::test {

namespace {

/// Counts how often it parks.
template <class Idle>
struct counted_idle {
    idle::action next(clock& time) noexcept {
        const idle::action then = held.next(time);
        if (then == idle::action::park) ++*parks;
        return then;
    }
    void progress() noexcept { held.progress(); }
    Idle held;
    std::uint64_t* parks;
};

template <class Idle>
class asio_loop final : public test_loop {
public:
    explicit asio_loop(Idle strategy) : guest_(context_, counted_idle<Idle>{std::move(strategy), &waits_}) {
        // Asio allocates at its first waits, and keeps that memory for later ones: not while a case counts.
        for (int n = 0; n < 3; ++n) drive(sleeps(), {});
        waits_ = 0;
    }

    scheduler& on() noexcept override { return guest_.owner(); }
    void drive(task<> main, std::stop_token stop) override {
        using namespace std::chrono_literals;
        std::exception_ptr failure;
        bool ended = false;
        guest_.run(with_stop(std::move(main), std::move(stop)), [&](std::exception_ptr why) {
            failure = std::move(why);
            ended = true;
        });
        context_.restart();
        while (!ended) {
            if (context_.run_one_for(20s) == 0)
                rdmacoro::detail::fatal("no handler was called for 20 s: the test waits for something that "
                                        "never comes, or a wake-up was lost");
        }
        if (failure) std::rethrow_exception(failure);
    }
    [[nodiscard]] std::uint64_t waits() const noexcept override { return waits_; }

private:
    static task<> sleeps() { co_await sleep_for(std::chrono::microseconds(20)); }

    std::uint64_t waits_ = 0;
    asio::io_context context_{1};
    asio_guest guest_;
};

std::unique_ptr<test_loop> make(any_idle strategy) {
    return std::visit(
        []<class Idle>(Idle chosen) -> std::unique_ptr<test_loop> {
            if constexpr (std::is_same_v<Idle, impatient>) {
                return std::make_unique<asio_loop<idle::adaptive>>(
                    idle::adaptive(duration::zero(), duration::zero()));
            } else {
                return std::make_unique<asio_loop<Idle>>(std::move(chosen));
            }
        },
        std::move(strategy));
}

[[maybe_unused]] const bool linked = [] {
    make_asio_loop = make;
    return true;
}();

}  // namespace

}  // namespace rdmacoro::test
