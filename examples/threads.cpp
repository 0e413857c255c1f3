// threads: ordinary threads have their questions asked by the one thread that has the connection, and wait for the answers.
#include <rdmacoro/rdmacoro.hpp>

#include <atomic>
#include <future>
#include <iostream>
#include <thread>
#include <vector>

namespace rc = rdmacoro;

constexpr std::uint64_t threads = 4, questions = 500;

struct question {
    std::uint64_t number = 0;
    std::promise<std::uint64_t> answer;
};

/// Another process, usually: it squares numbers.
rc::task<> squares() {
    auto listener = co_await rc::listen<rc::shm>("shm://threads");
    auto peer = co_await listener.accept();
    std::uint64_t number = 0;
    while (auto got = co_await rc::as_result(peer.recv(rc::bytes_of(number)))) {
        number *= number;
        co_await peer.send(rc::bytes_of(number), got->tag);
    }
}

/// One question, beside others: its tag finds its answer. Whatever goes wrong is thrown in the thread that asked.
rc::task<> ask(rc::endpoint<rc::shm>& peer, question asked, rc::tag_type tag) {
    try {
        co_await peer.send(rc::bytes_of(asked.number), tag);
        std::uint64_t square = 0;
        co_await peer.recv(rc::bytes_of(square), tag);
        asked.answer.set_value(square);
    } catch (...) {
        asked.answer.set_exception(std::current_exception());
    }
}

/// Asks what the threads want to know, until the channel is closed.
rc::task<> ask_all(rc::thread_channel<question>& asked) {
    rc::task_group tasks;
    tasks.spawn(squares);
    co_await rc::yield();  // lets it listen
    auto peer = co_await rc::connect<rc::shm>("shm://threads");
    rc::task_group under_way;
    for (rc::tag_type tag = 0;; ++tag) {
        auto next = co_await rc::as_result(asked.receive());
        if (!next) break;
        under_way.spawn(ask, std::ref(peer), std::move(*next), tag);
    }
    co_await under_way.join();
    co_await peer.close();
    co_await tasks.join();
}

/// The network's thread. Where it fails no thread waits for ever: the open questions end with the failure, new ones are refused.
rc::task<> network(rc::thread_channel<question>& asked) {
    std::exception_ptr failure;
    try {
        co_await ask_all(asked);
    } catch (...) {
        failure = std::current_exception();
    }
    asked.close();
    while (auto left = co_await rc::as_result(asked.receive())) left->answer.set_exception(failure);
    if (failure) std::rethrow_exception(failure);
}

int main() {
    rc::scheduler scheduler;
    rc::thread_channel<question> asked(scheduler, 64);  // a thread that pushes while it is full waits
    std::atomic<std::uint64_t> sum = 0, busy = threads;
    std::vector<std::jthread> workers;
    for (std::uint64_t first = 1; first <= threads; ++first) {
        workers.emplace_back([&, first] {
            for (std::uint64_t i = 0; i < questions; ++i) {
                question mine{.number = first + i * threads, .answer = {}};
                auto answer = mine.answer.get_future();
                if (!asked.push(std::move(mine))) return;  // it is closed
                try {
                    sum += answer.get();  // this thread sleeps; the network's does not
                } catch (const std::exception&) {
                    return;  // main says what went wrong
                }
            }
            if (--busy == 0) asked.close();
        });
    }
    try {
        scheduler.run(network(asked));
    } catch (const std::exception& failed) {
        std::cerr << "threads: " << failed.what() << '\n';
        return 1;
    }
    std::cout << "the squares of 1 to " << threads * questions << " add up to " << sum << '\n';
}
