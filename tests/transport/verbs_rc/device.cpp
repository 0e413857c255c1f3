#include <rdmacoro/transport/verbs_rc/device.hpp>

#include "verbs/pair.hpp"

#include "support/catch.hpp"
#include "support/child_process.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

namespace test_transport_verbs_rc_device {

using namespace rdmacoro;
using namespace rdmacoro::test;

namespace {

/// From now on this process is bound by its limits.
bool drop_capabilities() {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct none[2]{};
    return ::syscall(SYS_capset, &header, none) == 0;
}

}  // namespace

TEST_CASE("a device or address that does not exist is refused with a list of those that do") {
    FOR_EACH_VERBS_DEVICE(way);
    scheduler on;
    const std::string exists = verbs_domain(on, way.options).device_name();
    verbs_options o;
    o.device = "nosuch0";
    refusal seen = refused([&] { verbs_domain tried(on, o); });
    CHECK(seen.code == errc::address_invalid);
    CHECK_THAT(seen.text, contains("nosuch0"));
    CHECK_THAT(seen.text, contains(exists));
    o = {};
    o.address = "203.0.113.77";
    seen = refused([&] { verbs_domain tried(on, o); });
    CHECK(seen.code == errc::address_invalid);
    CHECK_THAT(seen.text, contains("203.0.113.77"));
    CHECK_THAT(seen.text, contains(exists));
    o = {};
    o.device = exists;
    o.port = 77;
    seen = refused([&] { verbs_domain tried(on, o); });
    CHECK(seen.code == errc::address_invalid);
    o = {};
    o.device = exists;
    CHECK(verbs_domain(on, o).device_name() == exists);
    CHECK_THAT(verbs_domain(on, o).describe(), contains(exists));
}

TEST_CASE("the environment names the default device") {
    FOR_EACH_VERBS_DEVICE(way);
    scheduler on;
    const std::string exists = verbs_domain(on, way.options).device_name();
    struct restore {
        ~restore() {
            for (const char* name : {"RDMACORO_VERBS_DEVICE", "RDMACORO_VERBS_PORT",
                                     "RDMACORO_VERBS_GID_INDEX", "RDMACORO_VERBS_CONNECT_BY"})
                ::unsetenv(name);
        }
    };
    const restore at_the_end;
    ::setenv("RDMACORO_VERBS_DEVICE", exists.c_str(), 1);
    CHECK(verbs_domain(on).device_name() == exists);
    ::setenv("RDMACORO_VERBS_DEVICE", "nosuch0", 1);
    const refusal seen = refused([&] { verbs_domain tried(on); });
    CHECK(seen.code == errc::address_invalid);
    CHECK_THAT(seen.text, contains("nosuch0"));

    ::setenv("RDMACORO_VERBS_DEVICE", exists.c_str(), 1);
    ::setenv("RDMACORO_VERBS_PORT", "1", 1);
    ::setenv("RDMACORO_VERBS_GID_INDEX", "0", 1);
    ::setenv("RDMACORO_VERBS_CONNECT_BY", "rdma_cm", 1);
    const verbs_options said = verbs_options::from_environment();
    CHECK(said.port == 1);
    CHECK(said.gid_index == 0);
    CHECK(said.connect_by == verbs_connect::rdma_cm);
    CHECK(verbs_domain(on).device_name() == exists);
    ::setenv("RDMACORO_VERBS_PORT", "77", 1);
    CHECK(refused([&] { verbs_domain tried(on); }).code == errc::address_invalid);
    for (const auto& [name, value] :
         {std::pair{"RDMACORO_VERBS_PORT", "one"}, std::pair{"RDMACORO_VERBS_GID_INDEX", "1x"},
          std::pair{"RDMACORO_VERBS_CONNECT_BY", "pigeon"}}) {
        ::setenv("RDMACORO_VERBS_PORT", "1", 1);
        ::setenv(name, value, 1);
        const refusal nonsense = refused([&] { verbs_domain tried(on); });
        CHECK(nonsense.code == errc::invalid_argument);
        CHECK_THAT(nonsense.text, contains(name));
        CHECK_THAT(nonsense.text, contains(value));
        ::unsetenv(name);
    }
}

TEST_CASE("options that can't be are refused") {
    FOR_EACH_VERBS_DEVICE(way);
    scheduler on;
    const auto with = [&](auto change) {
        verbs_options o = way.options;
        change(o);
        return refused([&] { verbs_domain tried(on, o); }).code;
    };
    CHECK(with([](verbs_options& o) { o.credits = 7; }) == errc::invalid_argument);
    CHECK(with([](verbs_options& o) { o.credits = 2000; }) == errc::invalid_argument);
    CHECK(with([](verbs_options& o) { o.slot_bytes = 100; }) == errc::invalid_argument);
    CHECK(with([](verbs_options& o) { o.send_depth = 100; }) == errc::invalid_argument);
    CHECK(with([](verbs_options& o) { o.most_links = 0; }) == errc::invalid_argument);
    CHECK(with([](verbs_options& o) { o.spare_slots = 65537; }) == errc::invalid_argument);
    CHECK(with([](verbs_options& o) { o.acknowledge_timeout = 32; }) == errc::invalid_argument);
    CHECK(with([](verbs_options& o) { o.traffic_class = 256; }) == errc::invalid_argument);
    CHECK(with([](verbs_options& o) { o.service_level = 16; }) == errc::invalid_argument);
    CHECK_FALSE(with([](verbs_options&) {}));
}

TEST_CASE(
    "a wish for more inline bytes than a number of the device has room for gets what the device takes") {
    FOR_EACH_VERBS_DEVICE(way);
    const auto limit = [&](std::size_t wanted) {
        verbs_options o = way.options;
        o.inline_bytes = wanted;
        return rdmacoro::detail::verbs::device(o).inline_limit();
    };
    const std::uint32_t most = limit(verbs_options{}.slot_bytes);
    CHECK(most >= limit(64));
    CHECK(most != 0);
    CHECK(limit(SIZE_MAX) == most);
    CHECK(limit(std::size_t{1} << 32) == most);
}

TEST_CASE("one link has room in the fewest completion entries that a domain may have") {
    FOR_EACH_VERBS_DEVICE(way);
    for (const unsigned credits : {8u, 64u}) {
        verbs_options o = way.options;
        o.credits = credits;
        o.send_depth = 32;
        o.completion_entries = std::max(o.send_depth + credits, 2 * credits);
        verbs_world w(o);
        verbs_end a;
        verbs_end b;
        w.link(a, b);
        w.exchange(a, b, pattern(8));
        CHECK(b.sink.count == 1);
    }
}

TEST_CASE("connecting to a port without a listener is refused with the address in the text") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    std::string address;
    {
        const verbs_listener listening = w.on.run(w.server.listen("*:0"));
        address = listening.address();
    }
    refusal seen = refused([&] { static_cast<void>(w.on.run(w.client.connect(address))); });
    CHECK(seen.code == errc::connection_refused);
    CHECK_THAT(seen.text, contains(address));
    for (const char* nonsense : {"", "nowhere", "tcp://127.0.0.1:1", "127.0.0.1", "127.0.0.1:99999"}) {
        CAPTURE(nonsense);
        seen = refused([&] { static_cast<void>(w.on.run(w.client.connect(nonsense))); });
        CHECK(seen.code == errc::address_invalid);
        CHECK_THAT(seen.text, contains("verbs"));
    }
}

