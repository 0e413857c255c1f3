// ofi_link: a connection that hands what arrives to a sink.
#pragma once

#include <rdmacoro/transport/ofi/connection.hpp>

#include <string>

namespace rdmacoro {

/// Models `one_sided_link` and `matching_link`, and has atomics besides. May be destroyed at any time outside a call to its sink. `Sink` may still
/// be incomplete here: a sink that holds its link by value.
template <class Sink>
class ofi_link final : private detail::fabric::upper {
public:
    /// Precondition: `connection` is open.
    ofi_link(ofi_connection connection, Sink& sink) noexcept : core_(*connection.release()), sink_(sink) {
        core_.attach(*this);
        if constexpr (requires { requires Sink::delegates; }) core_.begin_matching();
    }
    ofi_link(const ofi_link&) = delete;
    ofi_link& operator=(const ofi_link&) = delete;
    ~ofi_link() {
        static_assert(message_sink<Sink>);
        core_.abandon();
    }

    post_result post(const message_header& header, const const_buffers& payload, completion&) noexcept {
        return core_.post(header, payload);  // always copied, by the provider or into a slot
    }
    post_result post_copied(const message_header& header, const const_buffers& payload) noexcept {
        return core_.post(header, payload);
    }
    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept {
        return core_.get(there, into, c);
    }
    post_result put(std::span<const std::byte> from, const remote_region& there, completion& c) noexcept {
        return core_.put(from, there, c);
    }
    /// Adds `value` to the peer's number at `there`: 8 bytes, aligned to 8, of a region with all rights. What it was before is
    /// in `result`, in this machine's byte order, once `c` is called; it stays borrowed until then. Answers like `get`.
    /// `errc::unsupported` where `capabilities().atomics` is false.
    post_result fetch_add(const remote_region& there, std::uint64_t value, std::uint64_t& result,
                          completion& c) noexcept {
        return core_.atomic(detail::fabric::transfer::way::fetch_add, there, value, 0, result, c);
    }
    /// Sets the peer's number at `there` to `desired` if it is `expected`. As `fetch_add` otherwise.
    post_result compare_swap(const remote_region& there, std::uint64_t expected, std::uint64_t desired,
                             std::uint64_t& result, completion& c) noexcept {
        return core_.atomic(detail::fabric::transfer::way::compare_swap, there, expected, desired, result, c);
    }

    // ---- matching, by the provider: an endpoint for it is opened when it is first asked for

    [[nodiscard]] const matching_traits& matching() noexcept { return core_.matching(); }
    post_result post_tagged(std::uint64_t tag, std::uint32_t note, const const_buffers& payload,
                            completion& c) noexcept {
        detail::fabric::matched_side* m = core_.matched();
        return m != nullptr ? m->post(tag, note, payload, c) : post_result::failed;
    }
    post_result post_receive(std::uint64_t tag, std::uint64_t mask, const mutable_buffers& into,
                             tagged_completion& c) noexcept {
        detail::fabric::matched_side* m = core_.matched();
        return m != nullptr ? m->receive(tag, mask, into, c) : post_result::failed;
    }
    post_result claim(tagged_completion& c) noexcept {
        detail::fabric::matched_side* m = core_.matched();
        return m != nullptr ? m->claim(c) : post_result::failed;
    }
    post_result receive_claimed(claimed_message message, const mutable_buffers& into,
                                tagged_completion& c) noexcept {
        return core_.matched()->receive_claimed(message, into, c);
    }
    void discard(claimed_message message) noexcept { core_.matched()->discard(message); }
    [[nodiscard]] bool withdraw(completion& c) noexcept { return core_.matched()->withdraw(c); }

    region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        return core_.of().regions().add(core_.of(), core_.of().cache(), memory, rights);
    }
    /// Messages are never `posted`; a get or put that does not end within 100 ms ends all links of the domain with it.
    bool revoke(completion& c) noexcept {
        core_.revoke(c);
        return false;
    }
    unsigned poll(unsigned budget) noexcept { return core_.poll(budget); }
    lent_buffer keep() noexcept { return core_.keep(); }
    void close(std::error_code reason) noexcept { core_.close(reason); }

    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept { return core_.capabilities(); }
    [[nodiscard]] scheduler& owner() const noexcept { return core_.of().owner(); }
    /// "ofi+tcp://10.0.0.2:7471".
    [[nodiscard]] std::string peer_name() const { return core_.peer_name(); }

    /// What this link did so far.
    [[nodiscard]] const ofi_counts& counts() const noexcept { return core_.counts(); }
    /// Messages that may be sent before the peer says that it has consumed earlier ones.
    [[nodiscard]] std::uint32_t credits() const noexcept { return core_.credits(); }

private:
    delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept override {
        return sink_.deliver(header, payload);
    }
    void writable() noexcept override { sink_.writable(); }
    void link_down(std::error_code reason) noexcept override { sink_.link_down(reason); }

    detail::fabric::core& core_;
    Sink& sink_;
};

}  // namespace rdmacoro
