// Calls of gRPC, by its completion queues: one thread each side.

#include "common.hpp"
#include "echo.grpc.pb.h"

#include <grpcpp/grpcpp.h>

#include <memory>

namespace {

using rpc_peer_grpc::Echo;
using rpc_peer_grpc::Number;

/// A place for a call at the server: asked for, then answered, then asked for again.
class served {
public:
    served(Echo::AsyncService& service, grpc::ServerCompletionQueue& queue)
        : service_(service), queue_(queue) {
        ask();
    }
    void next(bool ok) {
        if (!ok) return;
        if (answered_) return ask();
        Number answer;
        answer.set_number(request_.number() + 1);
        answered_ = true;
        writer_->Finish(answer, grpc::Status::OK, this);
    }

private:
    void ask() {
        answered_ = false;
        writer_.reset();
        context_ = std::make_unique<grpc::ServerContext>();
        writer_ = std::make_unique<grpc::ServerAsyncResponseWriter<Number>>(context_.get());
        service_.RequestPlus(context_.get(), &request_, writer_.get(), &queue_, &queue_, this);
    }

    Echo::AsyncService& service_;
    grpc::ServerCompletionQueue& queue_;
    bool answered_ = false;
    Number request_;
    std::unique_ptr<grpc::ServerContext> context_;
    std::unique_ptr<grpc::ServerAsyncResponseWriter<Number>> writer_;
};

std::string address(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

void serve(std::uint16_t port) {
    Echo::AsyncService service;
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(port), grpc::InsecureServerCredentials());
    builder.RegisterService(&service);
    const auto queue = builder.AddCompletionQueue();
    const auto server = builder.BuildAndStart();
    if (!server) throw std::runtime_error("no server");
    std::vector<std::unique_ptr<served>> places;
    for (std::size_t i = 0; i < 2 * rpc_peer::window; ++i)
        places.push_back(std::make_unique<served>(service, *queue));
    void* place = nullptr;
    bool ok = false;
    while (queue->Next(&place, &ok)) static_cast<served*>(place)->next(ok);
}

/// A call that is under way.
struct call {
    explicit call(std::uint64_t sent) { request.set_number(sent); }
    void begin(Echo::Stub& at, grpc::CompletionQueue& queue) {
        reader = at.AsyncPlus(&context, request, &queue);
        reader->Finish(&answer, &status, this);
    }
    void end() const {
        if (!status.ok()) throw std::runtime_error(status.error_message());
        rpc_peer::check(answer.number(), request.number() + 1);
    }

    Number request;
    Number answer;
    grpc::ClientContext context;
    grpc::Status status;
    std::unique_ptr<grpc::ClientAsyncResponseReader<Number>> reader;
};

void measure(std::uint16_t port, std::size_t rounds, rpc_peer::figures& into) {
    const auto stub = Echo::NewStub(grpc::CreateChannel(address(port), grpc::InsecureChannelCredentials()));
    grpc::CompletionQueue queue;
    const auto finish_one = [&] {
        void* place = nullptr;
        bool ok = false;
        if (!queue.Next(&place, &ok)) throw std::runtime_error("the queue has ended");
        const std::unique_ptr<call> done(static_cast<call*>(place));
        done->end();
    };
    const auto begin = [&](std::uint64_t number) { (new call(number))->begin(*stub, queue); };
    into.one_at_a_time(rounds, [&](std::uint64_t number) {
        begin(number);
        finish_one();
    });
    into.under_way(rounds, [&](std::size_t count) {
        std::size_t begun = 0;
        for (; begun < std::min(rpc_peer::window, count); ++begun) begin(begun);
        for (std::size_t ended = 0; ended < count; ++ended) {
            finish_one();
            if (begun < count) begin(begun++);
        }
    });
}

}  // namespace

int main(int argc, char** argv) { return rpc_peer::run(argc, argv, "gRPC", serve, measure); }
