// The system's clock and the manual one.
#pragma once

#include <rdmacoro/coro/clock.hpp>

namespace rdmacoro {

RDMACORO_DECL clock::~clock() = default;

RDMACORO_DECL time_point monotonic_clock::now() noexcept { return std::chrono::steady_clock::now(); }
RDMACORO_DECL bool monotonic_clock::advance_to(time_point) noexcept { return false; }
RDMACORO_DECL monotonic_clock& monotonic_clock::instance() noexcept {
    static monotonic_clock only;
    return only;
}

RDMACORO_DECL time_point manual_clock::now() noexcept { return now_; }
RDMACORO_DECL bool manual_clock::advance_to(time_point deadline) noexcept {
    if (deadline > now_) now_ = deadline;
    return true;
}

}  // namespace rdmacoro
