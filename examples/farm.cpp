// farm: one process hands out work, any number of others do it. They come when they like; the work of one that dies is done by another.
//
//     farm work shm://jobs & farm work shm://jobs & farm hand_out shm://jobs 200
#include "by_url.hpp"

#include <chrono>
#include <stdexcept>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

/// The work: how many steps the numbers of a range take until they come to 1 (the Collatz problem).
std::uint64_t work_on(std::uint64_t number) {
    constexpr std::uint64_t range = 25'000;
    std::uint64_t steps = 0;
    for (std::uint64_t first = number * range + 1; first <= (number + 1) * range; ++first) {
        for (std::uint64_t n = first; n != 1; n = n % 2 == 0 ? n / 2 : 3 * n + 1) ++steps;
    }
    return steps;
}

/// A worker: it does what it gets until the office closes.
template <rc::transport T>
rc::task<> work(std::string_view url) {
    auto office = co_await rc::connect<T>(url, {.retry_for = 10s});
    std::uint64_t number = 0;
    for (;;) {
        const auto got = co_await rc::as_result(office.recv(rc::bytes_of(number)));
        if (got.error() == rc::errc::closed) break;  // there is no more to do
        static_cast<void>(got.value());              // throws any other error
        std::cerr << "job " << number << std::endl;
        number = work_on(number);
        co_await office.send(rc::bytes_of(number));
    }
}

/// What there is to do. A job is in the channel, or with a worker.
struct book {
    rc::channel<std::uint64_t> open;
    std::uint64_t left, steps = 0;
    rc::event done{};
};

/// The office's side of a worker: a job at a time. When the worker is lost the receive ends with an error.
template <rc::transport T>
rc::task<> employ(rc::endpoint<T> worker, book& jobs) {
    while (auto number = co_await rc::as_result(jobs.open.receive())) {
        std::uint64_t steps = 0;
        try {
            co_await worker.send(rc::bytes_of(*number));
            co_await worker.recv(rc::bytes_of(steps));
        } catch (const rc::error&) {
            std::cerr << "job " << *number << " again: its worker is lost" << std::endl;
            static_cast<void>(jobs.open.try_send(std::move(*number)));  // there is room for all
            throw;                                                      // says why: on_error
        }
        jobs.steps += steps;
        if (--jobs.left > 0) continue;
        jobs.open.close();
        jobs.done.set();
    }
    co_await rc::timeout(worker.close(), 5s);
}

template <rc::transport T>
rc::task<> hand_out(std::string_view url, std::uint64_t count) {
    if (count == 0) throw std::invalid_argument("JOBS: at least 1");
    book jobs{.open = rc::channel<std::uint64_t>(count), .left = count};
    for (std::uint64_t number = 0; number < count; ++number) co_await jobs.open.send(number);
    auto listener = co_await rc::listen<T>(url);
    std::cout << "listening at " << listener.address() << std::endl;
    rc::task_group workers, door;
    workers.on_error(print_error);
    door.spawn([&]() -> rc::task<> {
        for (;;) workers.spawn(employ<T>, co_await listener.accept(), std::ref(jobs));
    });
    co_await jobs.done.wait();
    door.request_stop();
    co_await door.join();
    co_await workers.join();
    std::cout << jobs.steps << " steps" << std::endl;
}

int main(int argc, char** argv) {
    const std::string_view role = argc > 2 ? argv[1] : "";
    if (role == "work" && argc == 3) return run_by_url(argv[2], [=]<class T>() { return work<T>(argv[2]); });
    if (role == "hand_out" && argc == 4) {
        return run_by_url(argv[2], [=]<class T>() { return hand_out<T>(argv[2], std::stoull(argv[3])); });
    }
    std::cerr << "usage: farm hand_out URL JOBS | farm work URL\n";
    return 2;
}
