#pragma once

// The one place where a test meets Catch2: version 2.13 (Debian 12's) and version 3 look the same through it.
// Tests include it as "support/catch.hpp", after the header they test.

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_approx.hpp>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#else
// An exception from within an assertion ends its test case as one from beside it does: a handler in each takes a twentieth of the time to
// compile.
#define CATCH_CONFIG_FAST_COMPILE
#include <catch2/catch.hpp>
#endif

#include <cstdint>
#include <string>

namespace rdmacoro::test {

#if __has_include(<catch2/catch_test_macros.hpp>)
/// The text holds `part` somewhere (version 2 calls it Contains).
inline auto contains(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
/// Of random numbers; printed and set with `--rng-seed`.
inline std::uint32_t seed() { return Catch::getSeed(); }
#else
inline std::uint32_t seed() { return Catch::rngSeed(); }
inline auto contains(const std::string& part) { return Catch::Matchers::Contains(part); }
#endif

/// Tells the runner that the running test case cannot run on this machine; see SKIP_TEST.
void note_skipped(const char* file, int line, const std::string& why);

/// Makes the program's exit status that of a failure. For listeners, where no assertion can be made.
void fail_run(const std::string& why);

}  // namespace rdmacoro::test

/// Leaves a test case (or void function of one) that this machine cannot run, and says why. A file whose test
/// cases all did so is reported as skipped. Version 2 has no SKIP of its own.
#define SKIP_TEST(why)                                                                                       \
    do {                                                                                                     \
        ::rdmacoro::test::note_skipped(__FILE__, __LINE__, (why));                                           \
        return;                                                                                              \
    } while (false)
