#include <rdmacoro/service/detail/node_transport_over.hpp>

#include "support/bare_node.hpp"
#include "support/catch.hpp"
#include "support/nodes.hpp"

#include <memory>
#include <string>

namespace test_service_detail_node_transport_over {

using namespace rdmacoro;
using namespace rdmacoro::test;
using rdmacoro::detail::node_transport;
using rdmacoro::detail::node_transport_of;

namespace {

TEMPLATE_LIST_TEST_CASE("a node has a transport of each type, with its name, its place and its domain", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        typename TestType::domain& in = scheduler::current()->service<typename TestType::domain>();
        const rdmacoro::detail::counted_ptr<bare_core> of(
            new bare_core(*scheduler::current(), 5, node_options()));
        const std::unique_ptr<node_transport> made =
            rdmacoro::detail::make_node_transport<TestType>(*of, 3, &in);
        CHECK(made->name == std::string_view(TestType::name));
        CHECK(made->index == 3);
        CHECK(static_cast<node_transport_of<TestType>&>(*made).domain == &in);
        CHECK_FALSE(static_cast<node_transport_of<TestType>&>(*made).handler);
        co_return;
    });
}

TEMPLATE_LIST_TEST_CASE("it listens at an address of its scheme, which the node's card has then", "",
                        node_transports) {
    run_nodes([]() -> task<> {
        const rdmacoro::detail::counted_ptr<bare_core> of(
            new bare_core(*scheduler::current(), 5, node_options()));
        const std::unique_ptr<node_transport> made =
            rdmacoro::detail::make_node_transport<TestType>(*of, 0, nullptr);
        std::string where;
        co_await made->listen(fresh_url<TestType>(), where);
        CHECK(made->has_scheme_of(where));
        CHECK(of->self.urls == std::vector<std::string>{where});
        std::string told = std::string(made->name) + "://elsewhere:1";
        co_await made->listen(fresh_url<TestType>(), told);
        CHECK(of->self.urls.size() == 2);
        CHECK(of->self.urls.back() == std::string(made->name) + "://elsewhere:1");
        of->stopped = true;
        of->work.reset();
    });
}

}  // namespace

}  // namespace test_service_detail_node_transport_over
