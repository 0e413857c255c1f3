// Output of results: rows of a table as they come, and JSON at the end.
#pragma once

#include "settings.hpp"

#include "../../tools/pingpong/output.hpp"
#include "../../tools/pingpong/sizes.hpp"
#include "../../tools/pingpong/ticks.hpp"

#include <nlohmann/json.hpp>

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

using pingpong::number_text;
using pingpong::rounded;
using pingpong::size_text;
using pingpong::time_text;

struct column {
    std::string_view name;
    std::size_t width;
};

class report {
public:
    /// Throws `run_error` when the JSON file cannot be written, before anything is measured.
    report(const settings& asked, std::vector<column> columns);

    /// A line above the rows that follow, and the names of the columns again.
    void section(const std::string& title);
    /// One row: its cells for the table, its fields for the file.
    void row(std::initializer_list<std::string> cells, nlohmann::ordered_json fields);
    /// Text below the rows.
    void note(const std::string& text);
    /// Writes the file. Throws `run_error`.
    void finish(nlohmann::ordered_json facts = nlohmann::ordered_json::object());

    [[nodiscard]] double ns_per_tick() const noexcept { return ticks_.ns; }

private:
    void print(const std::string& text) const;
    [[nodiscard]] std::string line_of(const std::vector<std::string>& cells) const;

    const settings& asked_;
    std::vector<column> columns_;
    pingpong::tick_facts ticks_;
    nlohmann::ordered_json results_ = nlohmann::ordered_json::array();
};

}  // namespace bench
