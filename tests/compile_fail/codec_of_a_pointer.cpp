// What only refers to a value, within this process, has no encoding.
// expect: this type, or a part of it, has no encoding
// expect: specialize rdmacoro::codec
#include <rdmacoro/service/codec.hpp>

struct fine {
    int a;
    double b;
};
struct wrong {
    int a;
    fine* b;
};

int main() {
    static_cast<void>(rdmacoro::encode(fine{1, 2}));
    // wrong
    static_cast<void>(rdmacoro::encode(wrong{1, nullptr}));
    // end
}
