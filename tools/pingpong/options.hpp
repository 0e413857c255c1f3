// The command line, interpreted.
#pragma once

#include "idle_choice.hpp"
#include "test_kind.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pingpong {

/// An address: "shm" and "shm://name".
struct url {
    std::string scheme;
    std::string whole;
};

struct options {
    enum class role { connect, listen, pair } as = role::connect;
    url where;
    bool forever = false;

    std::vector<test_kind> tests;
    std::vector<std::size_t> sizes;           ///< empty: each test's own
    std::optional<std::uint64_t> window;      ///< none: each test's own
    std::uint64_t buffers = 1;                ///< that a window's messages take turns in
    std::optional<std::uint64_t> iterations;  ///< none: as many as take about a second
    std::optional<std::uint64_t> warmup;      ///< none: some 30 ms
    std::string protocol = "auto";
    std::optional<idle_kind> idle;
    std::vector<int>
        cpus;  ///< the connecting side's and as many of the listening side's; or one, of whichever side this is
    std::uint64_t threads = 1;  ///< of each side, with a connection each
    std::uint64_t timeout_seconds = 60;
    bool verify = false;
    std::optional<std::uint64_t> spoil;
    bool explain = false;
    std::string json;  ///< a file, or "-"
    std::string csv;
};

/// Nothing when the command line was answered already (--help, --version). Throws `usage_error`.
[[nodiscard]] std::optional<options> parse_options(int argc, char** argv);

/// The CPU of thread number `thread` of a side: threads that are more than its CPUs take turns among them. -1: any.
[[nodiscard]] int cpu_of(const options& asked, bool connecting, std::size_t thread);

}  // namespace pingpong
