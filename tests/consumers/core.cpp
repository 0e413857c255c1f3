#include "form.hpp"

#include <rdmacoro/rdmacoro.hpp>
rdmacoro::task<> hello() { co_return; }
int main() { rdmacoro::scheduler{}.run(hello()); }
