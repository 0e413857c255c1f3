// How many places there are for strangers.
#pragma once

#include <rdmacoro/transport/detail/host_places.hpp>

#include <algorithm>

#include <sys/resource.h>

namespace rdmacoro::detail {

RDMACORO_COLD std::size_t most_places(std::size_t wanted) noexcept {
    rlimit descriptors{};
    if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return wanted;
    return std::min<std::size_t>(wanted, std::max<rlim_t>(1, descriptors.rlim_cur / 4));
}

}  // namespace rdmacoro::detail
