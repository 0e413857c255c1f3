// own_transport: everything above a transport works over one of your own. See loopback.hpp for the transport.
#include "loopback.hpp"

#include <functional>
#include <iostream>

rc::task<> answer(rc::endpoint<loopback> peer) {
    std::vector<std::byte> buffer(1 << 20);
    auto got = co_await peer.recv(buffer, 7);
    co_await peer.send(std::span(buffer).first(got.bytes), 8);
    co_await peer.close();
}

rc::task<> serve(loopback::domain& domain) {
    auto listener = co_await rc::listen<loopback>(domain, "here");
    co_await answer(co_await listener.accept());
}

rc::task<> ask() {
    loopback::domain domain(*rc::scheduler::current());
    rc::task_group others;
    others.spawn(serve, std::ref(domain));
    co_await rc::yield();  // lets it listen

    auto peer = co_await rc::connect<loopback>(domain, "here");
    std::cout << peer.explain();
    std::vector<std::byte> question(1'000'000, std::byte{42}), reply(question.size());
    co_await peer.ssend(question, 7);  // in pieces of what the transport carries at a time
    co_await peer.recv(reply, 8);
    std::cout << (reply == question ? "all bytes came back" : "something else came back") << '\n';
    co_await peer.close();
    co_await others.join();
}

int main() { rc::scheduler{}.run(ask()); }
