// The simulated transport: any number of nodes in one process and on one scheduler, in virtual time, the same in each run.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/semaphore.hpp>
#include <rdmacoro/transport/concepts.hpp>
#include <rdmacoro/transport/sim/link.hpp>
#include <rdmacoro/transport/sim/node.hpp>
#include <rdmacoro/transport/sim/wire.hpp>
#include <rdmacoro/transport/sim/world.hpp>

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rdmacoro {

/// Reliable, ordered links between the nodes of a `sim_world`. Events without an order by contract take any: messages of
/// different directions and links, gets, puts and completions. See `sim_world_options` for costs and faults, `sim_options` for
/// the capabilities of a node, and `explore` for taking all orders there are.
///
/// `static_capabilities` are those of `sim_options::usual`; those of a node are given by its links.
struct sim {
    static constexpr const char* name = "sim";
    static constexpr const char* description = "simulated network in one process, deterministic";
    static constexpr capabilities static_capabilities = sim_options::usual;

    class domain;

    /// A connected end that has not become a link yet.
    class connection {
    public:
        connection() noexcept = default;
        connection(detail::sim::wire& of, unsigned side) noexcept : wire_(&of), side_(side) {}
        connection(connection&& other) noexcept
            : wire_(std::exchange(other.wire_, nullptr)), side_(other.side_) {}
        connection& operator=(connection&& other) noexcept;
        ~connection();

    private:
        friend struct sim;

        detail::sim::wire* wire_ = nullptr;
        unsigned side_ = 0;
    };

    /// Accepts connections to one name. Its domain outlives it.
    class listener {
    public:
        /// Made by `listen`.
        listener(domain& in, std::string called);
        listener(listener&&) noexcept = default;
        listener& operator=(listener&& other) noexcept;
        ~listener();

        /// Completes when a node has connected. Several may wait; they are served in order.
        [[nodiscard]] task<connection> accept();
        [[nodiscard]] std::string address() const { return std::string("sim://") + name_; }

    private:
        friend class domain;
        void close() noexcept;

        std::string name_;
        std::unique_ptr<detail::sim::backlog> backlog_;
    };

    /// One node of the network.
    class domain final : public detail::sim::node {
    public:
        /// A node of the simulated network.
        explicit domain(scheduler& owner, const sim_options& options = {}) : node(owner, options) {}

        /// Ends with a connection to the listener of that name in this world; takes no time.
        [[nodiscard]] task<connection> connect(std::string_view address);
        [[nodiscard]] task<listener> listen(std::string_view address);

    private:
        [[nodiscard]] static std::string plain(std::string_view address);
        static task<connection> connect_to(domain& self, std::string to);
        static task<listener> listen_on(domain& self, std::string at);
    };

    /// A link that hands up to `Sink`. Models `one_sided_link` and `in_place_link`.
    template <class Sink>
    class link final : public detail::sim::link<Sink> {
    public:
        /// Required by `rdmacoro::transport`.
        link(connection made, Sink& sink) noexcept
            : detail::sim::link<Sink>(*std::exchange(made.wire_, nullptr), made.side_, sink) {}
    };
};

namespace detail::sim {
/// Connections to a name not yet returned by accept().
struct backlog {
    std::deque<rdmacoro::sim::connection> waiting;
    semaphore arrived{0, false};
    rdmacoro::sim::domain* at = nullptr;

    static task<rdmacoro::sim::connection> take(backlog& from);
};
}  // namespace detail::sim

static_assert(transport<sim>);
static_assert(one_sided_link<sim::link<detail::sink_archetype>>);
static_assert(in_place_link<sim::link<detail::sink_archetype>>);

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/impl/sim.ipp>
#endif

#if defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/messaging/compiled/sim.hpp>
#include <rdmacoro/service/compiled/sim.hpp>
#endif
