// The same for tests, which all include their framework, too.
#include "standard.hpp"

#include "support/catch.hpp"
