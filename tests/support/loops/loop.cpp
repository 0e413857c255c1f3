// The scheduler's own loop, and a bare one of epoll.

#include "support/loop.hpp"

#include <rdmacoro/coro/coro.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

namespace rdmacoro::test {

constinit loop_maker make_asio_loop = nullptr;

namespace {

template <class Idle>
class own_loop final : public test_loop {
public:
    explicit own_loop(Idle strategy) : on_(std::move(strategy)) {}
    scheduler& on() noexcept override { return on_; }
    void drive(task<> main, std::stop_token stop) override { on_.run(std::move(main), std::move(stop)); }
    [[nodiscard]] std::uint64_t waits() const noexcept override { return 0; }

private:
    scheduler on_;
};

template <class Idle>
class epoll_loop final : public test_loop {
public:
    explicit epoll_loop(Idle strategy) : on_(std::move(strategy)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
        epoll_event wanted{};
        wanted.events = EPOLLIN;
        if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, on_.descriptor(), &wanted) != 0)
            throw std::runtime_error("no instance of epoll");
    }
    ~epoll_loop() override { ::close(epoll_); }

    scheduler& on() noexcept override { return on_; }
    void drive(task<> main, std::stop_token stop) override {
        using namespace std::chrono_literals;
        constexpr duration patience = 20s;
        auto running = on_.start(std::move(main), std::move(stop));
        auto moved = std::chrono::steady_clock::now();
        while (!running.done()) {
            if (on_.poll()) {
                moved = std::chrono::steady_clock::now();
                continue;
            }
            if (std::chrono::steady_clock::now() - moved > patience)
                rdmacoro::detail::fatal("nothing has moved for 20 s: the test waits for something that never "
                                        "comes, or a wake-up was lost");
            const duration limit = std::min(on_.prepare_to_wait(), patience);
            if (limit == duration::zero()) {
                ::sched_yield();
                continue;
            }
            ++waits_;
            epoll_event came{};
            const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
            ::epoll_wait(epoll_, &came, 1, static_cast<int>(milliseconds));
        }
        running.get();
    }
    [[nodiscard]] std::uint64_t waits() const noexcept override { return waits_; }

private:
    scheduler on_;
    int epoll_;
    std::uint64_t waits_ = 0;
};

}  // namespace

std::string_view loop_name() {
    const char* const said = std::getenv("RDMACORO_TEST_LOOP");
    const std::string_view name = said != nullptr ? said : "own";
    if (name != "own" && name != "epoll" && name != "asio")
        throw std::runtime_error("RDMACORO_TEST_LOOP: own, epoll or asio, not " + std::string(name));
    if (name == "asio" && make_asio_loop == nullptr)
        throw std::runtime_error("RDMACORO_TEST_LOOP=asio: this program is made without Asio");
    return name;
}

std::unique_ptr<test_loop> make_loop(any_idle strategy) {
    const std::string_view name = loop_name();
    if (name == "asio") return make_asio_loop(std::move(strategy));
    return std::visit(
        [&]<class Idle>(Idle chosen) -> std::unique_ptr<test_loop> {
            if (name == "epoll") return std::make_unique<epoll_loop<Idle>>(std::move(chosen));
            return std::make_unique<own_loop<Idle>>(std::move(chosen));
        },
        std::move(strategy));
}

}  // namespace rdmacoro::test
