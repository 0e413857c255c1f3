// Bodies of detail/rendezvous_engine.hpp.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_engine.hpp>

namespace rdmacoro::detail {

RDMACORO_COLD start_result rendezvous_halves::start(send_request& r) noexcept { return out_.start(r); }

RDMACORO_COLD void rendezvous_halves::cancel_send(send_request& r) noexcept { out_.cancel(r); }

RDMACORO_COLD delivery rendezvous_halves::arrived(unsigned kind, const wire_header& h,
                                                  std::span<const std::byte> payload) noexcept {
    switch (kind) {
        case rendezvous_request: return in_.requested(h, payload);
        case rendezvous_ready: return out_.ready(h, payload);
        case rendezvous_received: return out_.received(h, payload);
        case rendezvous_sent: return in_.sent(h, payload);
        case rendezvous_abandon: return in_.abandoned(h, payload);
        case rendezvous_gone: return out_.gone(h, payload);
        default: return out_.withdrawn(h, payload);
    }
}

RDMACORO_COLD void rendezvous_halves::matched(unexpected_message& m, receive_request& r) noexcept {
    in_.matched(m, r);
}

RDMACORO_COLD bool rendezvous_halves::forget_receive(receive_request& r) noexcept { return in_.forget(r); }

RDMACORO_COLD void rendezvous_halves::writable() noexcept {
    out_.writable();
    in_.writable();
}

RDMACORO_COLD void rendezvous_halves::fail(std::error_code reason) noexcept {
    out_.fail(reason);
    in_.fail(reason);
}

}  // namespace rdmacoro::detail
