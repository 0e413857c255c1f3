// Bodies of options.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/options.hpp>

#include <rdmacoro/coro/error.hpp>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace rdmacoro {

RDMACORO_COLD verbs_options verbs_options::from_environment() {
    verbs_options o;
    const auto asked = [](const char* name) {
        const char* value = std::getenv(name);
        return std::string_view(value != nullptr ? value : "");
    };
    const auto number = [&](const char* name, auto& into) {
        const std::string_view value = asked(name);
        if (value.empty()) return;
        const char* const end = value.data() + value.size();
        const auto [stop, wrong] = std::from_chars(value.data(), end, into);
        if (wrong != std::errc() || stop != end)
            throw error(errc::invalid_argument,
                        std::string(name) + "=" + std::string(value) + " is not a number");
    };
    o.device = asked("RDMACORO_VERBS_DEVICE");
    number("RDMACORO_VERBS_PORT", o.port);
    number("RDMACORO_VERBS_GID_INDEX", o.gid_index);
    number("RDMACORO_VERBS_ACKNOWLEDGE_TIMEOUT", o.acknowledge_timeout);
    number("RDMACORO_VERBS_TRAFFIC_CLASS", o.traffic_class);
    number("RDMACORO_VERBS_SERVICE_LEVEL", o.service_level);
    number("RDMACORO_VERBS_PARTITION_KEY", o.partition_key);
    unsigned share = o.share_receives ? 1 : 0;
    number("RDMACORO_VERBS_SHARE_RECEIVES", share);
    o.share_receives = share != 0;
    const std::string_view by = asked("RDMACORO_VERBS_CONNECT_BY");
    if (by == "rdma_cm") {
        o.connect_by = verbs_connect::rdma_cm;
    } else if (by == "tcp") {
        o.connect_by = verbs_connect::tcp;
    } else if (!by.empty() && by != "automatic") {
        throw error(errc::invalid_argument,
                    "RDMACORO_VERBS_CONNECT_BY=" + std::string(by) + " is none of automatic, rdma_cm, tcp");
    }
    return o;
}

}  // namespace rdmacoro
