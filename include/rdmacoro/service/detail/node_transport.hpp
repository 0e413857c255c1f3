// node_transport: what a node does over one of its transports, behind virtual functions: accepts connections, makes them, and closes them.
#pragma once

#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/service/detail/node_core.hpp>
#include <rdmacoro/service/detail/node_guards.hpp>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>

namespace rdmacoro::detail {

/// The outcome of an attempt to connect; zero: there is a connection.
struct node_try {
    std::error_code why{};
    std::string text{};
};

/// One of a node's transports. Lives as long as the node, which has stopped its coroutines before.
class node_transport {
public:
    node_transport(const node_transport&) = delete;
    node_transport& operator=(const node_transport&) = delete;
    virtual ~node_transport() = default;

    [[nodiscard]] bool has_scheme_of(std::string_view url) const noexcept {
        return url.starts_with(name) && url.substr(name.size()).starts_with("://");
    }
    /// It reaches nodes of this host only.
    [[nodiscard]] bool is_within_host() const noexcept { return name == "shm"; }

    /// Accepts connections at that URL from now on. Others hear of `as`, which becomes the address of the listener where it is empty.
    [[nodiscard]] virtual task<> listen(std::string url, std::string& as) = 0;
    /// One attempt to connect. `place` is the connection's afterwards, if there is one.
    [[nodiscard]] virtual task<node_try> try_to_connect(node_peer& to, std::string url,
                                                        node_place& place) = 0;
    /// Says why, and closes in good order. `of` is a connection of this transport.
    [[nodiscard]] virtual task<> close(node_record& of, std::byte why, duration limit) = 0;

    const std::string_view name;
    const unsigned index;  // in the node's list

protected:
    node_transport(node_core& of, unsigned at, std::string_view called) noexcept
        : name(called), index(at), node_(of) {}

    node_core& node_;
};

/// The same with the transport's type, as far as the node's user has to do with it.
template <transport T>
class node_transport_of : public node_transport {
public:
    /// nullptr: the scheduler's own.
    typename T::domain* const domain;
    /// The function for connections.
    std::function<task<>(endpoint<T>&, node_id, generation)> handler{};
    /// Whether messages are that function's to receive; else those that are not of calls are for `peer()`, as without a function.
    bool handler_receives = true;

protected:
    node_transport_of(node_core& of, unsigned at, typename T::domain* in) noexcept
        : node_transport(of, at, T::name), domain(in) {}
};

}  // namespace rdmacoro::detail
