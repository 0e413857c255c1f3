// Both ends of a connection with calls over it, on each transport of the program, for tests of service/.
#pragma once

#include <rdmacoro/service/any_calls.hpp>

#include "conformance/conformance.hpp"
#include "support/catch.hpp"
#include "support/shop.hpp"

#include <functional>
#include <string>
#include <utility>

namespace rdmacoro::test {

inline std::unique_ptr<any_calls> peer::make_calls() { return face_->make_calls(); }

/// Both ends of a connection, on one scheduler.
struct connected_peers {
    peer a;
    peer b;
};
inline task<connected_peers> connected_ends(const variant& over, any_domain& in, mailbox_options of_a = {},
                                            mailbox_options of_b = {}) {
    auto listening = co_await in.listen(over.address(), of_b);
    auto accepting = start(listening.accept());
    peer a = co_await in.connect(listening.address(), of_a);
    peer b = co_await accepting;
    co_return connected_peers{std::move(a), std::move(b)};
}

/// Runs a body in a domain of that transport.
inline void run_in(const variant& over, const std::function<task<>(any_domain&)>& body) {
    scheduler on;
    const auto domain = over.open(on);
    on.run(
        [](any_domain& here, const auto& run) -> task<> { co_await timeout(run(here), 60s); }(*domain, body));
}
/// Both ends of a connection that a body has, and their domain.
struct calls_link {
    peer& a;
    peer& b;
    any_domain& domain;
    const traits& is;
};
/// Runs a body with both ends of a connection; then the link ends.
inline void run_ends(const variant& over, const std::function<task<>(calls_link)>& body) {
    run_in(over, [&](any_domain& here) -> task<> {
        connected_peers link = co_await connected_ends(over, here);
        co_await body(calls_link{link.a, link.b, here, over.is()});
        link.a.abort();
    });
}
/// Runs a body with calls at both ends: `a` is the client's, `b` the server's, which offers the shop.
using calls_body = task<>(any_calls& client, any_calls& server, shop& there, calls_link link);
inline void run_pair(const variant& over, const std::function<calls_body>& body) {
    run_ends(over, [&body](calls_link link) -> task<> {
        shop there;
        const auto server = link.b.make_calls();
        server->serve(there.store);
        const auto client = link.a.make_calls();
        co_await body(*client, *server, there, link);
    });
}

/// How many messages wait at that end for good: those that are on their way to a receive get a second.
inline task<std::size_t> left_over(peer& end) {
    for (int n = 0; n < 100; ++n) {
        const auto found = co_await as_result(timeout(end.probe(any_tag), 10ms));
        if (!found) break;
        co_await sleep_for(10ms);
    }
    co_return end.discard(any_tag);
}

}  // namespace rdmacoro::test

/// A test case for each kind of transport of the program: `CALLS_CASE("name") { ... over ... }`.
#define CALLS_CASE(name) CONFORMANCE_CASE(name, every_kind)
