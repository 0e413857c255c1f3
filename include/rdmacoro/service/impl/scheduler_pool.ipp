// The threads of a pool.
#pragma once

#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/scheduler_pool.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace rdmacoro {

namespace detail {

class scheduler_pool_state {
public:
    /// Its scheduler is made by the thread that makes the pool, and run by its own.
    struct worker {
        scheduler on;
        task_port port{on};
        std::atomic<std::size_t> handlers{0};  // were given to it and have not ended
        event over;
        struct end_node : posted_node {
            event* over = nullptr;
        } end;
        std::thread runs;

        void begin() {
            end.over = &over;
            end.call = [](posted_node& node) noexcept { static_cast<end_node&>(node).over->set(); };
            // Made here, where a lack of memory is an error of the pool's constructor.
            runs = std::thread([this, running = until_over(*this)]() mutable {
                on.run(std::move(running));
                port.close();
                port.join();
            });
        }
        static task<> until_over(worker& self) { co_await self.over.wait(); }
    };

    explicit scheduler_pool_state(std::size_t threads) {
        try {
            for (std::size_t n = 0; n < threads; ++n) {
                workers_.push_back(std::make_unique<worker>());
                workers_.back()->begin();
            }
        } catch (const std::system_error& failed) {
            stop_begun();
            throw error(errc::no_resources, "scheduler_pool: a thread: " + failed.code().message());
        } catch (...) {
            stop_begun();
            throw;
        }
    }
    scheduler_pool_state(const scheduler_pool_state&) = delete;
    scheduler_pool_state& operator=(const scheduler_pool_state&) = delete;
    ~scheduler_pool_state() = default;

    void stop() noexcept {
        for (const auto& one : workers_) {
            if (one->runs.get_id() == std::this_thread::get_id())
                fatal("a scheduler_pool was destroyed by a handler that runs on it");
        }
        for (const auto& one : workers_) one->on.post(one->end);
        for (const auto& one : workers_) one->runs.join();
    }
    /// The one that has the fewest handlers.
    [[nodiscard]] worker& choose() noexcept {
        const std::size_t first = next_.fetch_add(1, std::memory_order_relaxed);
        worker* best = nullptr;
        std::size_t fewest = 0;
        for (std::size_t n = 0; n < workers_.size(); ++n) {
            worker& one = *workers_[(first + n) % workers_.size()];
            const std::size_t handlers = one.handlers.load(std::memory_order_relaxed);
            if (best != nullptr && handlers >= fewest) continue;
            best = &one;
            fewest = handlers;
        }
        return *best;
    }
    [[nodiscard]] const std::vector<std::unique_ptr<worker>>& workers() const noexcept { return workers_; }

private:
    /// Where the last worker, perhaps, has no thread.
    void stop_begun() noexcept {
        if (!workers_.empty() && !workers_.back()->runs.joinable()) workers_.pop_back();
        stop();
    }

    std::vector<std::unique_ptr<worker>> workers_;
    std::atomic<std::size_t> next_{0};
};

RDMACORO_DECL pool_place::pool_place(scheduler_pool_state& among) noexcept {
    auto& chosen = among.choose();
    chosen.handlers.fetch_add(1, std::memory_order_relaxed);
    port_ = &chosen.port;
    handlers_ = &chosen.handlers;
}

}  // namespace detail

RDMACORO_COLD scheduler_pool::scheduler_pool(std::size_t threads) {
    if (threads == 0)
        detail::throw_error(errc::invalid_argument, "scheduler_pool: a pool has a thread at least");
    state_ = std::make_shared<detail::scheduler_pool_state>(threads);
}
RDMACORO_COLD scheduler_pool::~scheduler_pool() { state_->stop(); }
RDMACORO_COLD std::size_t scheduler_pool::size() const noexcept { return state_->workers().size(); }
RDMACORO_COLD std::size_t scheduler_pool::running() const noexcept {
    std::size_t all = 0;
    for (const auto& one : state_->workers()) all += one->port.running();
    return all;
}
RDMACORO_COLD std::optional<duration> pool_context::remaining() const noexcept {
    if (!due_) return {};
    return std::max(*due_ - detail::monotonic_now(), duration::zero());
}

}  // namespace rdmacoro
