#include "settings.hpp"

#include "../../tools/pingpong/cpus.hpp"
#include "../../tools/pingpong/output.hpp"
#include "../../tools/pingpong/program.hpp"
#include "../../tools/pingpong/sizes.hpp"
#include "../../tools/pingpong/text.hpp"

#include <charconv>
#include <utility>

namespace bench {

std::uint64_t parse_number(const char* option, const std::string& text, std::uint64_t least,
                           std::uint64_t most) {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end || number < least || number > most) {
        throw usage_error(std::string(option) + ": \"" + text + "\" is not a number from " +
                          std::to_string(least) + " to " + std::to_string(most));
    }
    return number;
}

std::vector<std::size_t> parse_names(const char* option, const std::string& list,
                                     const std::vector<std::string_view>& known) {
    std::vector<std::size_t> found;
    if (list == "all") {
        for (std::size_t i = 0; i < known.size(); ++i) found.push_back(i);
        return found;
    }
    for (const std::string& name : pingpong::split_at_commas(list)) {
        const auto at = std::find(known.begin(), known.end(), name);
        if (at == known.end()) {
            std::string names;
            for (const std::string_view one : known) pingpong::append_item(names, one);
            throw usage_error(std::string(option) + ": there is no \"" + name + "\"; there are " + names +
                              ", and all");
        }
        found.push_back(static_cast<std::size_t>(at - known.begin()));
    }
    return found;
}

std::vector<int> parse_sides(const std::string& list, std::size_t sides) {
    std::vector<int> cpus = list.empty() ? pingpong::usable_cpus() : pingpong::parse_cpus(list);
    if (list.empty() && cpus.size() > sides) cpus.resize(sides);
    if (cpus.size() != sides || (sides == 2 && cpus[0] == cpus[1])) {
        throw usage_error(sides == 1 ? "--cpus: one CPU, such as 0"
                          : list.empty()
                              ? "the two sides are pinned to two CPUs, and this process may use only one"
                              : "--cpus: two different CPUs, such as 0,1");
    }
    return cpus;
}

command_line::command_line(const std::string& name, const std::string& description, defaults usual)
    : options(description, name), usual_(std::move(usual)), transports_("all") {
    asked.name = name;
    add("--transport", transports_, "Over these: " + transport_names() + ". Default: all")
        .type_name("NAME,...");
    if (usual_.pair) {
        add("--protocol", usual_.protocols,
            "How messages travel: " + protocol_names() +
                "; several are measured one after the other. Default: " + usual_.protocols)
            .type_name("NAME,...");
        add("--idle", idle_,
            "What a side does when nothing moves: spin, yield, or adaptive (spin, yield, then "
            "sleep). Default: spin")
            .type_name("HOW");
        add("--timeout", timeout_, "Give up when nothing moves for so long; 0: never. Default: 60")
            .type_name("SECONDS");
    }
    add("--sizes", usual_.sizes,
        "Sizes: 8,1K,1M, or a range of powers of two, 1:64M; K, M, G are powers of 1024. "
        "Default: " +
            usual_.sizes)
        .type_name("SIZE,...");
    add("--repeat", usual_.repeat, usual_.repeat_help + ". Default: " + usual_.repeat).type_name("N");
    if (!usual_.rounds.empty()) {
        add("--rounds", usual_.rounds,
            "Measure everything so often, in turn, and show the medians. Default: " + usual_.rounds)
            .type_name("N");
    }
    add("--cpus", cpus_,
        usual_.pair ? "Pin to these two CPUs: the measuring side's, then the other's. Default: "
                      "the first two of this machine"
                    : "Pin to this CPU. Default: the first of this machine")
        .type_name(usual_.pair ? "A,B" : "A");
    add("--json", asked.json, "Write the results as JSON; - is standard output").type_name("FILE");
}

bool command_line::parse(int argc, char** argv) {
    if (!options::parse(argc, argv)) return false;

    std::vector<std::string_view> known;
    for (const transport_entry& transport : all_transports()) known.push_back(transport.name);
    for (const std::size_t i : parse_names("--transport", transports_, known))
        asked.transports.push_back(&all_transports()[i]);
    known.clear();
    for (const link_entry& link : all_transports().front().links) known.push_back(link.protocol);
    const std::vector<std::size_t> lists = parse_names("--protocol", usual_.protocols, known);
    for (const transport_entry* transport : asked.transports) {
        for (const std::size_t i : lists) asked.links.push_back(&transport->links[i]);
    }

    constexpr std::size_t longest = std::size_t{1} << 32;
    asked.sizes = pingpong::parse_sizes(usual_.sizes);
    for (const std::size_t bytes : asked.sizes) {
        if (bytes == 0) throw usage_error("--sizes: a message of 0 bytes has no last byte to look at");
        if (bytes > longest) throw usage_error("--sizes: at most 4G");
    }
    asked.repeat = parse_number("--repeat", usual_.repeat, 1, 1'000'000);
    if (!usual_.rounds.empty()) asked.rounds = parse_number("--rounds", usual_.rounds, 1, 1000);
    asked.timeout_seconds = parse_number("--timeout", timeout_, 0, 1'000'000);

    constexpr auto& idles = pingpong::idle_names;
    const auto idle = std::find(idles.begin(), idles.end(), idle_);
    if (idle == idles.end())
        throw usage_error("--idle: there is no strategy \"" + idle_ + "\"; there are spin, yield, adaptive");
    asked.idle = static_cast<idle_kind>(idle - idles.begin());

    asked.cpus = parse_sides(cpus_, usual_.pair ? 2 : 1);
    return true;
}

int run_program(const char* name, int argc, char** argv, void (*body)(int argc, char** argv)) {
    return pingpong::run_program(name, [&] {
        body(argc, argv);
        return 0;
    });
}

}  // namespace bench
