// node_connections: how a node makes connections, accepts and closes them, over whichever of its transports.
#pragma once

#include <rdmacoro/coro/detail/counted.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/service/detail/node_core.hpp>
#include <rdmacoro/service/detail/node_transport.hpp>

#include <memory>
#include <string>
#include <vector>

namespace rdmacoro::detail {

class node_connections : public node_core {
public:
    using node_core::node_core;
    RDMACORO_DECL ~node_connections() override;  // stops

    /// Accepts connections at that URL, by the transport of its scheme. Ends with the URL at which others can connect: `as`, unless it is
    /// empty.
    [[nodiscard]] static task<std::string> listen(counted_ptr<node_connections> self, std::string url,
                                                  std::string as);
    /// Closes all connections in good order.
    [[nodiscard]] static task<> close(counted_ptr<node_connections> self);
    /// Ends all connections now, and everything that waits; then waits until the functions of connections have ended. Says on stderr, once, which
    /// take longer than a connection may take to close.
    void stop() noexcept;

    void begin_connect(node_peer& to) override;
    void begin_close(node_record& which, leave_reason why) override;

protected:
    std::vector<std::unique_ptr<node_transport>> transports_;  // in the order of the node's list

private:
    [[nodiscard]] static task<> connect_peer(node_connections* self, counted_ptr<node_peer> to);
    [[nodiscard]] static task<node_try> try_all(node_connections* self, node_peer& to);
    [[nodiscard]] static task<node_try> try_each(node_connections* self, node_peer& to);
    [[nodiscard]] static task<> close_record(node_connections* self, counted_ptr<node_record> of);
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/node_connections.ipp>
#endif
