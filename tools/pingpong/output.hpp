// Writing results: figures for people and for files, and the files.
#pragma once

#include <string>

namespace pingpong {

/// Four significant digits and a unit: "187.3 ns".
[[nodiscard]] std::string time_text(double ns);
[[nodiscard]] std::string number_text(double number, int digits);

/// A figure for files: enough digits for any use, no more.
[[nodiscard]] double rounded(double value);

/// Writes `text` to a file, or to standard output for "-"; an empty path is nowhere. Throws `run_error`.
void write_to(const std::string& path, const std::string& text);

/// Throws `run_error` where `write_to` could not write; leaves an existing file alone.
void check_writable(const std::string& path);

/// Throws `usage_error` where two options name one file, or standard output, for two documents.
void check_apart(const char* option, const std::string& path, const char* other,
                 const std::string& other_path);

/// Throws `run_error` where standard output did not take all that was written to it so far.
void check_written();

}  // namespace pingpong
