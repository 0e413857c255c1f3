// An endpoint over a type that is no transport: the message names the concept.
// expect: transport
// expect(gcc): constraints not satisfied|constraint failure
// expect(clang): constraints not satisfied
#include <rdmacoro/rdmacoro.hpp>

struct carrier_pigeon {
    static constexpr const char* name = "pigeon";
};

int main() {
    // wrong
    rdmacoro::endpoint<carrier_pigeon> peer;
    // end
}
