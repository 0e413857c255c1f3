// A protocol list with something that is no policy: the message names the concept.
// expect: protocol_policy
#include <rdmacoro/rdmacoro.hpp>

int main() {
    // wrong
    rdmacoro::protocols<rdmacoro::eager<>, int> list;
    // end
}
