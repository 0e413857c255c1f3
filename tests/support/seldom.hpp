#pragma once

// Cases that timing decides on some transports: over all of a program they must happen once, though on each of them they need not.

#include <string_view>

namespace rdmacoro::test {

/// `what` was tried on this transport. When the program has tried it on several, and it happened on none, the run fails.
void seldom(std::string_view what, std::string_view transport, bool happened);

}  // namespace rdmacoro::test
