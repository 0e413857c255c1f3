// The transports and protocol lists that are compiled in.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pingpong {

struct options;
class reporter;

/// One protocol list over one transport.
struct protocol_entry {
    std::string_view name;
    std::string_view description;
    /// The connecting side: measures as the options ask. Throws.
    void (*connect)(const options& asked, reporter& out);
    /// The listening side. Reports its address once it listens. Throws when a run failed.
    void (*listen)(const options& asked, const std::function<void(const std::string& address)>& listening);
    /// The table of protocols: of a connected link, or, when no process listens there, the one known without a link.
    std::string (*explain)(const options& asked);
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

/// For people.
[[nodiscard]] std::string address_forms();
[[nodiscard]] std::string list_names();

extern const transport_entry shm_transport;
extern const transport_entry tcp_transport;
extern const transport_entry verbs_transport;
extern const transport_entry ofi_transport;

}  // namespace pingpong
