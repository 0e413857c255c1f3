#include <rdmacoro/protocol/explain.hpp>

#include "support/catch.hpp"

#include <rdmacoro/transport/shm.hpp>

#include <vector>

namespace test_protocol_explain {

using namespace rdmacoro;

namespace {
constexpr capabilities test_link{.inline_bytes = 48,
                                 .max_message = 10000,
                                 .eager_bytes = 2000,
                                 .segment_bytes = 8000,
                                 .get_alignment = 1,
                                 .one_sided = true,
                                 .one_sided_offloaded = false,
                                 .needs_registration = false,
                                 .atomics = false,
                                 .put_before_send = false};
struct named {
    static constexpr const char* name = "wire";
    static constexpr const char* description = "a test's network";
    static constexpr capabilities static_capabilities = test_link;
};
}  // namespace

TEST_CASE("the ranges of a list cover every size, in order, plain sends first") {
    const auto ranges = protocol_ranges<protocols<eager<>, segmented<up_to<1_MiB>>>>(test_link);
    REQUIRE(ranges.size() == 5);
    const std::size_t most = static_cast<std::size_t>(-1);
    const struct {
        std::size_t first;
        std::size_t last;
        bool synchronous;
        const char* name;
    } expected[] = {
        {0, 2000, false, "eager"},     {2001, 1_MiB, false, "segmented"}, {1_MiB + 1, most, false, "none"},
        {0, 1_MiB, true, "segmented"}, {1_MiB + 1, most, true, "none"},
    };
    for (std::size_t i = 0; i < ranges.size(); ++i) {
        CHECK(ranges[i].first == expected[i].first);
        CHECK(ranges[i].last == expected[i].last);
        CHECK(ranges[i].synchronous == expected[i].synchronous);
        CHECK(ranges[i].name == expected[i].name);
    }
}

TEST_CASE("a range ends where the choice changes, not at limits that do not matter") {
    // The second policy's limit lies below the first's: it never carries anything.
    const auto ranges =
        protocol_ranges<protocols<eager<up_to<1000>>, eager<up_to<500>>, segmented<>>>(test_link);
    REQUIRE(ranges.size() == 3);
    CHECK(ranges[0].last == 1000);
    CHECK(ranges[1].first == 1001);
    CHECK(ranges[1].name == "segmented");
}

TEST_CASE("the table for people") {
    CHECK(explain<named, protocols<eager<>, segmented<>>>() ==
          "wire (a test's network), protocols: eager, segmented\n"
          "  from        to          send   policy      how\n"
          "  0           2000        send   eager       header and data in one message, copied out at the "
          "receiver\n"
          "  2001        any         send   segmented   announced, then sent in pieces of the transport's "
          "best size\n"
          "  0           any         ssend  segmented   announced, then sent in pieces of the transport's "
          "best size\n"
          "  get/put: served by the peer's scheduler\n");
}

TEST_CASE("the table says how get and put are done") {
    capabilities other = test_link;
    other.one_sided_offloaded = true;
    CHECK_THAT(explain<named>(other), test::contains("get/put: without the peer's scheduler"));
    other.one_sided = false;
    CHECK_THAT(explain<named>(other), test::contains("get/put: not on this transport"));
}

TEST_CASE("the table of shared memory before it is connected") {
    const std::string table = explain<shm>();
    CHECK_THAT(table, test::contains("shm (shared memory between processes of one machine)"));
    CHECK_THAT(table, test::contains("0           4096        send   eager"));
}

TEST_CASE("no length is printed that stands for none: long messages go by one policy to the end") {
    const std::string table = explain<shm>();
    CHECK_THAT(table, !test::contains("184467440737095516"));
    // `rendezvous_bytes` of such links says that no message is long enough for a rendezvous.
    capabilities without = test_link;
    without.rendezvous_bytes = never_by_rendezvous;
    const auto ranges =
        protocol_ranges<protocols<eager<>, get_rendezvous<up_to_transport, from_transport>, segmented<>>>(
            without);
    REQUIRE(ranges.size() == 3);
    CHECK(ranges[1].name == "segmented");
    CHECK(ranges[1].last == static_cast<std::size_t>(-1));
    CHECK(ranges[2].name == "segmented");
}

}  // namespace test_protocol_explain
