// own_rendezvous: a rendezvous of your own in a list with others. See simple_get.hpp for the protocol.
#include "simple_get.hpp"

#include <iostream>
#include <vector>

using namespace std::literals;
using how = rc::protocols<rc::eager<>, simple_get, rc::segmented<>>;

rc::task<> ask() {
    auto peer = co_await rc::connect<rc::shm, how>("shm://own-rendezvous");
    std::vector<std::byte> question(1'000'000, std::byte{7});
    co_await peer.send(question, 1);
    co_await peer.ssend(question, 2);
    // No receive will ever match this one: it is withdrawn.
    auto late = co_await rc::as_result(rc::timeout(peer.send(question, 3), 10ms));
    std::cout << "tag 3: " << late.error().message() << '\n';
    co_await peer.close();
}

rc::task<> serve() {
    auto listener = co_await rc::listen<rc::shm, how>("shm://own-rendezvous");
    rc::task_group others;
    others.spawn(ask);
    auto peer = co_await listener.accept();
    std::vector<std::byte> text(1'000'000);
    for (rc::tag_type tag = 1; tag <= 2; ++tag) {
        auto got = co_await peer.recv(text, tag);
        std::cout << "tag " << tag << ": " << got.bytes << " bytes, the last " << int(text.back()) << '\n';
    }
    auto none = co_await rc::as_result(peer.recv(text, 4));
    std::cout << "tag 4: " << none.error().message() << '\n';
    co_await others.join();
}

int main() { rc::scheduler{}.run(serve()); }
