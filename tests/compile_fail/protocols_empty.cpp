// A protocol list without a policy carries nothing and is refused.
// expect: sizeof\.\.\.\s*\(Policies\)|constraint
#include <rdmacoro/rdmacoro.hpp>

int main() {
    // wrong
    rdmacoro::protocols<> list;
    // end
}
