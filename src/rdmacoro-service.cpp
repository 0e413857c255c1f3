#include <rdmacoro/service/src.hpp>
