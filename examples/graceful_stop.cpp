// graceful_stop: a server that SIGTERM or Ctrl-C ends: it answers what it was asked, closes its links, within a few seconds.
#include <rdmacoro/rdmacoro.hpp>

#include <chrono>
#include <csignal>
#include <iostream>
#include <string>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

rc::task<> answer(rc::endpoint<rc::shm>& peer, std::string question) {
    co_await rc::sleep_for(50ms);  // the work
    question += " done";
    co_await peer.send(question);
}

// Answers one client until it has gone, or the server is asked to stop.
rc::task<> serve_client(rc::endpoint<rc::shm> peer) {
    char question[64];
    for (;;) {
        auto got = co_await rc::as_result(peer.recv(question));
        if (!got) break;  // the client has gone, or the server stops: nothing is asked
        co_await rc::without_stop(answer(peer, std::string(question, got->bytes)), 2s);
    }
    co_await rc::without_stop(peer.close(), 2s);
}

rc::task<> accept_clients() {
    auto listener = co_await rc::listen<rc::shm>("shm://graceful_stop");
    rc::task_group clients;
    clients.on_error([](const std::exception_ptr&) { std::cerr << "a client's link failed\n"; });
    for (;;) {
        auto peer = co_await rc::as_result(listener.accept());
        if (!peer) break;  // asked to stop
        clients.spawn(serve_client, *std::move(peer));
    }
    clients.request_stop();
    co_await rc::without_stop(clients.join());
    std::cout << "server: stopped\n";
}

// A client that has asked when the signal comes.
rc::task<> ask() {
    auto peer = co_await rc::connect<rc::shm>("shm://graceful_stop");
    co_await peer.send(std::string_view("sum"));
    co_await rc::sleep_for(10ms);
    std::raise(SIGTERM);
    char answer[64];
    auto got = co_await peer.recv(answer);
    std::cout << "client: " << std::string(answer, got.bytes) << '\n';
    auto end = co_await rc::as_result(peer.recv(answer));
    std::cout << "client: " << end.error().message() << '\n';
}

int main() {
    rc::scheduler on;
    rc::signals quit(on, {SIGINT, SIGTERM});
    auto asking = on.start([]() -> rc::task<> {
        co_await rc::yield();  // lets the server listen
        co_await ask();
    }());
    on.run(accept_clients(), quit.token());
    on.run_until([&] { return asking.done(); });
    asking.get();
}
