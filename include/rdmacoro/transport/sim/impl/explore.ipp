// How a program is explored: options of the environment, reports, deadlocks.
#pragma once

#include <rdmacoro/transport/sim/explore.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace rdmacoro {

RDMACORO_DECL explore_options explore_options::as_environment_says() const {
    explore_options o = *this;
    if (const char* schedule = std::getenv("RDMACORO_SIM_SCHEDULE")) o.replay = schedule;
    if (const char* first = std::getenv("RDMACORO_SIM_SEED")) {
        o.seed = std::strtoull(first, nullptr, 10);
        o.random_executions = std::max<std::uint64_t>(o.random_executions, 1);
    }
    if (const char* count = std::getenv("RDMACORO_SIM_EXECUTIONS"))
        o.random_executions = std::strtoull(count, nullptr, 10);
    return o;
}

RDMACORO_DECL std::string explore_report::text() const {
    std::string t = std::to_string(executions) + " executions, " + std::to_string(pruned) + " pruned, " +
                    std::to_string(steps) + " steps, " + (complete ? "complete" : "not complete");
    if (!failed) return t;
    t += "\nfailure: " + failure + "\nschedule:";
    for (const std::string& line : schedule) t += "\n  " + line;
    return t + "\nagain: " + command;
}

RDMACORO_DECL void exploration::give_up(const char* why) noexcept {
    if (over_ && ++stuck_ > most_stuck) {
        std::fprintf(stderr, "schedule: %s\n", decides_.schedule().c_str());
        detail::fatal(
            "explore: the program waits for something that neither a stop request nor a lost link ends");
    }
    if (!over_) fail(why);
    over_ = true;
    end();
    stop_.request_stop();
    for (detail::sim::wire* w : world_.wires()) w->drop();
}

}  // namespace rdmacoro
