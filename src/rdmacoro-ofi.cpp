#include <rdmacoro/transport/ofi/src.hpp>
