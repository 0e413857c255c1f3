// compute_meanwhile: start() begins an operation now, co_await finishes it later; in between the program computes.
#include <rdmacoro/rdmacoro.hpp>

#include <iostream>
#include <numeric>
#include <vector>

namespace rc = rdmacoro;

constexpr std::size_t blocks = 8;
constexpr std::size_t block_numbers = 100'000;

rc::task<> produce() {
    auto peer = co_await rc::connect<rc::shm>("shm://meanwhile");
    std::vector<double> numbers(block_numbers);
    for (std::size_t i = 0; i < blocks; ++i) {
        std::iota(numbers.begin(), numbers.end(), static_cast<double>(i));
        co_await peer.send(numbers, i);
    }
    co_await peer.close();
}

rc::task<> consume() {
    auto listener = co_await rc::listen<rc::shm>("shm://meanwhile");
    rc::task_group others;
    others.spawn(produce);
    auto peer = co_await listener.accept();

    std::vector<double> buffers[2]{std::vector<double>(block_numbers), std::vector<double>(block_numbers)};
    double sum = 0;
    co_await peer.recv(buffers[0], 0);
    for (std::size_t i = 1; i < blocks; ++i) {
        // The next block travels while this one is summed up. `next` must be awaited before it goes out of scope.
        auto next = rc::start(peer.recv(buffers[i % 2], i));
        sum = std::accumulate(buffers[(i - 1) % 2].begin(), buffers[(i - 1) % 2].end(), sum);
        co_await next;
    }
    sum = std::accumulate(buffers[(blocks - 1) % 2].begin(), buffers[(blocks - 1) % 2].end(), sum);
    std::cout << "sum " << std::fixed << sum << '\n';
    co_await others.join();
}

int main() { rc::scheduler{}.run(consume()); }
