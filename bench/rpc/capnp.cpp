// Calls of Cap'n Proto, by its promises: one thread each side.

#include "common.hpp"
#include "echo.capnp.h"

#include <capnp/ez-rpc.h>
#include <kj/async.h>

namespace {

using rpc_peer_capnp::Echo;

class adds final : public Echo::Server {
    kj::Promise<void> plus(PlusContext context) override {
        context.getResults().setNumber(context.getParams().getNumber() + 1);
        return kj::READY_NOW;
    }
};

void serve(std::uint16_t port) {
    capnp::EzRpcServer server(kj::heap<adds>(), "127.0.0.1", port);
    kj::NEVER_DONE.wait(server.getWaitScope());
}

/// Calls in a row, one of `window` such rows.
class rows final : public kj::TaskSet::ErrorHandler {
public:
    rows(Echo::Client& at, std::size_t count) : at_(at), left_(count), tasks_(*this) {
        for (std::size_t i = 0; i < rpc_peer::window; ++i) next();
    }
    void wait(kj::WaitScope& scope) { tasks_.onEmpty().wait(scope); }
    void taskFailed(kj::Exception&& failure) override {
        std::fprintf(stderr, "Cap'n Proto: %s\n", failure.getDescription().cStr());
        std::_Exit(1);
    }

private:
    void next() {
        if (left_ == 0) return;
        const std::uint64_t number = --left_;
        auto request = at_.plusRequest();
        request.setNumber(number);
        tasks_.add(request.send().then([this, number](capnp::Response<Echo::PlusResults>&& got) {
            rpc_peer::check(got.getNumber(), number + 1);
            next();
        }));
    }

    Echo::Client& at_;
    std::size_t left_;
    kj::TaskSet tasks_;
};

void measure(std::uint16_t port, std::size_t rounds, rpc_peer::figures& into) {
    capnp::EzRpcClient connection("127.0.0.1", port);
    auto& scope = connection.getWaitScope();
    auto at = connection.getMain<Echo>();
    into.one_at_a_time(rounds, [&](std::uint64_t number) {
        auto request = at.plusRequest();
        request.setNumber(number);
        const auto got = request.send().wait(scope);
        rpc_peer::check(got.getNumber(), number + 1);
    });
    into.under_way(rounds, [&](std::size_t count) {
        rows all(at, count);
        all.wait(scope);
    });
}

}  // namespace

int main(int argc, char** argv) { return rpc_peer::run(argc, argv, "Cap'n Proto", serve, measure); }
