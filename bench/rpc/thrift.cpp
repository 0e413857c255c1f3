// Calls of Thrift over buffered transports with the binary protocol. Its C++ has no asynchronous client for TCP: 64 requests are sent
// ahead of the answers by the generated client's `send_` and `recv_`.

#include "Echo.h"
#include "common.hpp"

#include <thrift/protocol/TBinaryProtocol.h>
#include <thrift/server/TThreadedServer.h>
#include <thrift/transport/TBufferTransports.h>
#include <thrift/transport/TServerSocket.h>
#include <thrift/transport/TSocket.h>

#include <memory>

namespace {

namespace at = apache::thrift;

class adds final : public rpc_peer_thrift::EchoIf {
    std::int64_t plus(const std::int64_t number) override { return number + 1; }
};

void serve(std::uint16_t port) {
    at::server::TThreadedServer server(
        std::make_shared<rpc_peer_thrift::EchoProcessor>(std::make_shared<adds>()),
        std::make_shared<at::transport::TServerSocket>("127.0.0.1", port),
        std::make_shared<at::transport::TBufferedTransportFactory>(),
        std::make_shared<at::protocol::TBinaryProtocolFactory>());
    server.serve();
}

void measure(std::uint16_t port, std::size_t rounds, rpc_peer::figures& into) {
    const auto socket = std::make_shared<at::transport::TSocket>("127.0.0.1", port);
    const auto buffered = std::make_shared<at::transport::TBufferedTransport>(socket);
    rpc_peer_thrift::EchoClient client(std::make_shared<at::protocol::TBinaryProtocol>(buffered));
    buffered->open();
    into.one_at_a_time(rounds, [&](std::uint64_t number) {
        const auto sent = static_cast<std::int64_t>(number);
        rpc_peer::check(static_cast<std::uint64_t>(client.plus(sent)), number + 1);
    });
    into.under_way(rounds, [&](std::size_t count) {
        std::size_t begun = 0;
        for (; begun < std::min(rpc_peer::window, count); ++begun)
            client.send_plus(static_cast<std::int64_t>(begun));
        for (std::size_t ended = 0; ended < count; ++ended) {
            rpc_peer::check(static_cast<std::uint64_t>(client.recv_plus()), ended + 1);
            if (begun < count) client.send_plus(static_cast<std::int64_t>(begun++));
        }
    });
}

}  // namespace

int main(int argc, char** argv) { return rpc_peer::run(argc, argv, "Thrift", serve, measure); }
