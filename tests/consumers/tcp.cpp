#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/tcp.hpp>
rdmacoro::task<> listen() { auto listener = co_await rdmacoro::listen<rdmacoro::tcp>("127.0.0.1:0"); }
int main() { rdmacoro::scheduler{}.run(listen()); }
