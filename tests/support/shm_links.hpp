#pragma once

// Two shared-memory domains on one scheduler with several links between them.

#include "support/shm_pair.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace rdmacoro::test {

struct shm_links {
    using link_type = shm::link<recording_sink>;
    struct one_link {
        recording_sink at_near;
        recording_sink at_far;
        std::unique_ptr<link_type> to_far;
        std::unique_ptr<link_type> to_near;
    };

    scheduler on{impatient{}};
    shm::domain near;
    shm::domain far;
    std::vector<std::unique_ptr<one_link>> links;

    shm_links(std::size_t count, const shm_options& options) : near(on, options), far(on, options) {
        on.run([](shm_links& l, std::size_t n, std::string name) -> task<> {
            auto listening = co_await l.far.listen(name);
            for (; n > 0; --n) {
                l.links.push_back(std::make_unique<one_link>());
                one_link& made = *l.links.back();
                auto accepting = start(listening.accept());
                made.to_far = std::make_unique<link_type>(co_await l.near.connect(name), made.at_near);
                made.to_near = std::make_unique<link_type>(co_await accepting, made.at_far);
            }
        }(*this, count, shm_test_name()));
    }
    /// False: a million turns did not do it.
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
