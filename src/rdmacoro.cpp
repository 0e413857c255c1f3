#include <rdmacoro/src.hpp>
