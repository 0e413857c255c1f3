// Precompiled for the test programs where Meson's option b_pch is on: what nearly every test includes. No test relies on it: each
// includes what it names, and CI's build with g++ does without.
#include "support/catch.hpp"

#include <rdmacoro/coro/coro.hpp>
