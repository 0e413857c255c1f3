// asio_client: a client in Asio's coroutines, in an asio::io_context, of a server in this toolkit's. Both are in this process, each on a
// thread of its own. The question that gets no answer is given up by Asio's timer.
#if !defined(ASIO_STANDALONE)
#define ASIO_STANDALONE
#endif
#include <rdmacoro/adapters/asio.hpp>
#include <rdmacoro/rdmacoro.hpp>

#include <asio/co_spawn.hpp>
#include <asio/experimental/awaitable_operators.hpp>

#include <chrono>
#include <iostream>
#include <string>
#include <thread>

#include <unistd.h>

namespace rc = rdmacoro;
using namespace asio::experimental::awaitable_operators;
using namespace std::chrono_literals;

/// The server: answers each question with its length, but the empty one not at all.
rc::task<> serve(std::string url) {
    auto listener = co_await rc::listen<rc::shm>(url);
    auto peer = co_await listener.accept();
    while (auto question = co_await rc::as_result(peer.recv_lent())) {
        const std::size_t length = question->size();
        if (length != 0) co_await peer.send(rc::bytes_of(length), question->tag());
    }
}

asio::awaitable<void> ask(rc::asio_guest on, std::string url) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    auto peer = co_await on.run(rc::connect<rc::shm>(url, {.retry_for = 5s}));
    rc::tag_type number = 0;
    for (const std::string question : {"how long is this?", "", "and this one?"}) {
        std::size_t length = 0;
        co_await on.run(peer.send(question, ++number));
        timer.expires_after(50ms);
        auto answer = peer.recv(rc::bytes_of(length), number, rc::discard_if_canceled);
        const auto first = co_await (on.run(std::move(answer)) || timer.async_wait(asio::use_awaitable));
        if (first.index() == 0) {
            std::cout << question << ' ' << length << std::endl;
        } else {
            std::cout << "no answer in 50 ms" << std::endl;
        }
    }
    co_await on.run(peer.close());
}

int main() {
    const std::string url = "shm://asio_client-" + std::to_string(::getpid());
    std::jthread server([url] {
        rc::scheduler scheduler;
        scheduler.run(serve(url));
    });
    asio::io_context context;
    rc::asio_guest on(context);
    asio::co_spawn(context, ask(on, url), [](std::exception_ptr failed) {
        if (failed) std::rethrow_exception(failed);
    });
    context.run();  // until all is said
}
