#include <rdmacoro/transport/ofi.hpp>

#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"

#include <set>
#include <string>

// The tests that need no provider. The rest is in tests/transport/ofi and tests/ofi.

namespace test_transport_ofi {

using namespace rdmacoro;

static_assert(transport<ofi<provider::tcp>>);
static_assert(transport<ofi<provider::shm>>);
static_assert(transport<ofi<provider::cxi>>);
static_assert(transport<ofi<provider::efa>>);
static_assert(transport<ofi<provider::verbs>>);
static_assert(transport<ofi<provider::sockets>>);
static_assert(transport<ofi<provider::udp>>);
static_assert(!std::same_as<ofi<provider::tcp>::domain, ofi<provider::shm>::domain>);
static_assert(one_sided_link<ofi<provider::any>::link<detail::sink_archetype>>);

// Long messages go by rendezvous, whoever copies: from where on is the profile's affair.
static_assert(std::same_as<default_protocols<ofi<provider::cxi>>,
                           protocols<eager<>, get_rendezvous<up_to_transport, from_transport>,
                                     put_rendezvous<up_to_transport, from_transport>, segmented<>>>);
static_assert(std::same_as<default_protocols<ofi<provider::tcp>>, default_protocols<ofi<provider::cxi>>>);
static_assert(provider::tcp.rendezvous_bytes == 20480 && provider::shm.rendezvous_bytes == 0);

static_assert(ofi<provider::tcp>::name == "ofi+tcp");
static_assert(ofi<provider::any>::name == "ofi");
static_assert(ofi<provider::tcp>::static_capabilities.ends_on_refusal);
static_assert(!ofi<provider::shm>::static_capabilities.ends_on_refusal);

// The table, as libfabric's documentation and sources have it.
static_assert(provider::cxi.mr_mode == (ofi_flag::mr_endpoint | ofi_flag::mr_prov_key));
static_assert(provider::cxi.inject_bytes == 192 && provider::cxi.wait == ofi_wait::descriptor);
static_assert(provider::efa.mr_mode ==
              (ofi_flag::mr_virt_addr | ofi_flag::mr_allocated | ofi_flag::mr_prov_key));
static_assert((provider::verbs.mr_optional & ofi_flag::mr_local) != 0);
static_assert(provider::tcp.mr_mode == ofi_flag::none && provider::shm.mr_mode == ofi_flag::none);
static_assert(provider::shm.one_sided == ofi_one_sided::served && provider::shm.same_host);
static_assert(provider::sockets.data_progress == ofi_progress::automatic);

TEST_CASE("a provider's profile is found by each of its names") {
    CHECK(provider::find("tcp") == &provider::tcp);
    CHECK(provider::find("tcp;ofi_rxm") == &provider::tcp);
    CHECK(provider::find("ofi+tcp") == &provider::tcp);
    CHECK(provider::find("gni") == &provider::gni);
    CHECK(provider::find("ugni") == &provider::gni);
    CHECK(provider::find("udp;ofi_rxd") == &provider::udp);
    CHECK(provider::find("") == nullptr);
    CHECK(provider::find("tcp;") == nullptr);
}

TEST_CASE("the profiles tell each other apart, and promise nothing that the transport can't use") {
    std::set<std::string_view> schemes{provider::any.scheme};
    std::set<std::string_view> providers;
    for (const ofi_profile* one : provider::all) {
        CAPTURE(one->provider);
        CHECK(schemes.insert(one->scheme).second);
        CHECK(providers.insert(one->provider).second);
        CHECK((one->message_order & ofi_flag::order_sas) != 0);
        CHECK((one->mr_mode & one->mr_optional) == 0);
        CHECK(one->delivery_complete);
        CHECK(one->slot_bytes >= detail::fabric::connect_info::least_slot);
        CHECK(one->slot_bytes <= one->longest_message);
        CHECK((one->get_alignment & (one->get_alignment - 1)) == 0);
        CHECK(one->eager_bytes + detail::fabric::frame_bytes <= one->slot_bytes);
        CHECK(one->provider.size() < detail::fabric::connect_info::most_provider);
    }
}

TEST_CASE("addresses have the profile's scheme, or none") {
    const auto parsed = detail::fabric::parse_address("ofi+tcp", "ofi+tcp://localhost:7471");
    CHECK(parsed.host == "localhost");
    CHECK(parsed.port == "7471");
    CHECK(parsed.whole == "ofi+tcp://localhost:7471");
    CHECK(detail::fabric::parse_address("ugni", "[::1]:1").host == "::1");
    for (const char* const wrong :
         {"tcp://localhost:1", "ofi+shm://localhost:1", "localhost", "ofi+tcp://", ":99999"}) {
        CAPTURE(wrong);
        try {
            static_cast<void>(detail::fabric::parse_address("ofi+tcp", wrong));
            FAIL("parsed");
        } catch (const error& why) {
            CHECK(why.code() == errc::address_invalid);
            CHECK(std::string(why.what()).find(wrong) != std::string::npos);
        }
    }
}

TEST_CASE("a provider that libfabric does not have is refused with a list of those it has") {
    scheduler on;
    ofi_options o;
    o.provider = "nosuch";
    try {
        ofi<provider::any>::domain domain(on, o);
        FAIL("opened nosuch");
    } catch (const error& why) {
        CHECK(why.code() == errc::unsupported);
        const std::string text = why.what();
        CAPTURE(text);
        CHECK(text.find("nosuch") != std::string::npos);
        CHECK(text.find("tcp;ofi_rxm") != std::string::npos);
        CHECK(text.find("libfabric has here: ") != std::string::npos);
    }
}

}  // namespace test_transport_ofi
