// deadline: every operation can be given a time limit, or be stopped from outside, and leaves everything usable.
#include <rdmacoro/rdmacoro.hpp>

#include <chrono>
#include <iostream>
#include <thread>

namespace rc = rdmacoro;
using namespace std::literals;

// Waits for any message, and prints how that ended.
rc::task<> wait_for(std::string_view what, rc::endpoint<rc::shm>& peer, rc::duration limit) {
    char text[64];
    auto got = co_await rc::as_result(rc::timeout(peer.recv(text), limit));
    // However it ended, `text` is not written to any more: an operation ends only when its memory is free.
    std::cout << what << ": " << (got ? std::string(text, got->bytes) : got.error().message()) << '\n';
}

rc::task<> quiet_side() {
    auto listener = co_await rc::listen<rc::shm>("shm://deadline");
    auto peer = co_await listener.accept();
    char word[8];
    co_await peer.recv(word);  // silent until it is asked
    co_await peer.send("late, but here"sv);
    co_await peer.close();
}

rc::task<> waiting_side() {
    rc::task_group others;
    others.spawn(quiet_side);
    co_await rc::yield();  // lets it listen
    auto peer = co_await rc::connect<rc::shm>("shm://deadline");

    // A time limit. The receive is withdrawn: a message that comes later is not lost with it.
    co_await wait_for("after 20 ms", peer, 20ms);

    // A stop request from another thread.
    std::stop_source quit;
    std::thread other([&quit] { quit.request_stop(); });
    char text[64];
    auto got = co_await rc::as_result(rc::with_stop(peer.recv(text), quit.get_token()));
    other.join();
    std::cout << "stopped: " << got.error().message() << '\n';

    // The first of two that ends; the other is canceled and waited for.
    auto first = co_await rc::when_any(peer.recv(text), rc::sleep_for(20ms));
    std::cout << "first: " << (first.index == 0 ? "the message" : "the clock") << '\n';

    // The link is as good as ever.
    co_await peer.send("go"sv);
    co_await wait_for("asked", peer, 10s);
    co_await others.join();
}

int main() { rc::scheduler{}.run(waiting_side()); }
