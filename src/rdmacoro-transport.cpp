#include <rdmacoro/transport/src.hpp>
