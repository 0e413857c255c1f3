#pragma once

// A program gets the form that it asked for: header-only, or the libraries that have the toolkit compiled.
#if defined(RDMACORO_SEPARATE_COMPILATION)
static_assert(CONSUMER_EXPECTS_COMPILED == 1);
#else
static_assert(CONSUMER_EXPECTS_COMPILED == 0);
#endif
