#include <rdmacoro/transport/ugni.hpp>

#include <rdmacoro/messaging/messaging.hpp>

#include "support/catch.hpp"

#include <string>

namespace test_transport_ugni {

using namespace rdmacoro;

static_assert(transport<ugni>);
static_assert(ugni::name == "ugni");
static_assert(ugni::static_capabilities.get_alignment == 4);
static_assert(ugni::static_capabilities.one_sided_offloaded && ugni::static_capabilities.atomics);
static_assert(provider::gni.mr_mode ==
              (ofi_flag::mr_virt_addr | ofi_flag::mr_allocated | ofi_flag::mr_prov_key));
static_assert(provider::gni.inject_bytes == 64 && provider::gni.rma_pieces == 1 &&
              provider::gni.key_bytes == 8);
static_assert(provider::gni.wait == ofi_wait::none, "a scheduler over it never sleeps");

namespace {

constexpr std::size_t choice(std::size_t bytes) {
    return default_protocols<ugni>::choose({bytes, false}, ugni::static_capabilities);
}

// Eager to 16 KiB, the receiver's get to 64 KiB, the sender's put above: FastMPJ's paths on this network.
static_assert(choice(0) == 0 && choice(16384) == 0);
static_assert(choice(16385) == 1 && choice(65536) == 1);
static_assert(choice(65537) == 2 && choice(std::size_t{1} << 30) == 2);

}  // namespace

TEST_CASE("the table of the list for ugni names the three paths and their limits") {
    const std::string table = explain<ugni>();
    CAPTURE(table);
    CHECK(table.find("eager") != std::string::npos);
    CHECK(table.find("16384") != std::string::npos);
    CHECK(table.find("get_rendezvous") != std::string::npos);
    CHECK(table.find("65536") != std::string::npos);
    CHECK(table.find("put_rendezvous") != std::string::npos);
}

}  // namespace test_transport_ugni
