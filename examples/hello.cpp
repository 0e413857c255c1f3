// hello: the smallest conversation. Two tasks of one program, one message over shared memory.
#include <rdmacoro/rdmacoro.hpp>

#include <iostream>
#include <string>

namespace rc = rdmacoro;
using namespace std::literals;

rc::task<> greet() {
    auto peer = co_await rc::connect<rc::shm>("shm://hello");
    co_await peer.send("hello, world"sv);
    co_await peer.close();  // waits until the message is there
}

rc::task<> listen() {
    auto listener = co_await rc::listen<rc::shm>("shm://hello");
    rc::task_group others;
    others.spawn(greet);  // runs beside this task from now on

    auto peer = co_await listener.accept();
    std::string text(64, ' ');
    auto got = co_await peer.recv(text);
    text.resize(got.bytes);
    std::cout << "got " << text << '\n';
    co_await others.join();
}

int main() { rc::scheduler{}.run(listen()); }
