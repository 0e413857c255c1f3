// The transports and protocol lists that the programs here can measure.
#pragma once

#include "peer.hpp"

#include "../../tools/pingpong/idle_choice.hpp"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

using pingpong::idle_kind;

/// The part of one side, called once it is connected.
using side = std::function<rc::task<>(peer&)>;

/// One protocol list over one transport.
struct link_entry {
    std::string_view transport;
    std::string_view protocol;
    std::string_view description;
    std::string text;  ///< the list: "eager, segmented"
    /// Connects, calls `what`, closes. Throws.
    void (*connect)(const std::string& address, idle_kind idle, const side& what);
    /// Listens, reports its address, calls `what` with the first peer accepted. Throws.
    void (*listen)(const std::string& address, idle_kind idle,
                   const std::function<void(const std::string& address)>& listening, const side& what);
};

/// One transport's memory registration, without a peer.
class registrar {
public:
    registrar() = default;
    registrar(const registrar&) = delete;
    registrar& operator=(const registrar&) = delete;
    virtual ~registrar() = default;
    [[nodiscard]] virtual rc::region register_memory(std::span<std::byte> memory) = 0;
};

struct transport_entry {
    std::string_view name;
    std::vector<link_entry> links;
    /// Calls `what` inside a running scheduler with a domain of the transport. Throws.
    void (*with_domain)(const std::function<void(registrar&)>& what);
};

[[nodiscard]] const std::vector<transport_entry>& all_transports();

/// "shm, tcp" and "auto (the library's own choice), ...".
[[nodiscard]] std::string transport_names();
[[nodiscard]] std::string protocol_names();

}  // namespace bench
