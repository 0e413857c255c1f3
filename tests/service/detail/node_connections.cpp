#include <rdmacoro/service/detail/node_connections.hpp>

#include "support/catch.hpp"
#include "support/run.hpp"
#include "support/scripted_transport.hpp"

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/yield.hpp>

#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace test_service_detail_node_connections {

using namespace rdmacoro;
using namespace rdmacoro::test;
using namespace std::chrono_literals;
using rdmacoro::detail::counted_ptr;
using rdmacoro::detail::node_connections;
using rdmacoro::detail::node_core;

namespace {

/// Node 5 over transports that do what the test says.
class scripted_node final : public node_connections {
public:
    using node_connections::node_connections;
    scripted_transport& add_transport(std::string_view name) {
        auto made =
            std::make_unique<scripted_transport>(*this, static_cast<unsigned>(transports_.size()), name);
        scripted_transport& to = *made;
        transports_.push_back(std::move(made));
        return to;
    }
};

struct failure {
    std::error_code code;
    std::string text;
};

struct fixture {
    explicit fixture(node_options options = {})
        : node(new scripted_node(world.on, 5, options)),
          far(node->add_transport("tcp")),
          near(node->add_transport("shm")) {}

    node_card nine(std::vector<std::string> urls) const {
        node_card made;
        made.id = 9;
        made.urls = std::move(urls);
        return made;
    }
    /// Why a connection to node 9 could not be made.
    failure connect() {
        failure why;
        world.run([](counted_ptr<scripted_node> on, failure& out) -> task<> {
            try {
                static_cast<void>(co_await node_core::connected(on->peer(9), false, 0));
            } catch (const std::system_error& e) {
                out = {e.code(), e.what()};
            }
        }(node, why));
        return why;
    }

    virtual_time world;
    counted_ptr<scripted_node> node;
    scripted_transport& far;
    scripted_transport& near;
};

}  // namespace

TEST_CASE("shared memory is tried before the others, and each URL of a transport in the card's order") {
    fixture f;
    f.node->add(f.nine({"tcp://a:1", "shm://a", "tcp://b:1", "gni://c"}));
    f.far.outcome = make_error_code(errc::address_invalid);  // which ends it after one round
    CHECK(f.connect().code == errc::address_invalid);
    CHECK(f.near.tried == std::vector<std::string>{"shm://a"});
    CHECK(f.far.tried == std::vector<std::string>{"tcp://a:1", "tcp://b:1"});
    CHECK(f.node->explain(9).find("  shm://a: because of shm://a\n  tcp://a:1: because of tcp://a:1\n"
                                  "  tcp://b:1: because of tcp://b:1\n") != std::string::npos);
}

TEST_CASE("of a round of attempts the last failure is told, unless it says only that nothing here can use "
          "the URL") {
    fixture f;
    f.node->add(f.nine({"tcp://a:1", "shm://a"}));
    f.near.outcome = make_error_code(errc::peer_lost);
    f.far.outcome = make_error_code(errc::address_invalid);
    CHECK(f.connect().code == errc::address_invalid);
    f.far.outcome = make_error_code(errc::unsupported);
    CHECK(f.connect().code == errc::peer_lost);
}

TEST_CASE("an attempt that is given up for the other node's connection ends the round") {
    fixture f;
    f.node->add(f.nine({"tcp://a:1", "shm://a"}));
    f.near.outcome = make_error_code(errc::canceled);
    f.world.run([](fixture& of) -> task<> {
        of.node->begin_connect(*of.node->peer(9));
        while (of.near.tried.size() < 3) co_await yield();
        of.node->stop();
    }(f));
    CHECK(f.far.tried.empty());
}

TEST_CASE("a failure that may pass is tried again until the limit, others are not") {
    node_options options;
    options.connect_limit = 1s;
    fixture f(options);
    f.node->add(f.nine({"tcp://a:1"}));
    const time_point before = f.world.on.now();
    CHECK(f.connect().code == errc::connection_refused);
    CHECK(f.far.tried.size() > 3);
    CHECK(f.world.on.now() - before >= 500ms);
    CHECK(f.world.on.now() - before <= 1s);
    f.far.tried.clear();
    f.far.outcome = make_error_code(errc::address_invalid);
    CHECK(f.connect().code == errc::address_invalid);
    CHECK(f.far.tried.size() == 1);
    fixture without_route(options);
    without_route.node->add(without_route.nine({"tcp://a:1"}));
    without_route.far.outcome = make_error_code(std::errc::host_unreachable);  // as yet
    CHECK(without_route.connect().code == std::errc::host_unreachable);
    CHECK(without_route.far.tried.size() > 3);
}

TEST_CASE("a node without a URL that it can use is told to connect by itself, and none is tried") {
    fixture f;
    f.node->add(f.nine({"gni://c"}));
    CHECK(f.connect().code == errc::timed_out);
    CHECK(f.far.tried.size() + f.near.tried.size() == 0);
    CHECK(f.node->explain(9).find("it has to connect by itself") != std::string::npos);
}

TEST_CASE("a node listens by the transport of the URL's scheme, and says the address") {
    fixture f;
    f.world.run([](counted_ptr<scripted_node> on) -> task<> {
        const std::string where =
            co_await node_connections::listen(counted_ptr<node_connections>(on.get()), "shm://here", "");
        CHECK(where == "shm://here:1");
        const std::string told = co_await node_connections::listen(counted_ptr<node_connections>(on.get()),
                                                                   "tcp://here", "tcp://there:2");
        CHECK(told == "tcp://there:2");
        const auto none = co_await as_result(
            node_connections::listen(counted_ptr<node_connections>(on.get()), "gni://here", ""));
        CHECK(none.error() == errc::address_invalid);
    }(f.node));
    CHECK(f.near.heard == std::vector<std::string>{"shm://here"});
    CHECK(f.far.heard == std::vector<std::string>{"tcp://here"});
}

TEST_CASE("a node that has stopped makes no connection any more") {
    fixture f;
    f.node->add(f.nine({"tcp://a:1"}));
    f.node->stop();
    f.node->begin_connect(*f.node->peer(9));
    CHECK_FALSE(f.node->peer(9)->connecting);
    CHECK(f.connect().code == errc::closed);
    CHECK(f.far.tried.empty());
}

}  // namespace test_service_detail_node_connections
