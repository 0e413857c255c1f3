// echo: a server that sends every message back, and a client. The URL picks the transport.
//
//     echo serve tcp://127.0.0.1:7471 &
//     echo ask tcp://127.0.0.1:7471 "how are you"
#include "by_url.hpp"

#include <chrono>

namespace rc = rdmacoro;
using namespace std::chrono_literals;

template <rc::transport T>
rc::task<> echo(rc::endpoint<T> peer) {
    for (;;) {
        auto got = co_await rc::as_result(peer.recv_lent());  // a message of any length, with any tag
        if (got.error() == rc::errc::closed) break;           // the client closed, all is well
        co_await peer.send(got.value().bytes(), got->tag());  // value() throws any other error
    }
}

template <rc::transport T>
rc::task<> serve(std::string_view url) {
    auto listener = co_await rc::listen<T>(url);
    std::cout << "listening at " << listener.address() << std::endl;
    rc::task_group clients;
    clients.on_error(print_error);  // one client's failure is not another's
    for (;;) clients.spawn(echo<T>, co_await listener.accept());
}

template <rc::transport T>
rc::task<> ask(std::string_view url, std::string question) {
    auto peer = co_await rc::connect<T>(url, {.retry_for = 5s});
    std::string answer(question.size(), '\0');
    co_await peer.send(question, 7);  // 7: a tag, a number that names the message
    auto got = co_await rc::timeout(peer.recv(answer, 7), 5s);
    std::cout << answer.substr(0, got.bytes) << '\n';
    co_await peer.close();
}

int main(int argc, char** argv) {
    const std::string_view role = argc > 1 ? argv[1] : "";
    if (role == "serve" && argc == 3) {
        return run_by_url(argv[2], [&]<class T>() { return serve<T>(argv[2]); });
    }
    if (role == "ask" && argc == 4) {
        return run_by_url(argv[2], [&]<class T>() { return ask<T>(argv[2], argv[3]); });
    }
    std::cerr << "usage: echo serve URL | echo ask URL QUESTION\n";
    return 2;
}
