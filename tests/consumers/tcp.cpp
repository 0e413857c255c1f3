#include "form.hpp"

static_assert(RDMACORO_WITH_TCP == 1, "the dependency says what it brings");

#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/tcp.hpp>
rdmacoro::task<> listen() { auto listener = co_await rdmacoro::listen<rdmacoro::tcp>("127.0.0.1:0"); }
int main() { rdmacoro::scheduler{}.run(listen()); }
