#include "transports.hpp"

#include "failure.hpp"
#include "options.hpp"
#include "text.hpp"

#include <array>

namespace pingpong {

std::span<const transport_entry* const> all_transports() {
    static constexpr std::array all{
        &shm_transport,
#if RDMACORO_WITH_TCP
        &tcp_transport,
#endif
#if RDMACORO_WITH_VERBS
        &verbs_transport,
#endif
#if RDMACORO_WITH_OFI && !defined(PINGPONG_WITHOUT_OFI)
        &ofi_transport,
#endif
    };
    return all;
}

const transport_entry* find_transport(std::string_view scheme) {
    for (const transport_entry* transport : all_transports()) {
        if (transport->scheme == scheme) return transport;
    }
    return nullptr;
}

const protocol_entry& find_list(const transport_entry& transport, std::string_view name) {
    std::string names;
    for (const protocol_entry& list : transport.lists) {
        if (list.name == name) return list;
        append_item(names, list.name);
    }
    throw usage_error("--protocol: there is no protocol list \"" + std::string(name) +
                      "\"; compiled in are " + names);
}

const protocol_entry& list_of(const options& asked) {
    return find_list(*find_transport(asked.where.scheme), asked.protocol);
}

std::string address_forms() {
    std::string forms;
    for (const transport_entry* transport : all_transports()) {
        append_item(forms, transport->form, " or ");
    }
    return forms;
}

std::string list_names() {
    std::string names;
    for (const protocol_entry& list : shm_transport.lists) {
        append_item(names, std::string(list.name) + " (" + std::string(list.description) + ")");
    }
    return names;
}

}  // namespace pingpong
