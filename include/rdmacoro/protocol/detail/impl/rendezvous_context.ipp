// Bodies of detail/rendezvous_context.hpp.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_context.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD delivery rendezvous_context::violation() noexcept {
    close(make_error_code(errc::protocol_violation));
    return delivery::taken;
}

}  // namespace rdmacoro::detail
