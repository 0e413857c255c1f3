// The simulated transport: any number of nodes in one process and on one scheduler, in virtual time, the same in each run.
#pragma once

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

/// Reliable, ordered links between the nodes of a `sim_world`. What has no order by contract takes any: messages of
/// different directions and links, gets, puts and completions. See `sim_world_options` for what things cost and what goes
/// wrong, `sim_options` for what a node can do, and `explore` for taking all orders there are.
///
/// `static_capabilities` are those of `sim_options::usual`; what a node offers is said by its links.
struct sim {
    static constexpr const char* name = "sim";
    static constexpr const char* description = "simulated network in one process, deterministic";
    static constexpr capabilities static_capabilities = sim_options::usual;

    class domain;

    /// A connected end that nobody listens to yet.
    class connection {
    public:
        connection() noexcept = default;
        connection(detail::sim::wire& of, unsigned side) noexcept : wire_(&of), side_(side) {}
        connection(connection&& other) noexcept
            : wire_(std::exchange(other.wire_, nullptr)), side_(other.side_) {}
        connection& operator=(connection&& other) noexcept {
            std::swap(wire_, other.wire_);
            std::swap(side_, other.side_);
            return *this;
        }
        ~connection() {
            if (wire_ == nullptr) return;
            wire_->end(side_);
            wire_->release();
        }

    private:
        friend struct sim;

        detail::sim::wire* wire_ = nullptr;
        unsigned side_ = 0;
    };

    /// What comes to one name. Its domain outlives it.
    class listener {
    public:
        inline listener(domain& in, std::string called);
        listener(listener&&) noexcept = default;
        inline listener& operator=(listener&& other) noexcept;
        inline ~listener();

        /// Completes when somebody has connected. Several may wait; they are served in order.
        [[nodiscard]] task<connection> accept();
        [[nodiscard]] std::string address() const { return std::string("sim://") + name_; }

    private:
        friend class domain;
        inline void close() noexcept;

        std::string name_;
        std::unique_ptr<detail::sim::backlog> backlog_;
    };

    /// One node of the network.
    class domain final : public detail::sim::node {
    public:
        explicit domain(scheduler& owner, const sim_options& options = {}) : node(owner, options) {}

        /// Ends with a connection to whoever listens at the name in this world; takes no time.
        [[nodiscard]] task<connection> connect(std::string_view address);
        [[nodiscard]] task<listener> listen(std::string_view address);

    private:
        [[nodiscard]] static std::string plain(std::string_view address) {
            constexpr std::string_view scheme = "sim://";
            if (address.substr(0, scheme.size()) == scheme) address.remove_prefix(scheme.size());
            return std::string(address);
        }
        template <class = void>
        static task<connection> connect_to(domain& self, std::string to);
        template <class = void>
        static task<listener> listen_on(domain& self, std::string at);
    };

    /// A link that hands up to `Sink`. Models `one_sided_link` and `in_place_link`.
    template <class Sink>
    class link final : public detail::sim::link<Sink> {
    public:
        link(connection made, Sink& sink) noexcept
            : detail::sim::link<Sink>(*std::exchange(made.wire_, nullptr), made.side_, sink) {}
    };
};

namespace detail::sim {
/// Who has connected to a name and was not accepted yet.
struct backlog {
    std::deque<rdmacoro::sim::connection> waiting;
    semaphore arrived{0};
    rdmacoro::sim::domain* at = nullptr;

    template <class = void>
    static task<rdmacoro::sim::connection> take(backlog& from) {
        co_await from.arrived.acquire();
        rdmacoro::sim::connection next = std::move(from.waiting.front());
        from.waiting.pop_front();
        co_return next;
    }
};
}  // namespace detail::sim

inline sim::listener::listener(domain& in, std::string called)
    : name_(std::move(called)), backlog_(std::make_unique<detail::sim::backlog>()) {
    if (!in.world().listeners().emplace(name_, backlog_.get()).second)
        throw error(errc::address_in_use, "sim://" + name_ + ": choose another name");
    backlog_->at = &in;
}
inline sim::listener& sim::listener::operator=(listener&& other) noexcept {
    close();
    name_ = std::move(other.name_);
    backlog_ = std::move(other.backlog_);
    return *this;
}
inline sim::listener::~listener() { close(); }
inline void sim::listener::close() noexcept {
    if (backlog_ != nullptr) backlog_->at->world().listeners().erase(name_);
}
inline task<sim::connection> sim::listener::accept() { return detail::sim::backlog::take(*backlog_); }

inline task<sim::connection> sim::domain::connect(std::string_view address) {
    return connect_to(*this, plain(address));
}
inline task<sim::listener> sim::domain::listen(std::string_view address) {
    return listen_on(*this, plain(address));
}

template <class>
task<sim::connection> sim::domain::connect_to(domain& self, std::string to) {
    if (to.empty()) throw error(errc::address_invalid, "sim://: a name is missing");
    const auto found = self.world().listeners().find(to);
    if (found == self.world().listeners().end())
        throw error(errc::connection_refused, "sim://" + to + ": nobody in this world listens there");
    detail::sim::backlog& there = *found->second;
    auto* made = new detail::sim::wire(self, *there.at);
    there.waiting.emplace_back(*made, 1u);
    there.arrived.release();
    co_return connection(*made, 0);
}

template <class>
task<sim::listener> sim::domain::listen_on(domain& self, std::string at) {
    if (at.empty()) throw error(errc::address_invalid, "sim://: a name is missing");
    co_return listener(self, std::move(at));
}

static_assert(transport<sim>);
static_assert(one_sided_link<sim::link<detail::sink_archetype>>);
static_assert(in_place_link<sim::link<detail::sink_archetype>>);

}  // namespace rdmacoro
