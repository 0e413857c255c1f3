#include "report.hpp"

#include "../../tools/pingpong/machine.hpp"
#include "../../tools/pingpong/watch.hpp"

#include <cstdio>
#include <utility>

namespace bench {

report::report(const settings& asked, std::vector<column> columns)
    : asked_(asked), columns_(std::move(columns)), ticks_(pingpong::calibrate_ticks()) {
    pingpong::check_writable(asked.json);
}

void report::print(const std::string& text) const {
    pingpong::watch::clear_line();
    if (asked_.json == "-")  // standard output is the document's then
        std::fputs(text.c_str(), stderr);
    else
        pingpong::write_to("-", text);
}

std::string report::line_of(const std::vector<std::string>& cells) const {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        const std::size_t width = columns_.at(i).width;
        if (i != 0) line += ' ';
        line.append(cells[i].size() < width ? width - cells[i].size() : 0, ' ').append(cells[i]);
    }
    return line + '\n';
}

void report::section(const std::string& title) {
    std::vector<std::string> names;
    for (const column& one : columns_) names.emplace_back(one.name);
    print("\n" + title + "\n" + line_of(names));
}

void report::row(std::initializer_list<std::string> cells, nlohmann::ordered_json fields) {
    print(line_of(cells));
    results_.push_back(std::move(fields));
}

void report::note(const std::string& text) { print("  " + text + "\n"); }

void report::finish(nlohmann::ordered_json facts) {
    if (asked_.json.empty()) return;
    const pingpong::machine_facts machine = pingpong::describe_machine();
    nlohmann::ordered_json document;
    document["machine"] = {{"kernel", machine.kernel},
                           {"architecture", machine.architecture},
                           {"cpu", machine.cpu},
                           {"cpus", asked_.cpus},
                           {"idle", pingpong::idle_names[static_cast<std::size_t>(asked_.idle)]},
                           {"clock_step_ns", rounded(ticks_.step_ns)},
                           {"compiler", machine.compiler},
                           {"optimization", machine.optimization},
                           {"rdmacoro", RDMACORO_VERSION_TEXT},
                           {"date", machine.date}};
    document["settings"] = {{"repeat", asked_.repeat}};
    if (asked_.rounds != 0) document["settings"]["rounds"] = asked_.rounds;
    for (const auto& [name, value] : facts.items()) document["settings"][name] = value;
    document["results"] = std::move(results_);
    pingpong::write_to(asked_.json, document.dump(2) + "\n");
}

}  // namespace bench
