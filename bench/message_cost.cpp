// message_cost N: sends and receives N messages of 8 bytes over shared memory, both ends in one thread.
//
// For counting: `bench/instructions` runs it under callgrind with two values of N; the difference is the cost of one send and
// its matched receive, without the set-up and without a second core.
#include "common/even_clock.hpp"

#include <rdmacoro/rdmacoro.hpp>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include <unistd.h>

namespace rc = rdmacoro;

namespace {

rc::task<> exchange(std::uint64_t messages) {
    auto listener = co_await rc::listen<rc::shm>("shm://message-cost-" + std::to_string(::getpid()));
    auto near = co_await rc::connect<rc::shm>(listener.address());
    auto far = co_await listener.accept();
    std::uint64_t out = 0;
    std::uint64_t in = 0;
    for (std::uint64_t i = 0; i < messages; ++i) {
        out = i;
        co_await near.send(std::as_bytes(std::span(&out, 1)), 7);
        co_await far.recv(std::as_writable_bytes(std::span(&in, 1)), 7);
        if (in != out) throw rc::error(rc::errc::protocol_violation, "message_cost: wrong payload");
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::string_view text = argc == 2 ? argv[1] : "";
    std::uint64_t messages = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), messages);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
        std::fprintf(stderr, "usage: message_cost MESSAGES\n");
        return 2;
    }
    try {
        bench::even_clock time;
        rc::scheduler(rc::idle::spin{}, time).run(exchange(messages));
    } catch (const std::exception& failure) {
        std::fprintf(stderr, "message_cost: %s\n", failure.what());
        return 1;
    }
}
