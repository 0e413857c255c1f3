#include <rdmacoro/messaging/one_sided_operations.hpp>

#include "support/catch.hpp"
#include "support/scripted_peer.hpp"

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace test_messaging_one_sided_operations {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {
using link = typename endpoint<loopback>::connection_type::link_type;
}

// Values, as other operations are.
static_assert(std::is_nothrow_move_constructible_v<one_sided_operation<link>>);
static_assert(std::is_nothrow_move_constructible_v<atomic_operation<link>>);
static_assert(!std::is_copy_constructible_v<one_sided_operation<link>>);
static_assert(std::is_same_v<await_result_t<one_sided_operation<link>>, void>);
static_assert(std::is_same_v<await_result_t<atomic_operation<link>>, std::uint64_t>);

namespace {
void with_peer(task<> (*body)(scripted_peer&)) {
    virtual_time world;
    world.run([](scheduler& on, task<> (*run)(scripted_peer&)) -> task<> {
        scripted_peer peer(on);
        co_await peer.open();
        co_await run(peer);
    }(world.on, body));
}
}  // namespace

TEST_CASE("a get or put of another length than its region's part does not begin") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::vector<std::byte> memory(100, std::byte{1});
        const region open = peer.wire().domains[1]->register_memory(memory, access_rights::all);
        std::vector<std::byte> here(99, std::byte{7});
        const auto got = co_await as_result(peer.self().rdma_get(open.remote(), here));
        CHECK(got.error() == errc::invalid_argument);
        CHECK(got.facts().bytes == 100);
        CHECK(got.facts().info == 99);
        const auto put = co_await as_result(peer.self().rdma_put(here, open.remote()));
        CHECK(put.error() == errc::invalid_argument);
        CHECK(here == std::vector<std::byte>(99, std::byte{7}));
        CHECK(memory == std::vector<std::byte>(100, std::byte{1}));
    });
}

TEST_CASE("a get or put that the transport finishes later is taken back when stopped") {
    with_peer([](scripted_peer& peer) -> task<> {
        auto& domain = *peer.wire().domains[1];
        std::vector<std::byte> memory(100, std::byte{1});
        const region open = domain.register_memory(memory, access_rights::all);
        std::vector<std::byte> here(100);
        peer.to_peer().defers_one_sided = true;
        co_await peer.self().rdma_get(open.remote(), here);
        CHECK(here == memory);
        peer.to_peer().held = true;
        local_stop_source stop;
        auto getting =
            start(as_result(with_stop(peer.self().rdma_get(open.remote(), here), stop.get_token())));
        auto putting =
            start(as_result(with_stop(peer.self().rdma_put(here, open.remote()), stop.get_token())));
        std::fill(here.begin(), here.end(), std::byte{7});
        stop.request_stop();
        const auto a = co_await getting;
        CHECK(a.error() == errc::canceled);
        const auto b = co_await putting;
        CHECK(b.error() == errc::canceled);
        peer.to_peer().held = false;
        for (int n = 0; n < 5; ++n) co_await yield();
        CHECK(memory == std::vector<std::byte>(100, std::byte{1}));
        CHECK(here == std::vector<std::byte>(100, std::byte{7}));
    });
}

TEST_CASE(
    "a get or put that begins when its link is broken says whether the peer was lost or had said goodbye") {
    with_peer([](scripted_peer& peer) -> task<> {
        std::vector<std::byte> memory(100);
        const region open = peer.wire().domains[1]->register_memory(memory, access_rights::all);
        std::vector<std::byte> here(100);
        peer.to_peer().broken = true;  // the link has not told its end yet
        const auto lost_get = co_await as_result(peer.self().rdma_get(open.remote(), here));
        CHECK(lost_get.error() == errc::peer_lost);
        const auto lost_put = co_await as_result(peer.self().rdma_put(here, open.remote()));
        CHECK(lost_put.error() == errc::peer_lost);
        peer.to_peer().broken = false;
        peer.say(wire_kind::goodbye);
        const auto heard = co_await as_result(peer.self().recv(here, 1));  // ends when the goodbye has come
        CHECK(heard.error() == errc::closed);
        peer.to_peer().broken = true;
        const auto late_get = co_await as_result(peer.self().rdma_get(open.remote(), here));
        CHECK(late_get.error() == errc::closed);
        const auto late_put = co_await as_result(peer.self().rdma_put(here, open.remote()));
        CHECK(late_put.error() == errc::closed);
    });
}

}  // namespace test_messaging_one_sided_operations
