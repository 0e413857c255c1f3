// Bodies of opening.hpp that are no templates.
#pragma once

#include <rdmacoro/transport/detail/opening.hpp>

#include <netdb.h>

namespace rdmacoro::detail {

RDMACORO_COLD std::string unknown_host_text(const inet_address& address, int failure) {
    return address.whole + ": " + ::gai_strerror(failure != 0 ? failure : EAI_NONAME) +
           "; check the host's name, or give its IP address";
}

}  // namespace rdmacoro::detail
