#include "results.hpp"

#include "failure.hpp"
#include "machine.hpp"
#include "output.hpp"
#include "sizes.hpp"
#include "text.hpp"
#include "watch.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <utility>

namespace pingpong {

namespace {

/// The cells of a line, right-aligned below each other.
template <std::size_t N>
std::string line_of(const std::array<std::string, N>& cells) {
    constexpr std::array<std::size_t, 12> widths{6, 11, 10, 10, 10, 10, 10, 10, 10, 9, 9, 10};
    static_assert(N == widths.size());
    std::string line;
    for (std::size_t i = 0; i < N; ++i) {
        if (i != 0) line += ' ';
        line.append(cells[i].size() < widths[i] ? widths[i] - cells[i].size() : 0, ' ');
        line += cells[i];
    }
    return line + '\n';
}

/// "eager", or "eager 12, get_rendezvous 88" where there were several.
std::string carried_text(const result_row& row) {
    if (row.carried.empty()) return row.policy;
    if (row.carried.size() == 1) return std::string(row.carried.front().policy);
    std::string text;
    for (const carried_by& one : row.carried)
        append_item(text, std::string(one.policy) + " " + std::to_string(one.messages));
    return text;
}

nlohmann::ordered_json entry(const result_row& row, const run_facts& facts, const options& asked) {
    return {{"test", facts_of(row.test).name},
            {"transport", facts.transport},
            {"protocol", asked.protocol},
            {"policy", row.policy},
            {"bytes", row.bytes},
            {"iterations", row.iterations},
            {"window", row.window},
            {"buffers", row.buffers},
            {"threads", asked.threads},
            {"samples", row.samples},
            {"min_ns", rounded(row.times.min)},
            {"median_ns", rounded(row.times.median)},
            {"mean_ns", rounded(row.times.mean)},
            {"p95_ns", rounded(row.times.p95)},
            {"p99_ns", rounded(row.times.p99)},
            {"p999_ns", rounded(row.times.p999)},
            {"max_ns", rounded(row.times.max)},
            {"bytes_per_s", rounded(row.bytes_per_s)},
            {"messages_per_s", rounded(row.messages_per_s)},
            {"verified", asked.verify}};
}

nlohmann::ordered_json cpu_entry(int cpu) {
    return cpu < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(cpu);
}

}  // namespace

reporter::reporter(const options& asked) : asked_(asked) {
    check_writable(asked.json);
    check_writable(asked.csv);
}

void reporter::print(const std::string& text) const {
    // Standard output belongs to the document where one is asked for there.
    watch::clear_line();
    if (asked_.json == "-" || asked_.csv == "-")
        std::fputs(text.c_str(), stderr);
    else
        write_to("-", text);
}

void reporter::begin(const run_facts& facts) {
    facts_ = facts;
    const auto cpu = [](int number) { return number < 0 ? std::string("any") : std::to_string(number); };
    print(facts.peer + ", protocol " + asked_.protocol + " (" + facts.protocols + "), idle " + facts.idle +
          ", CPU " + cpu(facts.cpu) + " to CPU " + cpu(facts.peer_cpu) +
          (asked_.threads == 1 ? "" : ", " + std::to_string(asked_.threads) + " threads a side") +
          (asked_.verify ? ", verifying" : "") + "\n");
}

void reporter::add(const result_row& row) {
    rows_.push_back(row);
    const test_facts& test = facts_of(row.test);
    if (shown_ != &test || shown_window_ != row.window) {
        shown_ = &test;
        shown_window_ = row.window;
        std::string title("\n");
        const char* const sample =
            goes_there_and_back(row.test, row.window) ? "half a round trip" : test.sample;
        title.append(test.name).append(" (times: ").append(sample).append(")");
        if (row.window != 1) title.append(", window ").append(std::to_string(row.window));
        if (row.buffers != 1) title.append(" in ").append(std::to_string(row.buffers)).append(" buffers");
        print(title + "\n" +
              line_of(std::array<std::string, 12>{"size", "iterations", "min", "median", "mean", "p95", "p99",
                                                  "p99.9", "max", "GB/s", "M msg/s", "carried by"}));
    }
    const summary& t = row.times;
    print(line_of(std::array<std::string, 12>{
        size_text(row.bytes), std::to_string(row.iterations), time_text(t.min), time_text(t.median),
        time_text(t.mean), time_text(t.p95), time_text(t.p99), time_text(t.p999), time_text(t.max),
        number_text(row.bytes_per_s / 1e9, 3), number_text(row.messages_per_s / 1e6, 4), carried_text(row)}));
}

std::string reporter::json() const {
    const machine_facts machine = describe_machine();
    nlohmann::ordered_json document;
    document["machine"] = {
        {"kernel", machine.kernel},
        {"architecture", machine.architecture},
        {"cpu", machine.cpu},
        {"cpus", nlohmann::ordered_json::array({cpu_entry(facts_.cpu), cpu_entry(facts_.peer_cpu)})},
        {"idle", facts_.idle},
        {"clock_step_ns", rounded(facts_.clock_step_ns)},
        {"compiler", machine.compiler},
        {"optimization", machine.optimization},
        {"rdmacoro", PINGPONG_VERSION},
        {"date", machine.date}};
    document["results"] = nlohmann::ordered_json::array();
    for (const result_row& row : rows_) {
        nlohmann::ordered_json fields = entry(row, facts_, asked_);
        fields["carried"] = nlohmann::ordered_json::object();
        for (const carried_by& one : row.carried) fields["carried"][std::string(one.policy)] = one.messages;
        document["results"].push_back(std::move(fields));
    }
    return document.dump(2) + "\n";
}

std::string reporter::csv() const {
    std::string text;
    for (const result_row& row : rows_) {
        const nlohmann::ordered_json fields = entry(row, facts_, asked_);
        std::string names;
        std::string values;
        for (const auto& [name, value] : fields.items()) {
            append_item(names, name, ",");
            append_item(values, value.is_string() ? value.get<std::string>() : value.dump(), ",");
        }
        if (text.empty()) text.append(names).append("\n");
        text.append(values).append("\n");
    }
    return text;
}

void reporter::finish() {
    if (!asked_.json.empty()) write_to(asked_.json, json());
    if (!asked_.csv.empty()) write_to(asked_.csv, csv());
}

}  // namespace pingpong
