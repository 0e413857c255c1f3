// The interfaces of this host.
#pragma once

#include <rdmacoro/transport/detail/inet_address.hpp>
#include <rdmacoro/transport/detail/own_address.hpp>

#include <cstring>

#include <ifaddrs.h>
#include <net/if.h>

namespace rdmacoro::detail {

RDMACORO_COLD std::string own_inet_address() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return {};
    std::string found;
    for (const int family : {AF_INET, AF_INET6}) {
        for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
            if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
            if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
            inet_endpoint at;
            at.bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
            std::memcpy(&at.address, one->ifa_addr, at.bytes);
            // Of one link only: it would need the interface's name at the other end.
            if (family == AF_INET6 &&
                IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(at.address).sin6_addr))
                continue;
            found = at.text();
            found.erase(found.rfind(':'));
        }
    }
    ::freeifaddrs(all);
    return found;
}

}  // namespace rdmacoro::detail
