// Matching left to a transport that does not match: the message names the concept.
// expect: models matching_link
#include <rdmacoro/rdmacoro.hpp>
#include <rdmacoro/transport/shm.hpp>

int main() {
    // wrong
    rdmacoro::endpoint<rdmacoro::shm, rdmacoro::protocols<rdmacoro::provider_matched>> peer;
    // end
}
