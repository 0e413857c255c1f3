#include <rdmacoro/transport/verbs_rc.hpp>

#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"

#include <filesystem>

// The tests that need no device. The rest is in tests/transport/verbs_rc and tests/verbs, which run where there is one.

namespace test_transport_verbs_rc {

using namespace rdmacoro;

static_assert(transport<verbs_rc>);
static_assert(one_sided_link<verbs_rc::link<detail::sink_archetype>>);
static_assert(std::same_as<default_protocols<verbs_rc>,
                           protocols<eager<>, get_rendezvous<up_to_transport, from_transport>,
                                     put_rendezvous<up_to_transport, from_transport>, segmented<>>>);

TEST_CASE("a domain on a device that does not exist says which it looked for") {
    scheduler on;
    verbs_options o;
    o.device = "nosuch0";
    try {
        verbs_domain domain(on, o);
        FAIL("opened nosuch0");
    } catch (const std::system_error& why) {
        CHECK((why.code() == errc::address_invalid || why.code() == errc::unsupported));
        CHECK(std::string(why.what()).find("nosuch0") != std::string::npos);
    }
}

TEST_CASE("without any device a domain says that there is none") {
    std::error_code none;
    if (!std::filesystem::is_empty("/sys/class/infiniband", none) && !none)
        SKIP_TEST("this machine has an RDMA device");
    scheduler on;
    try {
        verbs_domain domain(on);
        FAIL("opened a device where there is none");
    } catch (const std::system_error& why) {
        CHECK(why.code() == errc::unsupported);
        CHECK(std::string(why.what()).find("verbs") != std::string::npos);
    }
}

}  // namespace test_transport_verbs_rc
