#pragma once

// Nodes over one transport, for tests that are the same over each.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/service/node.hpp>
#include <rdmacoro/transport/shm.hpp>
#if RDMACORO_WITH_TCP
#include <rdmacoro/transport/tcp.hpp>
#endif
#if RDMACORO_WITH_VERBS && RDMACORO_VERBS_SUITE && RDMACORO_SERVICES_SUITE
#include <rdmacoro/transport/verbs_rc.hpp>
#elif RDMACORO_WITH_OFI && RDMACORO_OFI_SUITE && RDMACORO_SERVICES_SUITE
#include <rdmacoro/transport/ofi.hpp>
#endif

#include <chrono>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>

#include <unistd.h>

namespace rdmacoro::test {

/// A URL that nobody else of this machine listens at.
template <class T>
std::string fresh_url() {
    static int made = 0;
    if (std::string_view(T::name) == "tcp") return "tcp://127.0.0.1:0";
    if (std::string_view(T::name) == "ofi") return "ofi://127.0.0.1:0";
    if (std::string_view(T::name) == "verbs") return "verbs://*:0";
    return std::string(std::string_view(T::name)) + "://node-" + std::to_string(::getpid()) + '-' +
           std::to_string(++made);
}

// Nodes open domains by the environment: it names the provider and the device.
#if RDMACORO_WITH_VERBS && RDMACORO_VERBS_SUITE && RDMACORO_SERVICES_SUITE
using node_transports = std::tuple<verbs_rc>;
#elif RDMACORO_WITH_OFI && RDMACORO_OFI_SUITE && RDMACORO_SERVICES_SUITE
using node_transports = std::tuple<ofi<provider::any>>;
#elif RDMACORO_WITH_TCP
using node_transports = std::tuple<shm, tcp>;
#else
using node_transports = std::tuple<shm>;
#endif

/// How long a test of nodes may take.
inline constexpr duration nodes_limit = std::chrono::seconds(40);

/// Runs a test's coroutine, for a limited time.
template <class F>
void run_nodes(F body) {
    scheduler on{idle::yield{}};
    on.run([](F run) -> task<> { co_await timeout(run(), nodes_limit); }(std::move(body)));
}

/// Ends when it is true.
template <class Condition>
task<> until(Condition met) {
    while (!met()) co_await yield();
}

/// The error of a task, as code and text.
struct failure {
    std::error_code code;
    std::string text;
};
inline task<failure> failing(task<> what) {
    try {
        co_await std::move(what);
    } catch (const std::system_error& e) {
        co_return failure{e.code(), e.what()};
    }
    co_return failure{};
}
template <class Peer>
task<> receive_any(Peer from) {
    static_cast<void>(co_await from.recv_lent());
}

/// One text as a message.
template <class Peer>
task<> say(Peer to, std::string what, tag_type tag = 1) {
    co_await to.send(what, tag);
}
/// The next message as a text.
template <class Peer>
task<std::string> hear(Peer from, tag_match wanted = any_tag) {
    const message got = co_await from.recv_lent(wanted);
    co_return std::string(reinterpret_cast<const char*>(got.bytes().data()), got.size());
}

}  // namespace rdmacoro::test
