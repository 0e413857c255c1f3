// tcp_link: a connection that hands arriving messages to a sink.
#pragma once

#include <rdmacoro/transport/tcp/connection.hpp>

#include <string>

namespace rdmacoro {

/// Models `one_sided_link` and `in_place_link`. May be destroyed at any time outside a call to its sink. `Sink` may still be
/// incomplete here: a sink that holds its link by value.
template <class Sink>
class tcp_link final : private detail::tcp_upper {
public:
    /// Precondition: `connection` is open.
    tcp_link(tcp_connection connection, Sink& sink) noexcept : session_(*connection.release()), sink_(sink) {
        session_.attach(*this);
    }
    tcp_link(const tcp_link&) = delete;
    tcp_link& operator=(const tcp_link&) = delete;
    ~tcp_link() {
        static_assert(message_sink<Sink>);
        session_.abandon();
    }

    post_result post(const message_header& header, const const_buffers& payload, completion& c) noexcept {
        return session_.post(header, payload, c);
    }
    post_result post_copied(const message_header& header, const const_buffers& payload) noexcept {
        const post_result answer = session_.post_copied(header, payload);
        return answer == post_result::posted ? post_result::done : answer;
    }
    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept {
        return session_.get(there, into, c);
    }
    post_result put(std::span<const std::byte> from, const remote_region& there, completion& c) noexcept {
        return session_.put(from, there, c);
    }
    region expose(std::span<std::byte> memory, access_rights rights) noexcept {
        return session_.expose(memory, rights);
    }
    post_result post_in_place(const message_header& header, const const_buffers& payload,
                              completion& c) noexcept {
        return session_.post_in_place(header, payload, c);
    }
    /// The kernel reads any memory: there is nothing to prepare.
    bool prepare_in_place(std::span<const std::byte>) noexcept { return true; }
    [[nodiscard]] bool in_place(std::span<const std::byte>) const noexcept { return true; }
    bool revoke(completion& c) noexcept { return session_.revoke(c); }
    unsigned poll(unsigned budget) noexcept { return session_.poll(budget); }
    lent_buffer keep() noexcept { return session_.keep(); }
    void close(std::error_code reason) noexcept { session_.close(reason); }

    [[nodiscard]] const rdmacoro::capabilities& capabilities() const noexcept {
        return detail::tcp_capabilities;
    }
    [[nodiscard]] scheduler& owner() const noexcept { return session_.owner(); }
    /// "127.0.0.1:40122".
    [[nodiscard]] std::string peer_name() const { return session_.peer_name(); }

private:
    delivery deliver(const message_header& header, std::span<const std::byte> payload) noexcept override {
        return sink_.deliver(header, payload);
    }
    delivery begin_payload(const message_header& header, std::size_t bytes) noexcept override {
        return sink_.begin_payload(header, bytes);
    }
    std::span<std::byte> payload_space() noexcept override { return sink_.payload_space(); }
    void payload_arrived(std::size_t bytes) noexcept override { sink_.payload_arrived(bytes); }
    void writable() noexcept override { sink_.writable(); }
    void link_down(std::error_code reason) noexcept override { sink_.link_down(reason); }

    detail::tcp_session& session_;
    Sink& sink_;
};

}  // namespace rdmacoro
