// tcp_connection: an open connection that no link has taken yet.
#pragma once

#include <rdmacoro/transport/tcp/engine.hpp>

#include <utility>

namespace rdmacoro {

/// A connected and greeted socket; becomes a link by `tcp::link<Sink>(std::move(connection), sink)`. Nothing is read from
/// it before, so what the peer sends meanwhile is not lost. Closes when destroyed. Must not outlive its domain.
class tcp_connection {
public:
    tcp_connection() noexcept = default;
    explicit tcp_connection(detail::tcp_core& core) noexcept : core_(&core) {}
    tcp_connection(tcp_connection&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}
    tcp_connection& operator=(tcp_connection&& other) noexcept {
        if (this != &other) {
            reset();
            core_ = std::exchange(other.core_, nullptr);
        }
        return *this;
    }
    ~tcp_connection() { reset(); }

    [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }

    /// Closes it now.
    void reset() noexcept {
        if (core_ != nullptr) std::exchange(core_, nullptr)->abandon();
    }

    /// For the link that takes it.
    [[nodiscard]] detail::tcp_core* release() noexcept { return std::exchange(core_, nullptr); }

private:
    detail::tcp_core* core_ = nullptr;
};

}  // namespace rdmacoro
