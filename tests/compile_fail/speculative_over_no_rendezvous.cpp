// A speculative policy whose fallback sends in no way that another policy can take over: the message says which do.
// expect: the fallback of speculative has to be a rendezvous
#include <rdmacoro/rdmacoro.hpp>

int main() {
    // wrong
    return rdmacoro::protocols<rdmacoro::eager<>, rdmacoro::speculative<rdmacoro::segmented<>>>::count == 2
               ? 0
               : 1;
    // end
}
