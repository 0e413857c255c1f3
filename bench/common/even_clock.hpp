// A clock for counting instructions: it goes by its readings. Under callgrind a program runs fifty times slower, and a scheduler with
// a real clock would end each resumption early, as one does whose operations are slow.
#pragma once

#include <rdmacoro/coro/clock.hpp>

namespace bench {

/// Each reading is a microsecond after the one before.
class even_clock final : public rdmacoro::clock {
public:
    rdmacoro::time_point now() noexcept override { return now_ += std::chrono::microseconds(1); }
    bool advance_to(rdmacoro::time_point deadline) noexcept override {
        if (now_ < deadline) now_ = deadline;
        return true;
    }

private:
    rdmacoro::time_point now_{};
};

}  // namespace bench
