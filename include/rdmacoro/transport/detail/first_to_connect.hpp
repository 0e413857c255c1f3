// first_to_connect: connecting to the addresses of a name, so that one that does not answer holds up no other (RFC 8305).
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/timeout.hpp>
#include <rdmacoro/coro/without_stop.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

namespace rdmacoro::detail {

/// So long an address has for itself before the next one is tried, too.
inline constexpr duration address_head_start = std::chrono::milliseconds(250);

/// Attempts that run, and what came of those that have ended.
template <class Made>
struct connect_race {
    Made best{};  // the first that is a connection, or the last that is none
    bool won = false;
    std::exception_ptr failure;  // the last attempt ended so
    std::size_t running = 0;
    event one_ended;
};

template <class Made, class Try>
task<> run_attempt(connect_race<Made>& in, Try& attempt, const inet_endpoint& to) {
    try {
        Made made = co_await attempt(to);
        if (!in.won) {
            in.won = made.connected();
            in.failure = nullptr;
            in.best = std::move(made);
        }
    } catch (...) {
        in.failure = std::current_exception();
    }
    --in.running;
    in.one_ended.set();
    in.one_ended.reset();
}

/// Ends with what the first `attempt(endpoint)` has made that is `connected()`, or, where none is, with what the last has: in their order, each
/// begun when the one before has failed, or after `address_head_start`. The others are canceled, and what they make is dropped. `all` is not
/// empty, and lives until then.
template <class Made, class Try>
task<Made> first_to_connect(const std::vector<inet_endpoint>& all, Try attempt) {
    if (all.size() == 1) co_return co_await attempt(all.front());
    connect_race<Made> race;
    std::error_code stopped;
    task_group attempts;
    for (std::size_t begun = 0; !race.won && !stopped;) {
        if (begun == all.size() && race.running == 0) break;
        if (begun != all.size()) {
            ++race.running;
            attempts.spawn(run_attempt<Made, Try>, std::ref(race), std::ref(attempt), std::cref(all[begun]));
            ++begun;
        }
        result<> waited;
        if (begun != all.size()) {
            waited = co_await as_result(timeout(race.one_ended.wait(), address_head_start));
        } else {
            waited = co_await as_result(race.one_ended.wait());
        }
        if (!waited && waited.error() != errc::timed_out) stopped = waited.error();
    }
    attempts.request_stop();
    co_await without_stop(attempts.join());
    if (!race.won && stopped) throw error(stopped, "connect: canceled");
    if (!race.won && race.failure) std::rethrow_exception(race.failure);
    co_return std::move(race.best);
}

}  // namespace rdmacoro::detail
