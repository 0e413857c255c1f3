#include "verbs.hpp"

using json = nlohmann::ordered_json;

#if RDMACORO_WITH_VERBS

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/verbs_rc.hpp>

#include <algorithm>
#include <cstdint>
#include <exception>

#include <arpa/inet.h>
#include <sys/resource.h>

namespace {

namespace verbs = rdmacoro::detail::verbs;

std::string text_of(const ibv_gid& gid) {
    char text[INET6_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET6, gid.raw, text, sizeof text);
    return text;
}

/// Links whose memory this process may lock; null: as many as it likes.
json links_that_memlock_allows(std::uint64_t bytes_of_link) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return nullptr;
    return limit.rlim_cur / bytes_of_link;
}

}  // namespace

json verbs_report(const std::string& device) {
    json found = {{"problem", nullptr}};
    try {
        rdmacoro::verbs_options options = rdmacoro::verbs_options::from_environment();
        if (options.device != device) options.port = 0;  // that is another one's
        options.device = device;
        rdmacoro::scheduler on;
        rdmacoro::verbs_domain domain(on, options);
        const verbs::device opened(options);
        verbs::port_state now;
        static_cast<void>(opened.look_at_port(opened.address(), nullptr, now));
        found["describe"] = domain.describe();
        found["port"] = opened.port();
        found["gid_index"] = opened.iwarp() ? json(nullptr) : json(now.gid_index);
        found["gid"] = opened.iwarp() ? json(nullptr) : json(text_of(now.gid));
        found["mtu"] = 128u << now.attributes.active_mtu;
        found["traffic_class"] = options.traffic_class < 0 ? json(nullptr) : json(options.traffic_class);
        const ibv_device_attr& attributes = opened.attributes();
        const std::uint64_t bytes = (options.credits + verbs::session::most_staged) * options.slot_bytes;
        found["limits"] = {{"max_qp", attributes.max_qp},
                           {"max_cqe", attributes.max_cqe},
                           {"max_srq_wr", attributes.max_srq_wr},
                           {"bytes_of_link", bytes},
                           {"links_of_memlock", links_that_memlock_allows(bytes)}};
    } catch (const std::exception& why) {
        found["problem"] = why.what();
    }
    return found;
}

#else

json verbs_report(const std::string&) { return nullptr; }

#endif
