// tune: measures what messages cost, and says which algorithm each collective should use here.

#include "measure.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"

#include "../pingpong/output.hpp"
#include "../pingpong/program.hpp"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

void run(const tune::options& asked) {
    std::vector<tune::link_samples> samples;
    if (!asked.from.empty()) samples = tune::samples_of(asked.from);
    // Which makes the files: after what may be refused, and before measuring, which takes long.
    pingpong::check_writable(asked.json);
    pingpong::check_writable(asked.header);
    if (asked.from.empty()) {
        for (const std::string& transport : asked.transports) {
            const auto progress = [&](const std::string& text) {
                if (!asked.quiet) std::fprintf(stderr, "%s: %s\n", transport.c_str(), text.c_str());
            };
            samples.push_back(tune::measure_link(transport, asked.how, progress));
        }
    }
    std::vector<tune::fitted_link> links;
    for (tune::link_samples& one : samples) links.push_back(tune::fit_link(std::move(one)));
    for (const std::string& text : tune::doubts_of(links)) std::fprintf(stderr, "tune: %s\n", text.c_str());
    const std::vector<tune::choice> choices =
        tune::choose_all(asked.ranks, asked.hosts, links.front().costs, links.back().costs);
    // What is written to standard output stands there alone.
    if (asked.json != "-" && asked.header != "-") {
        std::string text;
        for (const tune::fitted_link& one : links) text += tune::text_of(one);
        pingpong::write_to("-", text + tune::text_of(choices, asked.hosts));
    }
    pingpong::write_to(asked.json, tune::json_of(links, choices, asked.hosts));
    pingpong::write_to(asked.header, tune::header_of(links, asked.name));
}

}  // namespace

int main(int argc, char** argv) {
    return pingpong::run_program("tune", [&] {
        const auto asked = tune::parse_options(argc, argv);
        if (asked) run(*asked);
        return 0;
    });
}
