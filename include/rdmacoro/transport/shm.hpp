// Shared memory between two processes of one machine and one user: `endpoint<shm>`, addresses `shm://NAME`.
#pragma once

#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/shm/link.hpp>
#include <rdmacoro/transport/shm/listener.hpp>

namespace rdmacoro {

/// The shared-memory transport. One memory segment a connection, made by the connecting side and passed over a Unix
/// socket whose credentials both sides check: only processes of one user connect. Small messages are single cache lines;
/// get and put are process_vm_readv and process_vm_writev, plain copies in a domain's shared arena, or, where the kernel
/// forbids the former, copies through the ring that the peer's scheduler serves. Never waits in the kernel but when the
/// scheduler parks; then a peer's doorbell wakes it.
struct shm {
    static constexpr const char* name = "shm";
    static constexpr const char* description = "shared memory between processes of one machine";
    static constexpr capabilities static_capabilities{
        .inline_bytes = detail::shm::most_in_cell,
        .max_message = 4096,  // the smallest block two sides may agree on
        .eager_bytes = 4096,
        .segment_bytes = 32768,
        .get_alignment = 1,
        .one_sided = true,
        .one_sided_offloaded = false,
        .needs_registration = false,
        .atomics = false,
        .put_before_send = false,
        .revokes_at_once = true,
        // Measured: copied through the ring by both ends, messages of
        // any length are faster than from memory to memory.
        .rendezvous_bytes = never_by_rendezvous};

    /// A connected link that nobody listens to yet.
    class connection {
    public:
        connection() noexcept = default;
        explicit connection(detail::shm::channel_ref made) noexcept : channel_(std::move(made)) {}
        [[nodiscard]] detail::shm::channel_ref release() noexcept { return std::move(channel_); }

    private:
        detail::shm::channel_ref channel_;
    };

    template <class Sink>
    class link final : public detail::shm::link<Sink> {
    public:
        link(connection made, Sink& sink)
            : detail::shm::link<Sink>(made.release(), static_capabilities, sink) {}
    };

    /// Accepts connections on one name. Must not outlive its domain.
    class listener {
    public:
        explicit listener(std::unique_ptr<detail::shm::acceptor> made) noexcept
            : acceptor_(std::move(made)) {}

        /// Awaitable.
        /// Completes: with the next connection, once its peer has shaken hands.
        /// Buffers: none.
        /// Concurrency: any number at a time.
        /// Errors: none of a peer's making; a bad peer is dropped.
        /// Cancellation: at any time; no connection is lost.
        /// Example:
        ///     rdmacoro::shm::connection made = co_await listening.accept();
        template <class = void>
        task<connection> accept() {
            detail::shm::acceptor::accept_operation next(*acceptor_);
            co_return connection(co_await next);
        }
        [[nodiscard]] std::string address() const { return acceptor_->name(); }

    private:
        std::unique_ptr<detail::shm::acceptor> acceptor_;
    };

    /// What is one for a scheduler. All links, listeners and regions must be gone before it.
    class domain : public detail::shm::domain_base {
    public:
        explicit domain(scheduler& owner, const shm_options& options = {}) : domain_base(owner, options) {}

        template <class = void>
        task<connection> connect(std::string_view address) {
            return connect_to(*this, detail::shm::socket_name(address));
        }
        template <class = void>
        task<listener> listen(std::string_view address) {
            return listen_on(*this, detail::shm::socket_name(address));
        }

    private:
        template <class Domain>
        static task<connection> connect_to(Domain& self, detail::shm::socket_name address) {
            co_return connection(co_await detail::shm::connect_channel<>(self, std::move(address)));
        }
        template <class Domain>
        static task<listener> listen_on(Domain& self, detail::shm::socket_name address) {
            co_return listener(std::make_unique<detail::shm::acceptor>(self, address));
        }
    };
};

}  // namespace rdmacoro