TEST_CASE("an address of no RDMA device can't be listened on") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_world w(way.options);
    const refusal seen = refused([&] { static_cast<void>(w.on.run(w.server.listen("203.0.113.77:0"))); });
    CHECK(seen.code == errc::address_invalid);
    CHECK_THAT(seen.text, contains("203.0.113.77"));
}

TEST_CASE("ends of different slot sizes and credits agree on what both can do") {
    FOR_EACH_VERBS_DEVICE(way);
    verbs_options small = way.options;
    small.slot_bytes = 4096;
    small.credits = 8;
    verbs_world w(small, way.options);
    verbs_end a;
    verbs_end b;
    w.link(a, b);
    CHECK(a.link->capabilities().max_message == b.link->capabilities().max_message);
    CHECK(a.link->capabilities().max_message >= verbs_rc::static_capabilities.max_message);
    for (std::uint64_t n = 0; n < 100; ++n) {
        const auto data = pattern(a.link->capabilities().max_message, static_cast<unsigned>(n));
        post_for_sure(w, a, n, data);
        post_for_sure(w, b, n, data);
        w.until([&] { return a.sink.count == n + 1 && b.sink.count == n + 1; });
        CHECK(a.sink.messages.back().payload == data);
        CHECK(b.sink.messages.back().payload == data);
    }
}

