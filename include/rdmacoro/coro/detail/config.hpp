// Where the bodies of functions that are not templates live: in every unit, or in the one that includes rdmacoro/src.hpp.
#pragma once

#if __cplusplus < 202002L
#error "rdmacoro needs C++20: compile with -std=c++20 or later"
#endif

/// Empty when `RDMACORO_SEPARATE_COMPILATION` is defined, for a whole program: such bodies are compiled once then, in the unit
/// that includes <rdmacoro/src.hpp> or in the library `rdmacoro-compiled`.
#if defined(RDMACORO_SEPARATE_COMPILATION)
#define RDMACORO_DECL
#else
#define RDMACORO_DECL inline
#endif
// Virtual functions bear RDMACORO_DECL in their class, too: the compiler emits the table of a class into each unit that defines the
// first virtual function that the class does not declare inline, and with it all that the table names, used or not.

/// Of a body that runs to set up, to end, to fail or for a long message, never for a short one: small code that compiles fast.
#define RDMACORO_COLD [[gnu::cold]] RDMACORO_DECL
