// hello: the smallest conversation. Two tasks of one program, one message over shared memory.
#include <rdmacoro/rdmacoro.hpp>

#include <iostream>

namespace rc = rdmacoro;

rc::task<> greet() {
    auto peer = co_await rc::connect<rc::shm>("shm://hello");
    co_await peer.send(std::as_bytes(std::span("hello, world")));
    co_await peer.close();  // waits until the message is there
}

rc::task<> listen() {
    auto listener = co_await rc::listen<rc::shm>("shm://hello");
    rc::task_group others;
    others.spawn(greet);  // runs beside this task from now on

    auto peer = co_await listener.accept();
    char text[64];
    auto got = co_await peer.recv(std::as_writable_bytes(std::span(text)));
    std::cout << "got " << got.bytes << " bytes: " << text << '\n';
    co_await others.join();
}

int main() { rc::scheduler{}.run(listen()); }
