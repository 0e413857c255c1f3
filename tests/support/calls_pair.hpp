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

/// Runs a body with two domains of that transport, on one scheduler.
inline void run_in(const variant& over, const std::function<task<>(two_domains&)>& body) {
    scheduler on;
    two_domains both(on, over);
    on.run([](two_domains& w, const auto& run) -> task<> { co_await timeout(run(w), 60s); }(both, body));
}
/// Both ends of a connection that a body has, and the domain of `a`.
struct calls_link {
    peer& a;
    peer& b;
    any_domain& domain;
    const traits& is;
};
/// Runs a body with both ends of a connection; then the link ends.
inline void run_ends(const variant& over, const std::function<task<>(calls_link)>& body) {
    run_in(over, [&](two_domains& w) -> task<> {
        auto link = co_await w.connected();
        co_await body(calls_link{link.a, link.b, w.here(), w.is()});
        link.a.abort();
    });
}
using calls_body = task<>(any_calls& client, any_calls& server, shop& there, calls_link link);
/// Runs a body with calls at both ends: `a` is the client's, `b` the server's, which offers the shop.
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
