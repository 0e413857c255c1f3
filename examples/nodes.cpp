// nodes: messages by the id of a node. The node that answers stops and is started again; the one that asks needs not care.
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/service/node.hpp>

#include <iostream>
#include <string>

namespace rc = rdmacoro;
using node = rc::node<rc::shm>;  // rc::node<rc::shm, rc::tcp>: shared memory on one host, TCP between hosts

/// Runs for each connection: answers what comes, until the connection ends.
struct answers {
    std::string greeting;
    rc::task<> operator()(auto& peer, rc::node_id from, rc::generation) const {
        for (;;) {
            const rc::result<rc::message> asked = co_await rc::as_result(peer.recv_lent());
            if (!asked) co_return;
            const std::string answer = greeting + ", node " + std::to_string(from);
            co_await peer.send(answer, asked->tag());
        }
    }
};

rc::task<> serve_once(std::string greeting, rc::event& asked) {
    node nine(9);
    nine.on_connection(answers{greeting});
    co_await nine.listen("shm://nine");
    co_await asked.wait();
    co_await nine.close();
}

rc::task<> ask() {
    node here(1);
    here.add({.id = 9, .urls = {"shm://nine"}});  // in whichever generation it is there
    auto changes = here.watch();
    auto nine = here.peer(9);
    for (const char* greeting : {"hello", "hello again"}) {
        rc::event asked;
        rc::task_group other;
        other.spawn(serve_once, greeting, std::ref(asked));
        co_await nine.send(std::string_view("your name?"), 7);  // connects, once node 9 listens
        std::string answer(100, ' ');
        const rc::received got = co_await nine.recv(answer, 7);
        std::cout << answer.substr(0, got.bytes) << '\n';
        asked.set();
        co_await other.join();
        for (rc::node_event change = co_await changes.next(); change.what != rc::node_change::left;)
            change = co_await changes.next();
        std::cout << "node 9 has left\n";
    }
}

int main() { rc::scheduler{}.run(ask()); }
