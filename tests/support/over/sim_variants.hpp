#pragma once

// Ways to open a domain of the simulated network.

#include <rdmacoro/transport/sim.hpp>

#include "support/over/fresh_name.hpp"

#include <memory>
#include <string>

namespace rdmacoro::test {

/// A simulated network whose time passes while nothing else can run, whatever the scheduler's clock says.
struct sim_plain {
    using transport_type = sim;
    static std::unique_ptr<sim::domain> open(scheduler& on) { return std::make_unique<sim::domain>(on); }
    static std::string address() { return fresh_name(); }
    static constexpr bool crosses_threads = false;
};

struct sim_that_announces : sim_plain {
    static std::unique_ptr<sim::domain> open(scheduler& on) {
        sim_options o;
        o.announces_above = 700;
        o.piece_bytes = 301;
        o.room = 5;
        o.lends = false;
        o.offered.put_before_send = true;
        return std::make_unique<sim::domain>(on, o);
    }
};

struct sim_that_registers : sim_plain {
    static std::unique_ptr<sim::domain> open(scheduler& on) {
        sim_options o;
        o.staged_bytes = 0;
        o.offered.needs_registration = true;
        o.offered.one_sided_offloaded = false;
        return std::make_unique<sim::domain>(on, o);
    }
};

struct sim_of_aligned_gets : sim_plain {
    static std::unique_ptr<sim::domain> open(scheduler& on) {
        sim_options o;
        o.offered.get_alignment = 4;
        o.offered.max_message = o.offered.segment_bytes = 4000;
        o.offered.eager_bytes = 1000;
        return std::make_unique<sim::domain>(on, o);
    }
};

struct sim_that_revokes_late : sim_plain {
    static std::unique_ptr<sim::domain> open(scheduler& on) {
        sim_options o;
        o.offered.revokes_at_once = false;
        o.offered.needs_registration = true;
        return std::make_unique<sim::domain>(on, o);
    }
};

}  // namespace rdmacoro::test
