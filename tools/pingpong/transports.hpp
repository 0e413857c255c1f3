// The transports and protocol lists that are compiled in.
#pragma once

#include <rdmacoro/coro/task.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pingpong {

struct options;
class peer;
class peer_listener;

/// One protocol list over one transport.
struct protocol_entry {
    std::string_view name;
    std::string_view description;
    rdmacoro::task<std::unique_ptr<peer>> (*connect)(std::string address);
    rdmacoro::task<std::unique_ptr<peer_listener>> (*listen)(std::string address);
    /// The table of protocols, without a link.
    std::string (*explain)();
};

struct transport_entry {
    std::string_view scheme;
    std::string_view form;  ///< of its addresses
    std::vector<protocol_entry> lists;
};

[[nodiscard]] std::span<const transport_entry* const> all_transports();
/// nullptr when there is none.
[[nodiscard]] const transport_entry* find_transport(std::string_view scheme);
/// Throws `usage_error` with the names that there are.
[[nodiscard]] const protocol_entry& find_list(const transport_entry& transport, std::string_view name);

/// What the options name. Throws `usage_error`.
[[nodiscard]] const protocol_entry& list_of(const options& asked);

/// For people.
[[nodiscard]] std::string address_forms();
[[nodiscard]] std::string list_names();

extern const transport_entry shm_transport;
extern const transport_entry tcp_transport;
extern const transport_entry verbs_transport;
extern const transport_entry ofi_transport;

}  // namespace pingpong
