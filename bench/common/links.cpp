#include "links.hpp"

#include "../../tools/pingpong/text.hpp"

namespace bench {

transport_entry shm_entry();
#if RDMACORO_WITH_TCP
transport_entry tcp_entry();
#endif

const std::vector<transport_entry>& all_transports() {
#if RDMACORO_WITH_TCP
    static const std::vector<transport_entry> all{shm_entry(), tcp_entry()};
#else
    static const std::vector<transport_entry> all{shm_entry()};
#endif
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
