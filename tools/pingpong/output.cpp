#include "output.hpp"

#include "failure.hpp"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>

namespace pingpong {

namespace {

[[noreturn]] void refuse_file(const std::string& path) {
    throw run_error("cannot write " + (path == "-" ? std::string("standard output") : path) + ": " +
                    std::strerror(errno));
}

struct close_file {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using open_file = std::unique_ptr<std::FILE, close_file>;

}  // namespace

std::string time_text(double ns) {
    constexpr std::array<const char*, 4> units{"ns", "us", "ms", "s "};
    std::size_t unit = 0;
    while (ns >= 1000 && unit + 1 < units.size()) {
        ns /= 1000;
        ++unit;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.*f %s", ns < 10 ? 3 : ns < 100 ? 2 : 1, ns, units[unit]);
    return text.data();
}

std::string number_text(double number, int digits) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.*f", digits, number);
    return text.data();
}

double rounded(double value) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), "%.6g", value);
    return std::strtod(text.data(), nullptr);
}

void write_to(const std::string& path, const std::string& text) {
    if (path.empty()) return;
    open_file own;
    std::FILE* file = stdout;
    if (path != "-") {
        own.reset(std::fopen(path.c_str(), "we"));
        file = own.get();
        if (file == nullptr) refuse_file(path);
    }
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fflush(file) != 0)
        refuse_file(path);
    if (own && std::fclose(own.release()) != 0) refuse_file(path);
}

void check_writable(const std::string& path) {
    if (path.empty() || path == "-") return;
    const open_file tried(std::fopen(path.c_str(), "ae"));
    if (!tried) refuse_file(path);
}

void check_apart(const char* option, const std::string& path, const char* other,
                 const std::string& other_path) {
    if (path.empty() || other_path.empty()) return;
    const std::string both = std::string(option) + " " + path + " and " + other + " " + other_path;
    if (path == "-" || other_path == "-") {
        if (path == other_path) throw usage_error(both + " cannot both have standard output");
        return;
    }
    namespace fs = std::filesystem;
    std::error_code unknown;  // such as of a folder that is not there: writing tells it
    if (fs::exists(path, unknown) && fs::exists(other_path, unknown)) {
        // Not all that has a name is a file: two documents may go to /dev/null.
        if (!fs::is_regular_file(path, unknown) || !fs::equivalent(path, other_path, unknown)) return;
    } else {
        const fs::path first = fs::weakly_canonical(fs::absolute(path, unknown), unknown);
        if (first.empty() || first != fs::weakly_canonical(fs::absolute(other_path, unknown), unknown))
            return;
    }
    throw usage_error(both + " are one file");
}

void check_written() {
    // What did not fit into the buffer failed before.
    const bool failed = std::ferror(stdout) != 0;
    if (std::fflush(stdout) != 0) refuse_file("-");
    if (failed) throw run_error("cannot write standard output");
}

}  // namespace pingpong
