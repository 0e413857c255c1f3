// A transport that was named and not included: the message names the header, and stands alone.
// expect: rdmacoro::tcp needs its header: #include <rdmacoro/transport/tcp.hpp>
// expect: rdmacoro::verbs_rc needs its header: #include <rdmacoro/transport/verbs_rc.hpp>
#include <rdmacoro/rdmacoro.hpp>

rdmacoro::task<> use() {
    auto near = co_await rdmacoro::connect<rdmacoro::shm>("shm://a");
    // wrong
    auto far = co_await rdmacoro::connect<rdmacoro::tcp>("tcp://127.0.0.1:7471");
    auto listening = co_await rdmacoro::listen<rdmacoro::verbs_rc>("verbs://192.168.7.1:7471");
    // end
}

int main() {}
