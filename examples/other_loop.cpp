// other_loop: a scheduler in the thread of another event loop, here of epoll: lines of stdin are sent to an echo server.
//
//     printf 'one\ntwo\n' | other_loop
#include <rdmacoro/rdmacoro.hpp>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <sys/epoll.h>
#include <unistd.h>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

rc::task<> echo() {
    auto listener = co_await rc::listen<rc::shm>("shm://other_loop");
    auto peer = co_await listener.accept();
    while (auto got = co_await rc::as_result(peer.recv_lent())) co_await peer.send(got->bytes());
}

rc::task<> ask(rc::channel<std::string>& lines) {
    auto peer = co_await rc::connect<rc::shm>("shm://other_loop", {.retry_for = 2s});
    while (auto line = co_await rc::as_result(lines.receive())) {
        co_await peer.send(*line);
        auto got = co_await peer.recv(*line);
        std::cout << "echo: " << std::string_view(*line).substr(0, got.bytes) << std::endl;
    }
    co_await peer.close();
}

int main() {
    rc::scheduler scheduler;
    rc::channel<std::string> lines(64);
    auto echoing = scheduler.start(echo());
    auto asking = scheduler.start(ask(lines));

    const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
    for (const int fd : {STDIN_FILENO, scheduler.descriptor()}) {
        epoll_event wanted{.events = EPOLLIN, .data = {.fd = fd}};
        if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &wanted) != 0)
            return 1;  // a file: epoll takes pipes and terminals
    }
    while (!asking.done()) {
        if (scheduler.poll()) continue;  // until there is nothing to do
        const auto limit = std::chrono::ceil<std::chrono::milliseconds>(
            std::min<rc::duration>(scheduler.prepare_to_wait(), 1h));
        epoll_event came[2];
        const int count = ::epoll_wait(epoll, came, 2, static_cast<int>(limit.count()));
        for (int i = 0; i < count; ++i) {
            if (came[i].data.fd != STDIN_FILENO) continue;
            std::string text(4096, ' ');
            const auto bytes = ::read(STDIN_FILENO, text.data(), text.size());
            text.resize(bytes > 0 ? static_cast<std::size_t>(bytes) : 0);
            // What happens in the other loop reaches coroutines by channels and events.
            if (text.empty() || !lines.try_send(std::move(text))) {
                lines.close();
                ::epoll_ctl(epoll, EPOLL_CTL_DEL, STDIN_FILENO, nullptr);
            }
        }
    }
    asking.get();  // throws what went wrong
    echoing.get();
}
