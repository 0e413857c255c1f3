#include <rdmacoro/transport/tcp/src.hpp>
