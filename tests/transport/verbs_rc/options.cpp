#include <rdmacoro/transport/verbs_rc/options.hpp>

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/verbs_rc.hpp>

#include "support/catch.hpp"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace test_transport_verbs_rc_options {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// Variables of the environment, as long as it lives.
class variables {
public:
    variables() {
        for (const char* name : names) ::unsetenv(name);
    }
    ~variables() {
        for (const char* name : names) ::unsetenv(name);
    }
    variables(const variables&) = delete;
    variables& operator=(const variables&) = delete;

    static constexpr const char* names[] = {
        "RDMACORO_VERBS_DEVICE",        "RDMACORO_VERBS_PORT",          "RDMACORO_VERBS_GID_INDEX",
        "RDMACORO_VERBS_CONNECT_BY",    "RDMACORO_VERBS_TRAFFIC_CLASS", "RDMACORO_VERBS_ACKNOWLEDGE_TIMEOUT",
        "RDMACORO_VERBS_SERVICE_LEVEL", "RDMACORO_VERBS_PARTITION_KEY", "RDMACORO_VERBS_SHARE_RECEIVES"};
};

}  // namespace

TEST_CASE("without variables in the environment the options are the defaults") {
    const variables none;
    const verbs_options said = verbs_options::from_environment();
    const verbs_options defaults;
    CHECK(said.device == defaults.device);
    CHECK(said.port == defaults.port);
    CHECK(said.gid_index == defaults.gid_index);
    CHECK(said.connect_by == defaults.connect_by);
    CHECK(said.traffic_class == defaults.traffic_class);
    CHECK(said.acknowledge_timeout == defaults.acknowledge_timeout);
    CHECK(said.service_level == defaults.service_level);
    CHECK(said.partition_key == defaults.partition_key);
    CHECK(said.share_receives == defaults.share_receives);
}

TEST_CASE("each variable of the environment sets its option, and an empty one none") {
    const variables set;
    for (const auto& [name, value] :
         {std::pair{"DEVICE", "mlx5_3"}, std::pair{"PORT", "2"}, std::pair{"GID_INDEX", "3"},
          std::pair{"CONNECT_BY", "tcp"}, std::pair{"TRAFFIC_CLASS", "104"},
          std::pair{"ACKNOWLEDGE_TIMEOUT", "20"}, std::pair{"SERVICE_LEVEL", "5"},
          std::pair{"PARTITION_KEY", "32785"}, std::pair{"SHARE_RECEIVES", "0"}})
        ::setenv((std::string("RDMACORO_VERBS_") + name).c_str(), value, 1);
    verbs_options said = verbs_options::from_environment();
    CHECK(said.device == "mlx5_3");
    CHECK(said.port == 2);
    CHECK(said.gid_index == 3);
    CHECK(said.connect_by == verbs_connect::tcp);
    CHECK(said.traffic_class == 104);
    CHECK(said.acknowledge_timeout == 20);
    CHECK(said.service_level == 5);
    CHECK(said.partition_key == 32785);
    CHECK_FALSE(said.share_receives);
    ::setenv("RDMACORO_VERBS_CONNECT_BY", "rdma_cm", 1);
    ::setenv("RDMACORO_VERBS_SHARE_RECEIVES", "1", 1);
    ::setenv("RDMACORO_VERBS_GID_INDEX", "", 1);
    said = verbs_options::from_environment();
    CHECK(said.connect_by == verbs_connect::rdma_cm);
    CHECK(said.share_receives);
    CHECK(said.gid_index == -1);
    ::setenv("RDMACORO_VERBS_CONNECT_BY", "automatic", 1);
    CHECK(verbs_options::from_environment().connect_by == verbs_connect::automatic);
}

TEST_CASE("a variable of the environment that makes no sense is refused with its name and value") {
    for (const char* name : variables::names) {
        if (std::string(name) == "RDMACORO_VERBS_DEVICE") continue;  // any name may be one
        for (const char* value : {"pigeon", "1x", "99999999999999999999"}) {
            CAPTURE(name, value);
            const variables one;
            ::setenv(name, value, 1);
            try {
                static_cast<void>(verbs_options::from_environment());
                FAIL_CHECK("it was taken");
            } catch (const error& why) {
                CHECK(why.code() == errc::invalid_argument);
                CHECK_THAT(why.what(), contains(name));
                CHECK_THAT(why.what(), contains(value));
            }
        }
    }
}

TEST_CASE("options that no domain can have are refused by their names before a device is opened") {
    scheduler on;
    const auto refused = [&](const char* name, auto change) {
        CAPTURE(name);
        verbs_options o;
        o.device = "nosuch0";
        change(o);
        try {
            const verbs_domain tried(on, o);
            FAIL_CHECK("it was opened");
        } catch (const error& why) {
            CHECK(why.code() == errc::invalid_argument);
            CHECK_THAT(why.what(), contains(name));
        }
    };
    refused("completion_entries", [](verbs_options& o) { o.completion_entries = 0; });
    refused("completion_entries",
            [](verbs_options& o) { o.completion_entries = 191; });  // one link holds 192
    refused("completion_entries", [](verbs_options& o) {
        o.send_depth = 32;
        o.credits = 64;
        o.completion_entries = 127;  // half of which are 63 receives
    });
    refused("gid_index", [](verbs_options& o) { o.gid_index = 256; });
    refused("gid_index", [](verbs_options& o) { o.gid_index = -2; });
    refused("credits", [](verbs_options& o) { o.credits = 7; });
    refused("most_links", [](verbs_options& o) { o.most_links = 0; });
    refused("most_waiting", [](verbs_options& o) { o.most_waiting = 0; });
    refused("handshake_timeout", [](verbs_options& o) { o.handshake_timeout = duration::zero(); });
    refused("handshake_timeout", [](verbs_options& o) { o.handshake_timeout = duration(-1); });
    try {
        verbs_options o;
        o.device = "nosuch0";
        o.completion_entries = 192;
        o.gid_index = 255;
        const verbs_domain tried(on, o);
        FAIL_CHECK("it was opened");
    } catch (const error& why) {
        CHECK(why.code() == errc::address_invalid);  // there is no such device
    }
}

TEST_CASE("counts are added one by one") {
    verbs_counts one;
    std::uint64_t number = 0;
    auto* const first = reinterpret_cast<std::uint64_t*>(&one);
    constexpr std::size_t all = sizeof one / sizeof(std::uint64_t);
    for (std::size_t n = 0; n < all; ++n) first[n] = ++number;
    verbs_counts sum = one;
    sum += one;
    const auto* const added = reinterpret_cast<const std::uint64_t*>(&sum);
    for (std::size_t n = 0; n < all; ++n) CHECK(added[n] == 2 * (n + 1));
}

}  // namespace test_transport_verbs_rc_options
