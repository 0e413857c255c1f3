#include <rdmacoro/protocol/policy.hpp>

#include <rdmacoro/protocol/protocols.hpp>

#include "support/catch.hpp"

namespace test_protocol_policy {

using namespace rdmacoro;

namespace {
/// Has everything but a name.
struct nameless : eager<> {
private:
    using eager<>::name;
};
}  // namespace

static_assert(protocol_policy<eager<>>);
static_assert(protocol_policy<eager<up_to<100>>>);
static_assert(protocol_policy<segmented<>>);
static_assert(protocol_policy<segmented<up_to<1_MiB>>>);
static_assert(!protocol_policy<int>);
static_assert(!protocol_policy<capabilities>);
static_assert(!protocol_policy<nameless>);
static_assert(up_to<7>::bytes == 7);
static_assert(up_to_transport::bytes == 0);

TEST_CASE("what a policy admits changes at most once, at its longest message") {
    capabilities link;
    link.max_message = 5000;
    link.eager_bytes = 3000;
    const auto changes_once = [&]<class Policy>(Policy) {
        const std::size_t longest = Policy::longest(link);
        for (std::size_t bytes = 0; bytes < 12000; ++bytes) {
            if (Policy::admits({bytes, false}, link) != (bytes <= longest)) return false;
        }
        return true;
    };
    CHECK(changes_once(eager<>{}));
    CHECK(changes_once(eager<up_to<100>>{}));
    CHECK(changes_once(eager<up_to<8000>>{}));
    CHECK(changes_once(segmented<>{}));
    CHECK(changes_once(segmented<up_to<10000>>{}));
    CHECK(eager<up_to<8000>>::longest(link) == 5000);
}

}  // namespace test_protocol_policy
