// An older C++ is refused in one line, and not by what it lacks. The macro stands for -std=c++17.
// expect: needs C\+\+20: compile with -std=c\+\+20
// wrong
#undef __cplusplus
#define __cplusplus 201703L
// end
#include <rdmacoro/rdmacoro.hpp>

int main() {}
