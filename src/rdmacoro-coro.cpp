#include <rdmacoro/coro/src.hpp>
#include <rdmacoro/memory/src.hpp>
