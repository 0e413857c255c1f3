// The coroutines that endpoints over all transports share. For the unit that includes rdmacoro/src.hpp.
#pragma once

#include <rdmacoro/messaging/detail/instances.hpp>

RDMACORO_SHARED_MESSAGING_INSTANCES(template)
