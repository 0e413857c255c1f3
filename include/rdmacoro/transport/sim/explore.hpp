// explore: runs a small program over a simulated network in every order that the network may take.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/with_stop.hpp>
#include <rdmacoro/transport/sim/actor.hpp>
#include <rdmacoro/transport/sim/explorer.hpp>
#include <rdmacoro/transport/sim/wire.hpp>
#include <rdmacoro/transport/sim/world.hpp>

#include <concepts>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacoro {

/// How to explore.
struct explore_options {
    sim_world_options world{};                  ///< the network that is explored
    bool reduction = true;                      ///< orders that differ only in independent events are one
    std::uint64_t most_executions = 1'000'000;  ///< ends after so many executions, complete or not
    std::uint64_t most_steps = 100'000;         ///< of one execution; more are a livelock
    unsigned faults = 0;                  ///< of one execution; each kind the world's options give a chance
    std::uint64_t random_executions = 0;  ///< not 0: so many by chance, each with the next seed
    std::uint64_t seed = 1;               ///< of the first of them
    std::string replay{};                 ///< not empty: only this schedule
    std::string command{};                ///< that runs this test, for the report

    /// With the changes of the environment: RDMACORO_SIM_SCHEDULE replays one schedule, RDMACORO_SIM_SEED and RDMACORO_SIM_EXECUTIONS
    /// run by chance.
    [[nodiscard]] explore_options as_environment_says() const;
};

/// The result of an exploration.
struct explore_report {
    std::uint64_t executions = 0;         ///< that ran to their end
    std::uint64_t pruned = 0;             ///< begun and given up: all that was left had been seen
    std::uint64_t steps = 0;              ///< choices of an event, in all executions
    bool complete = false;                ///< every order was taken, or one like it
    bool failed = false;                  ///< whether an execution failed
    std::string failure{};                ///< the first
    std::vector<std::string> schedule{};  ///< its events, for people
    std::string replay{};                 ///< for `explore_options::replay`
    std::string command{};                ///< runs it again

    /// The whole report as text, for a test's message.
    [[nodiscard]] std::string text() const;
};

/// One execution, as its program sees it.
class exploration {
public:
    exploration(sim_world& world, detail::sim::explorer& decides, local_stop_source& stop) noexcept
        : world_(world), decides_(decides), stop_(stop) {}
    exploration(const exploration&) = delete;
    exploration& operator=(const exploration&) = delete;

    /// The network of this execution.
    [[nodiscard]] sim_world& world() noexcept { return world_; }
    /// From here on all orders are taken; before, there is one. To be called once everything is set up.
    void begin() noexcept {
        if (!over_) world_.set_chooser(&decides_);
    }
    /// From here on there is one order again.
    void end() noexcept { world_.set_chooser(nullptr); }
    /// The execution has failed; the first reason counts.
    void fail(std::string why) {
        if (failure_.empty()) failure_ = std::move(why);
    }
    /// The execution has failed, with that text, unless `good`.
    void check(bool good, std::string_view otherwise) {
        if (!good) fail(std::string(otherwise));
    }

    // ---- for `explore`

    /// The first failed check's text; empty: none failed.
    [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
    /// Ends everything the program waits for.
    void give_up(const char* why) noexcept;

private:
    static constexpr unsigned most_stuck = 1000;

    sim_world& world_;
    detail::sim::explorer& decides_;
    local_stop_source& stop_;
    std::string failure_;
    unsigned stuck_ = 0;
    bool over_ = false;
};

namespace detail::sim {

/// Called when nothing can happen.
class stuck_idle {
public:
    explicit stuck_idle(exploration& of) noexcept : of_(&of) {}
    idle::action next(clock&) noexcept {
        of_->give_up("deadlock: nothing can happen and the program has not ended");
        return idle::action::spin;
    }
    void progress() noexcept {}

private:
    exploration* of_;
};

template <class Program>
task<> explored(Program& program, exploration& x, local_stop_token stop) {
    try {
        co_await with_stop(program(x), stop);
    } catch (const std::exception& thrown) {
        x.fail(std::string("thrown: ") + thrown.what());
    }
    x.end();
}

}  // namespace detail::sim

/// Runs `program(exploration&)`, a task, again and again, each time in a fresh world on a fresh scheduler, until every
/// order of its events has been taken, a failure is found or a limit is reached. The program opens its domains in
/// `exploration::world`, sets everything up, calls `begin`, and has a `sim_actor` for each coroutine with steps to be
/// ordered with the network's. It fails by throwing, by `fail` and `check`, by a violation, and when it waits for ever.
///
/// Between two events every coroutine runs as far as it can. Events of different nodes are taken to be independent
/// unless one has to do with both: a get or put between them, the arrival of a message from memory that the sender has not back yet,
/// or any arrival where the writer's room is limited, its puts come before its messages, or a post may break the link. So the program's
/// parts at different nodes must not share state that matters.
///
/// Timers are no events, and events from `begin` on take no time. So a timer expires only when no event can happen, however short it is
/// (events that were due before `begin` still take their time): orders in which a time limit is over while an event can happen are not
/// among those that are taken. Let a step of an actor cancel instead.
template <class Program>
    requires std::same_as<std::invoke_result_t<Program&, exploration&>, task<>>
[[nodiscard]] explore_report explore(Program program, const explore_options& asked = {}) {
    using detail::sim::explorer;
    const explore_options options = asked.as_environment_says();
    explore_report report;
    const auto how = !options.replay.empty()          ? explorer::mode::replay
                     : options.random_executions != 0 ? explorer::mode::random
                                                      : explorer::mode::exhaustive;
    const auto execute = [&](explorer& decides, bool keeps_log, std::vector<std::string>* log) {
        sim_world_options of_world = options.world;
        of_world.violations_are_fatal = false;
        of_world.keeps_log = keeps_log;
        sim_world world(of_world);
        local_stop_source stop;
        decides.begin(options.most_steps);
        exploration x(world, decides, stop);
        {
            scheduler on{detail::sim::stuck_idle(x), world.time()};
            decides.when_endless([&] { on.post([&] { x.give_up("livelock: too many steps"); }); });
            on.run(detail::sim::explored(program, x, stop.get_token()));
        }
        if (!world.violations().empty()) x.fail(world.violations().front());
        if (log != nullptr) *log = world.log();
        return x.failure();
    };

    explorer decides(how, options.reduction, options.faults);
    if (how == explorer::mode::replay) decides.follow(options.replay);
    for (std::uint64_t n = 0;; ++n) {
        decides.seed(options.seed + n);
        const std::string failure = execute(decides, false, nullptr);
        report.steps += decides.steps();
        if (decides.strayed()) {
            report.failed = true;
            report.failure = "the program did something else when it was run again: it is not deterministic";
            return report;
        }
        ++(decides.blocked() ? report.pruned : report.executions);
        if (!failure.empty() && !decides.blocked()) {
            report.failed = true;
            report.failure = failure;
            report.replay = decides.schedule();
            report.command = "RDMACORO_SIM_SCHEDULE=" + report.replay + " " + options.command;
            explorer again(explorer::mode::replay, false, options.faults);
            again.follow(report.replay);
            static_cast<void>(execute(again, true, &report.schedule));
            return report;
        }
        if (how == explorer::mode::replay) return report;
        if (how == explorer::mode::random) {
            if (n + 1 >= options.random_executions) return report;
        } else if (!decides.advance()) {
            report.complete = true;
            return report;
        } else if (n + 1 >= options.most_executions) {
            return report;
        }
    }
}

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/sim/impl/explore.ipp>
#endif
