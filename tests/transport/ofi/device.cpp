#include <rdmacoro/transport/ofi/device.hpp>

#include "ofi/pair.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <netinet/in.h>

namespace test_transport_ofi_device {

using namespace rdmacoro;
using namespace rdmacoro::test;
namespace fabric = rdmacoro::detail::fabric;

namespace {

struct opened {
    explicit opened(const std::string& provider)
        : options(ofi_here(provider)), device(*provider::find(provider), options) {}
    ~opened() { device.close_endpoint(); }

    /// Inserts the endpoint that would be at that port.
    fabric::verdict insert(std::uint16_t port, std::uint32_t nonce, fi_addr_t& number) {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_port = htons(port);
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        std::vector<std::byte> raw(sizeof at);
        std::memcpy(raw.data(), &at, sizeof at);
        return device.insert(raw.data(), raw.size(), nonce, number);
    }

    ofi_options options;
    fabric::device device;
};

}  // namespace

TEST_CASE("links to one peer share its address, whichever endpoint has it now, but where the provider "
          "remembers the former one") {
    const std::string provider = GENERATE(as<std::string>{}, "tcp", "cxi", "udp");
    CAPTURE(provider);
    opened one(provider);
    fi_addr_t first = FI_ADDR_UNSPEC;
    fi_addr_t second = FI_ADDR_UNSPEC;
    fi_addr_t other = FI_ADDR_UNSPEC;
    REQUIRE(one.insert(5000, 1, first) == fabric::verdict::welcome);
    CHECK(one.insert(5000, 1, second) == fabric::verdict::welcome);
    CHECK(first == second);
    CHECK(one.insert(5001, 1, other) == fabric::verdict::welcome);
    CHECK(other != first);
    CHECK(one.device.peers() == 2);
    one.device.release(first);
    one.device.release(first);
    const fabric::verdict later = one.insert(5000, 2, second);
    if (provider == "udp") {
        CHECK(later == fabric::verdict::reused_address);
    } else {
        CHECK(later == fabric::verdict::welcome);
        CHECK(second == first);
    }
}

TEST_CASE("of peers without a link some stay known, and the oldest are forgotten, but where the provider "
          "remembers them") {
    const std::string provider = GENERATE(as<std::string>{}, "cxi", "udp");
    CAPTURE(provider);
    opened one(provider);
    fi_addr_t used = FI_ADDR_UNSPEC;
    REQUIRE(one.insert(4999, 1, used) == fabric::verdict::welcome);
    for (std::uint16_t port = 5000; port < 5300; ++port) {
        fi_addr_t number = FI_ADDR_UNSPEC;
        REQUIRE(one.insert(port, 1, number) == fabric::verdict::welcome);
        one.device.release(number);
    }
    CHECK(one.device.peers() == (provider == "udp" ? 301 : 257));
    fi_addr_t again = FI_ADDR_UNSPEC;
    CHECK(one.insert(4999, 1, again) == fabric::verdict::welcome);
    CHECK(again == used);
}

TEST_CASE("where the provider's table of peers is full those without a link are forgotten") {
    opened one("shm");
    // No process has these numbers.
    const auto insert = [&](unsigned process, fi_addr_t& number) {
        const std::string text = "fi_shm://" + std::to_string(5'000'000 + process) + ":0:0";
        return one.device.insert(reinterpret_cast<const std::byte*>(text.c_str()), text.size() + 1, 1,
                                 number);
    };
    fi_addr_t first = FI_ADDR_UNSPEC;
    REQUIRE(insert(0, first) == fabric::verdict::welcome);
    std::vector<fi_addr_t> numbers(600);
    unsigned taken = 0;
    for (unsigned n = 0; n < numbers.size(); ++n) {
        taken += insert(1 + n, numbers[n]) == fabric::verdict::welcome;
        one.device.release(numbers[n]);
    }
    CHECK(taken == numbers.size());
    fi_addr_t again = FI_ADDR_UNSPEC;
    REQUIRE(insert(0, again) == fabric::verdict::welcome);
    CHECK(again == first);
    // Where all have links there is no room.
    fabric::verdict last = fabric::verdict::welcome;
    for (unsigned n = 0; n < numbers.size() && last == fabric::verdict::welcome; ++n)
        last = insert(1000 + n, numbers[n]);
    CHECK(last == fabric::verdict::no_room);
    one.device.release(numbers.front());
    CHECK(insert(2000, again) == fabric::verdict::welcome);
}

TEST_CASE("an endpoint that takes another's place has another nonce, and knows no peers") {
    opened one("tcp");
    fi_addr_t number = FI_ADDR_UNSPEC;
    REQUIRE(one.insert(5000, 1, number) == fabric::verdict::welcome);
    const std::uint32_t before = one.device.nonce();
    one.device.close_endpoint();
    CHECK(one.device.peers() == 0);
    REQUIRE(one.device.open_endpoint().failed == 0);
    CHECK(one.device.nonce() != before);
}

TEST_CASE("a piece of a get or put is no longer than what can be waited for") {
    const std::string provider =
        GENERATE(as<std::string>{}, "tcp", "shm", "gni", "cxi", "efa", "udp", "sockets");
    CAPTURE(provider);
    const opened one(provider);
    CHECK(one.device.longest() <= std::uint64_t{8} << 20);
    CHECK(one.device.longest() >= one.device.profile().slot_bytes);
    CHECK(one.device.longest() % 64 == 0);
}

}  // namespace test_transport_ofi_device
