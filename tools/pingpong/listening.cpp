#include "listening.hpp"

#include "failure.hpp"

#include <rdmacoro/coro/error.hpp>

#include <cstdio>
#include <utility>

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
    if (is_service(plan.test) && plan.bytes > longest_value)
        throw run_error("the client asks for longer values than this version takes");
    if (plan.buffers > payload::most_slots(static_cast<std::size_t>(plan.bytes))) {
        throw run_error("the client asks for more memory than this version gives");
    }
}

void check_plan(const plan_message& plan, bool may_have_threads) {
    constexpr std::uint64_t most_threads = 256;
    if (plan.threads == 0 || plan.threads > (may_have_threads ? most_threads : 1))
        throw run_error("the client asks for another number of threads than this version has");
}

listening_members::~listening_members() {
    for (member& one : members_) one.thread.join();
}

std::string listening_members::add(std::function<void(std::promise<std::string>&)> body) {
    std::promise<std::string> told;
    std::promise<void> ends;
    std::future<std::string> place = told.get_future();
    std::future<void> ended = ends.get_future();
    members_.reserve(members_.size() + 1);
    std::thread thread([body = std::move(body), told = std::move(told), ends = std::move(ends)]() mutable {
        try {
            body(told);
            ends.set_value();
        } catch (...) {
            ends.set_exception(std::current_exception());
        }
        // The promise of a thread that never listened is broken here, as its waiter expects.
    });
    members_.push_back({std::move(ended), std::move(thread)});
    try {
        return place.get();
    } catch (const std::future_error&) {
        join();
        throw;
    }
}

void listening_members::join() {
    std::exception_ptr failed;
    for (member& one : members_) {
        one.thread.join();
        try {
            one.ended.get();
        } catch (...) {
            if (!failed) failed = std::current_exception();
        }
    }
    members_.clear();
    if (failed) std::rethrow_exception(failed);
}

std::string further_address(const std::string& address, std::uint64_t index) {
    const std::size_t colon = address.rfind(':');
    if (address.find_first_of('/', colon) == std::string::npos) return address.substr(0, colon) + ":0";
    return address + "." + std::to_string(index);
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
