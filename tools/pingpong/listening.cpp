#include "listening.hpp"

#include "failure.hpp"

#include <rdmacoro/coro/error.hpp>

#include <cstdio>

namespace pingpong {

void check_exchange(const exchange_message& plan) {
    constexpr std::uint64_t most_bytes = std::uint64_t{1} << 40;
    constexpr std::uint64_t most_window = 65536;
    const bool known = static_cast<std::uint64_t>(plan.test) < all_tests.size();
    if (!known || plan.bytes > most_bytes || plan.window == 0 || plan.window > most_window ||
        plan.count == 0 || plan.count % plan.window != 0 || plan.ack_every == 0) {
        throw run_error("the client asks for something that this version does not do");
    }
    if (plan.buffers == 0 || plan.buffers > plan.window ||
        (plan.verify != 0 && plan.buffers != plan.window)) {
        throw run_error("the client asks for something that this version does not do");
    }
    if (plan.buffers > payload::most_slots(static_cast<std::size_t>(plan.bytes))) {
        throw run_error("the client asks for more memory than this version gives");
    }
}

void print_failure(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "pingpong: %s\n", error.what());
    }
}

void fail_listening(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const std::system_error& error) {
        if (error.code() == rdmacoro::errc::peer_lost || error.code() == rdmacoro::errc::closed) {
            throw run_error(std::string("the client vanished: ") + error.what());
        }
        throw;
    }
}

}  // namespace pingpong