TEST_CASE("memory that may not be locked is refused with the limit and how to raise it") {
    FOR_EACH_VERBS_DEVICE(way);
    const verbs_options options = way.options;
    child_process poor([options](const std::string&) {
        scheduler on;
        verbs_options o = options;
        o.spare_slots = 8;
        verbs_domain domain(on, o);
        const rlimit limit{1 << 20, 1 << 20};
        if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || !drop_capabilities()) ::_exit(10);
        std::vector<std::byte> memory(std::size_t{8} << 20);
        const refusal seen =
            refused([&] { static_cast<void>(domain.register_memory(memory, access_rights::all)); });
        if (seen.code != errc::no_resources) ::_exit(11);
        for (const char* part : {"8 MiB", "1 MiB", "RLIMIT_MEMLOCK", "ulimit -l"}) {
            if (seen.text.find(part) == std::string::npos) ::_exit(12);
        }
    });
    poor.tell("go");
    const int status = poor.wait();
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("an acknowledge timeout is the one asked for, else a second, and never less than the path's") {
    using rdmacoro::detail::verbs::acknowledge_timeout;
    CHECK(acknowledge_timeout(0, false, 0) == 18);
    CHECK(acknowledge_timeout(0, false, 21) == 21);
    CHECK(acknowledge_timeout(16, false, 0) == 16);
    CHECK(acknowledge_timeout(16, false, 19) == 19);
    CHECK(acknowledge_timeout(0, true, 0) == 14);
    CHECK(acknowledge_timeout(0, true, 17) == 17);
}

TEST_CASE("packets over InfiniBand carry a global header where the port asks for it, or the peer is in "
          "another subnet") {
    using namespace rdmacoro::detail::verbs;
    port_state from;
    from.attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
    from.gid.raw[0] = 0xfe;
    from.gid_index = 3;
    path_end to;
    to.lid = 9;
    to.gid = from.gid;
    to.gid.raw[15] = 1;
    verbs_options options;
    options.service_level = 5;
    options.traffic_class = 0x20;
    ibv_ah_attr made = path_between(from, 2, to, options);
    CHECK(made.is_global == 0);
    CHECK(made.dlid == 9);
    CHECK(made.port_num == 2);
    CHECK(made.sl == 5);
    from.attributes.flags = IBV_QPF_GRH_REQUIRED;
    made = path_between(from, 2, to, options);
    CHECK(made.is_global == 1);
    CHECK(made.grh.sgid_index == 3);
    CHECK(made.grh.traffic_class == 0x20);
    CHECK(made.grh.hop_limit == 64);
    CHECK(std::memcmp(&made.grh.dgid, &to.gid, sizeof to.gid) == 0);
    from.attributes.flags = 0;
    to.gid.raw[7] = 1;  // the last byte of the subnet's prefix
    CHECK(path_between(from, 2, to, options).is_global == 1);
    to.gid = {};
    CHECK(path_between(from, 2, to, options).is_global == 0);  // a peer without one
    from.attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
    CHECK(path_between(from, 2, to, {}).is_global == 1);
}

}  // namespace test_transport_verbs_rc_device
