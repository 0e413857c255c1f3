// session_handle: an open connection before a link takes it.
#pragma once

#include <cstdint>
#include <memory>

namespace rdmacoro::detail {

/// Refers to the session of an open connection, and abandons it when destroyed. The session belongs to its domain.
template <class Session>
class session_handle {
public:
    session_handle() noexcept = default;
    explicit session_handle(Session& session) noexcept : session_(&session) {}

    [[nodiscard]] explicit operator bool() const noexcept { return session_ != nullptr; }

    /// Closes it now.
    void reset() noexcept { session_.reset(); }

    /// The peer's host, by `host_hash`.
    [[nodiscard]] std::uint8_t peer_host() const noexcept { return session_->peer_host(); }

    /// Hands the session to the link that takes the connection.
    [[nodiscard]] Session* release() noexcept { return session_.release(); }

private:
    struct abandon {
        void operator()(Session* session) const noexcept { session->abandon(); }
    };
    std::unique_ptr<Session, abandon> session_;
};

}  // namespace rdmacoro::detail
