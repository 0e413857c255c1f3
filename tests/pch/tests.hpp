// Precompiled for the test programs where Meson's option b_pch is on: the test framework and what it includes of the standard
// library. No test relies on it: each includes what it names, and CI's build with g++ does without.
#include "support/catch.hpp"
