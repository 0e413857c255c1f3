#include <rdmacoro/messaging/src.hpp>
