#include <rdmacoro/coro/src.hpp>
