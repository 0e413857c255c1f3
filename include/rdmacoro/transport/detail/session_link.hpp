// session_link: the common part of links that have a session with slots and credits: verbs, libfabric.
#pragma once

#include <rdmacoro/transport/concepts.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <system_error>

namespace rdmacoro::detail {

/// Receives the messages and events of a session.
class session_listener {
public:
    virtual delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept = 0;
    virtual void writable() noexcept = 0;
    virtual void link_down(std::error_code reason) noexcept = 0;

protected:
    ~session_listener() = default;
};

/// Forwards the calls of a link's user to the session, and the session's events to the sink. `Session::atomics` names the atomics.
template <class Session, class Sink>
class session_link : private session_listener {
public:
    session_link(const session_link&) = delete;
    session_link& operator=(const session_link&) = delete;

    post_result post(const message_header& header, const const_buffers& payload, completion&) noexcept {
        return session_.post(header, payload);  // always copied: by the library, or into a slot
    }
    post_result post_copied(const message_header& header, const const_buffers& payload) noexcept {
        return session_.post(header, payload);
    }
    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept {
        return session_.get(there, into, c);
    }
    post_result put(std::span<const std::byte> from, const remote_region& there, completion& c) noexcept {
        return session_.put(from, there, c);
    }
    /// Adds `value` to the peer's number at `there`: 8 bytes, aligned to 8, of a region with all rights. `result` holds the old
    /// number, in this machine's byte order, once `c` is called; it stays borrowed until then. Returns like `get`.
    /// `errc::unsupported` where `capabilities().atomics` is false.
    post_result fetch_add(const remote_region& there, std::uint64_t value, std::uint64_t& result,
                          completion& c) noexcept {
        return session_.atomic(Session::atomics::fetch_add, there, value, 0, result, c);
    }
    /// Sets the peer's number at `there` to `desired` if it is `expected`. As `fetch_add` otherwise.
    post_result compare_swap(const remote_region& there, std::uint64_t expected, std::uint64_t desired,
                             std::uint64_t& result, completion& c) noexcept {
        return session_.atomic(Session::atomics::compare_swap, there, expected, desired, result, c);
    }
    unsigned poll(unsigned budget) noexcept { return session_.poll(budget); }
    lent_buffer keep() noexcept { return session_.keep(); }
    void close(std::error_code reason) noexcept { session_.close(reason); }

    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept {
        return session_.capabilities();
    }
    [[nodiscard]] scheduler& owner() const noexcept { return session_.of().owner(); }
    /// The peer's address, with the transport's scheme before it.
    [[nodiscard]] std::string peer_name() const { return session_.peer_name(); }

    /// Counts of this link so far.
    [[nodiscard]] const auto& counts() const noexcept { return session_.counts(); }
    /// Messages that may be sent before the peer returns credits.
    [[nodiscard]] std::uint32_t credits() const noexcept { return session_.credits(); }

protected:
    session_link(Session& session, Sink& sink) noexcept : session_(session), sink_(sink) {
        session_.attach(*this);
    }
    ~session_link() {
        static_assert(message_sink<Sink>);
        session_.abandon();
    }

    Session& session_;

private:
    delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept override {
        return sink_.deliver(header, payload);
    }
    void writable() noexcept override { sink_.writable(); }
    void link_down(std::error_code reason) noexcept override { sink_.link_down(reason); }

    Sink& sink_;
};

}  // namespace rdmacoro::detail
