#pragma once

// Two shared-memory domains on one scheduler with a link between them.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/shm.hpp>

#include "support/recording_sink.hpp"
#include "support/run.hpp"

#include <memory>
#include <string>
#include <utility>

#include <unistd.h>

namespace rdmacoro::test {

/// A name that no other test of this machine has.
inline std::string shm_test_name() {
    static int count = 0;
    return "shm-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

struct shm_pair {
    using link_type = shm::link<recording_sink>;

    scheduler on{impatient{}};
    shm::domain near;
    shm::domain far;
    recording_sink at_near;
    recording_sink at_far;
    std::unique_ptr<link_type> to_far;
    std::unique_ptr<link_type> to_near;

    explicit shm_pair(const shm_options& options = {}) : near(on, options), far(on, options) {
        on.run([](shm_pair& p, std::string name) -> task<> {
            auto listening = co_await p.far.listen(name);
            auto accepting = start(listening.accept());
            p.to_far = std::make_unique<link_type>(co_await p.near.connect(name), p.at_near);
            p.to_near = std::make_unique<link_type>(co_await accepting, p.at_far);
        }(*this, shm_test_name()));
    }

    template <class Done>
    bool until(Done done) {
        for (int n = 0; n < 1'000'000; ++n) {
            if (done()) return true;
            on.turn();
        }
        return false;
    }
};

}  // namespace rdmacoro::test
