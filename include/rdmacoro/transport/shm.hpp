// Shared memory between two processes of one machine and one user: `endpoint<shm>`, addresses `shm://NAME`.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/shm/link.hpp>

#include <string>
#include <string_view>
#include <utility>

namespace rdmacoro {

namespace detail::shm {
class acceptor;
class socket_name;
}  // namespace detail::shm

/// The shared-memory transport. One memory segment a connection, made by the connecting side and passed over a Unix
/// socket; both sides check its credentials: only processes of one user connect. Small messages are single cache lines;
/// get and put are process_vm_readv and process_vm_writev, plain copies in a domain's shared arena, or, where the
/// kernel forbids the former, copies through the ring that the peer's scheduler serves. Never waits in the kernel but
/// when the scheduler parks; then a peer's doorbell wakes it.
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

    /// A connection that has not become a link yet.
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
        explicit listener(detail::shm::acceptor* adopted) noexcept : acceptor_(adopted) {}
        listener(listener&& other) noexcept : acceptor_(std::exchange(other.acceptor_, nullptr)) {}
        listener& operator=(listener&& other) noexcept {
            std::swap(acceptor_, other.acceptor_);
            return *this;
        }
        ~listener();

        /// Awaitable.
        /// Completes: with the next connection, once its peer has shaken hands.
        /// Buffers: none.
        /// Concurrency: any number at a time.
        /// Errors: none of a peer's making; a bad peer is dropped.
        /// Cancellation: at any time; no connection is lost.
        /// Example:
        ///     rdmacoro::shm::connection made = co_await listening.accept();
        task<connection> accept();
        [[nodiscard]] std::string address() const;

    private:
        static task<connection> accept_from(detail::shm::acceptor& from);

        detail::shm::acceptor* acceptor_;
    };

    /// The shared-memory resources of one scheduler. All links, listeners and regions must be destroyed before it.
    class domain : public detail::shm::domain_base {
    public:
        /// Takes a shared arena and a table of regions; throws `rdmacoro::error`.
        explicit domain(scheduler& owner, const shm_options& options = {}) : domain_base(owner, options) {}

        task<connection> connect(std::string_view address);
        task<listener> listen(std::string_view address);

    private:
        static task<connection> connect_to(domain& self, detail::shm::socket_name address);
        static task<listener> listen_on(domain& self, detail::shm::socket_name address);
    };
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/impl/shm.ipp>
#else
#include <rdmacoro/service/compiled/shm.hpp>
#endif
