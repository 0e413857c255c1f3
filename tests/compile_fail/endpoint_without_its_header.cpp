// An endpoint or a mailbox over a transport that was not included: the message names the header, with a list of one's own, too.
// expect: rdmacoro::tcp needs its header: #include <rdmacoro/transport/tcp.hpp>
// expect: rdmacoro::sim needs its header: #include <rdmacoro/transport/sim.hpp>
#include <rdmacoro/rdmacoro.hpp>

int main() {
    rdmacoro::endpoint<rdmacoro::shm> fine;
    // wrong
    rdmacoro::endpoint<rdmacoro::tcp> far;
    rdmacoro::mailbox<rdmacoro::sim, rdmacoro::protocols<rdmacoro::eager<>>> peers;
    // end
}
