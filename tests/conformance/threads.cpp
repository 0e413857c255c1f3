#include "conformance.hpp"

namespace test_conformance_threads {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

task<> echoes(peer& end, any_domain&, const traits&) {
    std::vector<std::byte> buffer(std::size_t{2} << 20);
    for (;;) {
        const auto got = co_await as_result(end.recv(buffer));
        if (!got) {
            demand(got.error() == errc::closed, "how the last receive ended");
            co_return;
        }
        co_await end.send(std::span(buffer).first(got->bytes), got->tag);
    }
}
task<> asks(peer& end, any_domain&, const traits& is) {
    const auto rounds = static_cast<std::uint64_t>(3000 / is.slowness);
    std::vector<std::byte> back(std::size_t{2} << 20);
    for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::size_t bytes = round % 100 == 99 ? 1500000 : round % 10 == 9 ? 20000 : round % 60;
        const auto data = pattern(bytes, round);
        co_await end.send(data, round);
        const received got = co_await end.recv(back, round);
        demand(got.bytes == bytes, "length");
        demand(is_pattern(std::span(back).first(bytes), round), "bytes");
    }
    co_await end.close();
}

task<> counts(peer& end, any_domain&, const traits& is) {
    const auto count = static_cast<std::uint64_t>(200000 / is.slowness);
    for (std::uint64_t n = 0; n < count; ++n) {
        std::uint64_t value = 0;
        co_await end.recv(room_for(value));
        demand(value == n, "order");
    }
    co_await end.send({}, 1);
    const auto last = co_await as_result(end.recv({}));
    demand(last.error() == errc::closed, "how the last receive ended");
}
task<> streams(peer& end, any_domain&, const traits& is) {
    const auto count = static_cast<std::uint64_t>(200000 / is.slowness);
    for (std::uint64_t n = 0; n < count; ++n) co_await end.send(bytes_of(n));
    co_await end.recv({}, 1);
    co_await end.close();
}

task<> offers_memory(peer& end, any_domain& domain, const traits&) {
    std::vector<std::byte> memory = pattern(1000000, 1);
    {
        const region open = domain.register_memory(memory, access_rights::all);
        co_await end.send(bytes_of(open.remote()), 1);
        co_await end.recv({}, 2);  // the peer has put
        demand(is_pattern(memory, 2), "what was put");
    }
    co_await end.send({}, 3);
    const auto last = co_await as_result(end.recv({}, 4));
    demand(!last, "a message that was not sent");
}
task<> uses_memory(peer& end, any_domain&, const traits&) {
    remote_region there;
    co_await end.recv(room_for(there), 1);
    std::vector<std::byte> here(there.length);
    for (int n = 0; n < 20; ++n) co_await end.rdma_get(there, here);
    demand(is_pattern(here, 1), "what was got");
    here = pattern(here.size(), 2);
    co_await end.rdma_put(here, there);
    co_await end.send({}, 2);
    co_await end.recv({}, 3);
    const auto late = co_await as_result(end.rdma_get(there, here));
    const bool knows_why = !end.link_capabilities().ends_on_refusal;
    demand(knows_why ? late.error() == errc::bad_key : !late, "deregistered");
    if (knows_why) co_await end.close();
}

/// Parks whenever nothing moves: every message wakes a sleeper, or arrives just before it sleeps.
idle::adaptive sleepy() { return idle::adaptive(duration::zero(), duration::zero()); }

CONFORMANCE_CASE("two schedulers on two threads talk, spinning", every_real_transport) {
    across_threads(over, list_name::standard, idle::yield{}, echoes, asks);
}
CONFORMANCE_CASE("two schedulers on two threads talk, parking at every wait", every_real_transport) {
    const std::uint64_t slept = across_threads(over, list_name::standard, sleepy(), echoes, asks);
    if (over.is().can_park) CHECK(slept > 0);
}
CONFORMANCE_CASE("a stream of messages between two threads keeps its order", every_real_transport) {
    across_threads(over, list_name::standard, idle::yield{}, counts, streams);
    across_threads(over, list_name::standard, idle::adaptive{}, counts, streams);
}
CONFORMANCE_CASE("get and put between two threads", every_real_transport) {
    across_threads(over, list_name::standard, idle::yield{}, offers_memory, uses_memory);
    const std::uint64_t slept =
        across_threads(over, list_name::standard, sleepy(), offers_memory, uses_memory);
    if (over.is().can_park) CHECK(slept > 0);
}

}  // namespace

}  // namespace test_conformance_threads
