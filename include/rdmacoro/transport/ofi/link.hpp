// ofi_link: a connection that delivers messages to a sink.
#pragma once

#include <rdmacoro/transport/ofi/connection.hpp>

#include <span>

namespace rdmacoro {

/// Models `one_sided_link` and `matching_link`, and has atomics besides. May be destroyed at any time outside a call to its sink. `Sink`
/// may still be incomplete here: a sink that holds its link by value.
template <class Sink>
class ofi_link final : public detail::session_link<detail::fabric::session, Sink> {
    using session_link = detail::session_link<detail::fabric::session, Sink>;
    using session_link::session_;

public:
    /// Precondition: `connection` is open.
    ofi_link(ofi_connection connection, Sink& sink) noexcept : session_link(*connection.release(), sink) {
        if constexpr (requires { requires Sink::delegates; }) session_.begin_matching();
    }

    // ---- matching, by the provider: an endpoint for it is opened when it is first asked for

    [[nodiscard]] const matching_traits& matching() noexcept { return session_.matching(); }
    post_result post_tagged(std::uint64_t tag, std::uint32_t note, const const_buffers& payload,
                            completion& c) noexcept {
        detail::fabric::matched_side* m = session_.matched();
        return m != nullptr ? m->post(tag, note, payload, c) : post_result::failed;
    }
    post_result post_receive(std::uint64_t tag, std::uint64_t mask, const mutable_buffers& into,
                             tagged_completion& c) noexcept {
        detail::fabric::matched_side* m = session_.matched();
        return m != nullptr ? m->receive(tag, mask, into, c) : post_result::failed;
    }
    post_result claim(tagged_completion& c) noexcept {
        detail::fabric::matched_side* m = session_.matched();
        return m != nullptr ? m->claim(c) : post_result::failed;
    }
    post_result receive_claimed(claimed_message message, const mutable_buffers& into,
                                tagged_completion& c) noexcept {
        return session_.matched()->receive_claimed(message, into, c);
    }
    void discard(claimed_message message) noexcept { session_.matched()->discard(message); }
    [[nodiscard]] bool withdraw(completion& c) noexcept { return session_.matched()->withdraw(c); }

    region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        return session_.expose(memory, rights);
    }
    /// Messages are never `posted`. Of a get or put, the piece that is under way, of up to 8 MiB, is waited for; where it does not
    /// end within a second, all links of the domain end with it.
    bool revoke(completion& c) noexcept {
        session_.revoke(c);
        return false;
    }
};

}  // namespace rdmacoro
