#pragma once

// Two verbs domains on one scheduler, on a device of this machine, with links between them.

#include <rdmacoro/coro/coro.hpp>
#include <rdmacoro/transport/verbs_rc.hpp>

#include "support/fabric_pair.hpp"

#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace rdmacoro::test {

/// A way to open a domain here.
struct verbs_way {
    std::string name;
    verbs_options options;
    bool iwarp = false;
    // Linux's devices in software.
    bool rxe = false;
    bool siw = false;
};

/// The way of `options`, and what its device is. Throws where there is none.
inline verbs_way verbs_way_of(const verbs_options& options) {
    scheduler on;
    verbs_domain tried(on, options);
    verbs_way made{tried.device_name(), options};
    int count = 0;
    const rdmacoro::detail::verbs::unique_device_list list(::ibv_get_device_list(&count));
    for (int n = 0; n < count; ++n) {
        ibv_device* const one = list.get()[n];
        if (made.name != ::ibv_get_device_name(one)) continue;
        const rdmacoro::detail::verbs::unique_context opened(::ibv_open_device(one));
        ibv_device_attr attributes{};
        if (opened == nullptr || ::ibv_query_device(opened.get(), &attributes) != 0) continue;
        made.iwarp = one->transport_type == IBV_TRANSPORT_IWARP;
        made.rxe = attributes.vendor_id == 0xffffff && attributes.vendor_part_id == 0;
        made.siw = made.iwarp && attributes.vendor_id == 0x626d74;
    }
    return made;
}

/// The devices that this machine has: those of the addresses in RXE_IP (InfiniBand or RoCE) and SIW_IP (iWARP), or the default one.
/// Empty: none. Other options are those of the environment.
inline const std::vector<verbs_way>& verbs_ways() {
    static const std::vector<verbs_way> found = [] {
        std::vector<verbs_way> ways;
        for (const char* variable : {"RXE_IP", "SIW_IP"}) {
            const char* ip = std::getenv(variable);
            if (ip == nullptr) continue;
            verbs_options o = verbs_options::from_environment();
            o.address = ip;
            ways.push_back(verbs_way_of(o));
        }
        if (!ways.empty()) return ways;
        try {
            ways.push_back(verbs_way_of(verbs_options::from_environment()));
        } catch (const std::system_error&) {}
        return ways;
    }();
    return found;
}

using verbs_recorded_link = verbs_rc::link<recording_sink>;

struct verbs_fabric {
    using transport = verbs_rc;
    using options = verbs_options;
    static constexpr const char* address = "*:0";
    /// Over iWARP the side that connected speaks first; here the other one does.
    template <class World, class End>
    static void greet(World& w, End& a, End& b) {
        const std::byte nothing[1] = {};
        w.exchange(b, a, nothing);
    }
};

using verbs_end = fabric_end<verbs_fabric>;
using verbs_world = fabric_world<verbs_fabric>;

/// How something was refused; no code: it was not.
struct refusal {
    std::error_code code;
    std::string text;
};
template <class Function>
refusal refused(Function what) {
    try {
        what();
    } catch (const std::system_error& why) {
        return {why.code(), why.what()};
    }
    return {};
}

/// What this process has locked for devices, in bytes.
inline std::size_t locked_memory() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("VmPin:")) return std::stoul(line.substr(6)) * 1024;
    }
    return 0;
}

inline verbs_options connecting_by(verbs_options o, verbs_connect how) {
    o.connect_by = how;
    return o;
}

inline task<verbs_connection> accepted_from(verbs_listener& listening) {
    co_return co_await listening.accept();
}

/// The devices that are not iWARP, which has no atomics.
inline std::vector<verbs_way> verbs_ways_but_iwarp() {
    std::vector<verbs_way> ways = verbs_ways();
    std::erase_if(ways, [](const verbs_way& one) { return one.iwarp; });
    return ways;
}

/// Runs the rest of a test case once for each of `ways`; skips it, and says so, where there is none.
#define FOR_EACH_VERBS_DEVICE_OF(way, ways)                                                                  \
    if (ways.empty()) SKIP_TEST("this machine has no such RDMA device with an active port");                 \
    const ::rdmacoro::test::verbs_way way =                                                                  \
        ways[static_cast<std::size_t>(GENERATE_COPY(range(0, static_cast<int>(ways.size()))))];              \
    CAPTURE(way.name)
#define FOR_EACH_VERBS_DEVICE(way) FOR_EACH_VERBS_DEVICE_OF(way, ::rdmacoro::test::verbs_ways())
#define FOR_EACH_VERBS_DEVICE_BUT_IWARP(way)                                                                 \
    FOR_EACH_VERBS_DEVICE_OF(way, ::rdmacoro::test::verbs_ways_but_iwarp())

}  // namespace rdmacoro::test
