#pragma once

// Ways to open a shared-memory domain.

#include <rdmacoro/transport/shm.hpp>

#include "support/over/fresh_name.hpp"

#include <memory>
#include <string>

namespace rdmacoro::test {

struct shm_as_it_comes {
    using transport_type = shm;
    static shm_options options() { return {}; }
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        return std::make_unique<shm::domain>(on, options());
    }
    static std::string address() { return fresh_name(); }
    /// Whether the two ends may be on two schedulers, each with its thread.
    static constexpr bool crosses_threads = true;
};

struct shm_without_process_vm : shm_as_it_comes {
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        shm_options o;
        o.use_process_vm = false;
        return std::make_unique<shm::domain>(on, o);
    }
};

struct shm_without_membarrier : shm_as_it_comes {
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        shm_options o;
        o.use_membarrier = false;
        return std::make_unique<shm::domain>(on, o);
    }
};

struct shm_tiny : shm_as_it_comes {
    static std::unique_ptr<shm::domain> open(scheduler& on) {
        shm_options o;
        o.shape = {.cells = 64, .blocks = 4, .block_bytes = 4096};
        o.use_process_vm = false;
        return std::make_unique<shm::domain>(on, o);
    }
};

}  // namespace rdmacoro::test
