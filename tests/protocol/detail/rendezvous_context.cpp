#include <rdmacoro/protocol/detail/rendezvous_context.hpp>

#include <rdmacoro/protocol/cooperative_rendezvous.hpp>
#include <rdmacoro/protocol/get_rendezvous.hpp>

#include "support/catch.hpp"
#include "support/engine_context.hpp"
#include "support/rendezvous.hpp"

namespace test_protocol_detail_rendezvous_context {

using namespace rdmacoro;
using namespace rdmacoro::test;

TEST_CASE("a violation closes the connection, and the message that was one is consumed") {
    engine_context context;
    CHECK(context.violation() == delivery::taken);
    CHECK(context.closed_with == errc::protocol_violation);
}

TEST_CASE("a connection's context is that connection, whatever its list") {
    using list = protocols<eager<>, cooperative_rendezvous<>>;
    with_pair<list>([](endpoint_pair<list>& pair) -> task<> {
        auto& connection = pair.a.connection();
        using connection_type = endpoint<loopback, list>::connection_type;
        detail::rendezvous_context_of<connection_type, cooperative_rendezvous<>> context(connection);
        detail::rendezvous_context& erased = context;
        CHECK(&context.context() == &connection);
        CHECK(&erased.connection() == &connection);
        CHECK(&erased.counts() == &connection.counts());
        CHECK(&erased.link_capabilities() == &connection.link_capabilities());
        std::byte memory[64];
        {
            const region open = erased.expose(memory, access_rights::remote_write);
            CHECK(open.remote().length == 64);
            CHECK(pair.a.counts().regions_exposed == 1);
        }
        pair.from_a().exposures = 0;
        CHECK_FALSE(erased.expose(memory, access_rights::remote_write));
        CHECK(pair.a.counts().regions_exposed == 1);  // those that were opened
        const shared_copy_id copy = erased.open_shared_copy(64);
        CHECK(copy != no_shared_copy);
        erased.close_shared_copy(copy);
        co_return;
    });
}

}  // namespace test_protocol_detail_rendezvous_context
