#include "links.hpp"

#include "../../tools/pingpong/text.hpp"

#include <filesystem>
#include <system_error>

namespace bench {

transport_entry shm_entry();
#if RDMACORO_WITH_TCP
transport_entry tcp_entry();
#endif
#if RDMACORO_WITH_VERBS
transport_entry verbs_entry();
#endif

namespace {

std::vector<transport_entry> found_here() {
    std::vector<transport_entry> found{shm_entry()};
#if RDMACORO_WITH_TCP
    found.push_back(tcp_entry());
#endif
#if RDMACORO_WITH_VERBS
    // Where there is no device, "all" means the others.
    std::error_code none;
    if (!std::filesystem::is_empty("/sys/class/infiniband", none) && !none) found.push_back(verbs_entry());
#endif
    return found;
}

}  // namespace

const std::vector<transport_entry>& all_transports() {
    static const std::vector<transport_entry> all = found_here();
    return all;
}

std::string transport_names() {
    std::string names;
    for (const transport_entry& transport : all_transports()) pingpong::append_item(names, transport.name);
    return names;
}

std::string protocol_names() {
    std::string names;
    for (const link_entry& link : all_transports().front().links) {
        pingpong::append_item(names, std::string(link.protocol) + " (" + std::string(link.description) + ")");
    }
    return names;
}

}  // namespace bench
