#include "libfabric.hpp"

using json = nlohmann::ordered_json;

#if RDMACORO_WITH_OFI

#include <rdmacoro/transport/ofi.hpp>

#include <algorithm>
#include <csignal>
#include <exception>
#include <string>

namespace {

using namespace rdmacoro;
namespace fabric = rdmacoro::detail::fabric;

/// The flags by libfabric's names for them.
json names_of(const std::string& text) {
    json names = json::array();
    for (std::size_t begin = 0; begin < text.size();) {
        const std::size_t end = std::min(text.find(", ", begin), text.size());
        names.push_back(text.substr(begin, end - begin));
        begin = end + 2;
    }
    return names;
}

std::string version_text(std::uint32_t version) {
    return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

/// The answer of a provider before it is opened.
json answered(const fi_info& info) {
    const auto mode = static_cast<std::uint64_t>(static_cast<unsigned>(info.domain_attr->mr_mode));
    return {{"name", info.fabric_attr->prov_name},
            {"scheme", nullptr},
            {"version", version_text(info.fabric_attr->prov_version)},
            {"domain", info.domain_attr->name != nullptr ? info.domain_attr->name : ""},
            {"inject_bytes", info.tx_attr->inject_size},
            {"mr_mode", mode == 0 ? json::array() : names_of(fabric::mr_mode_text(mode))},
            {"get_alignment", nullptr},
            {"atomics", (info.caps & FI_ATOMIC) != 0},
            {"wait", nullptr},
            {"receives", nullptr},
            {"most_links", nullptr},
            {"problem", nullptr}};
}

/// Opens it, as a domain of rdmacoro does: only then is known whether it is what its description says.
void open(json& provider, const ofi_profile& profile) {
    provider["scheme"] = std::string(profile.scheme);
    provider["get_alignment"] = profile.get_alignment;
    try {
        ofi_options options;
        options.provider = profile.provider;
        const fabric::device opened(profile, options);
        json now = answered(opened.info());
        for (const char* field : {"domain", "inject_bytes", "mr_mode"}) provider[field] = now[field];
        provider["atomics"] = opened.atomics();
        provider["wait"] = opened.wait_fd() >= 0 ? "descriptor" : "none";
        provider["receives"] = opened.most_receives();
        // Where what finds no receive is lost, each link needs some of its own.
        if (!profile.keeps_unexpected)
            provider["most_links"] = opened.most_receives() / fabric::connect_info::least_credits;
    } catch (const std::exception& why) {
        provider["problem"] = why.what();
    }
}

}  // namespace

json libfabric_report() {
    // Libraries below libfabric catch signals, and write files when one ends the program.
    for (const int one : {SIGINT, SIGTERM, SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGFPE})
        std::signal(one, SIG_DFL);
    json providers = json::array();
    const fabric::unique_info found = fabric::all_answers();
    for (const fi_info* one = found.get(); one != nullptr; one = one->next) {
        const std::string name = one->fabric_attr->prov_name;
        bool known = false;
        for (const json& listed : providers) known = known || listed["name"] == name;
        if (known) continue;
        providers.push_back(answered(*one));
        if (const ofi_profile* profile = provider::find(name);
            profile != nullptr && profile->provider == name)
            open(providers.back(), *profile);
    }
    return {{"version", version_text(::fi_version())}, {"providers", std::move(providers)}};
}

#else

json libfabric_report() { return nullptr; }

#endif
