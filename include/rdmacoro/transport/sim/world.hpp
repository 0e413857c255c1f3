// sim_world: the time, the chance and the order of a simulated network.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/transport/sim/event.hpp>
#include <rdmacoro/transport/sim/memory_watch.hpp>
#include <rdmacoro/transport/sim/options.hpp>
#include <rdmacoro/transport/sim/packet.hpp>
#include <rdmacoro/transport/sim/random.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacoro {

namespace detail::sim {

struct wire;
struct backlog;

/// A link, in the list of the links that have something to hand up.
class pollable : public list_node<pollable> {
public:
    virtual unsigned poll(unsigned budget) noexcept = 0;

protected:
    ~pollable() { unlink(); }
};

}  // namespace detail::sim

/// A network of simulated nodes, all on one scheduler. The order and time of all events follow from the options, the seed and the
/// program alone.
///
/// Give its `time()` to the scheduler and time is virtual: it stands still while anything can run and then jumps to the
/// next event or timer. Under any other clock the network takes no time: the next event happens when nothing
/// else can run. The world outlives its scheduler, or is the scheduler's own, as `sim::domain(scheduler)` makes it.
class sim_world final : private progress_source {
public:
    /// A network without nodes; it must outlive its scheduler.
    explicit sim_world(const sim_world_options& options = {});
    /// The scheduler's own world.
    explicit sim_world(scheduler&) : sim_world(sim_world_options{}) {}
    ~sim_world() = default;

    /// The clock for the scheduler of all nodes.
    [[nodiscard]] clock& time() noexcept { return clock_; }
    /// Since the world began.
    [[nodiscard]] duration now() const noexcept { return now_.time_since_epoch(); }
    /// The options it was made with.
    [[nodiscard]] const sim_world_options& options() const noexcept { return options_; }
    /// From here on these faults occur by chance.
    void set_faults(const sim_faults& faults) noexcept { options_.faults = faults; }
    /// The generator that all its chances come from.
    [[nodiscard]] sim_random& random() noexcept { return random_; }
    /// Of all nodes.
    [[nodiscard]] const sim_counts& counts() const noexcept { return counts_; }

    /// Two runs were the same if and, except by a chance of 2^-64, only if their hashes are equal.
    [[nodiscard]] std::uint64_t trace_hash() const noexcept { return hash_; }
    /// How many events have happened.
    [[nodiscard]] std::uint64_t events() const noexcept { return fired_; }
    /// The events so far, a line each, if `keeps_log`.
    [[nodiscard]] const std::vector<std::string>& log() const noexcept { return log_; }

    /// The owner of `memory` has it back: a transfer that touches it from now on is a violation.
    void finished(std::span<const std::byte> memory) { finished_.add(memory); }
    /// It is lent again.
    void borrowed(std::span<const std::byte> memory) { finished_.remove(memory); }

    /// Violations of a contract so far, a line each; see `sim_world_options::violations_are_fatal`.
    [[nodiscard]] const std::vector<std::string>& violations() const noexcept { return violations_; }
    /// Adds one. For programs that check themselves, too.
    void violation(std::string text);

    // ---- for the nodes, links and explorers of this world

    using packet_pool = detail::sim::recycled<detail::sim::packet, &detail::sim::packet::next>;
    using transfer_pool = detail::sim::recycled<detail::sim::transfer, &detail::sim::transfer::next_free>;

    /// Every node is on the same scheduler. Throws `errc::invalid_argument` when it is not.
    void attach(scheduler& owner);
    /// Internal: called when a node leaves.
    void detach() noexcept;
    /// Internal: number of the next node.
    [[nodiscard]] std::uint32_t next_node() noexcept { return made_nodes_++; }
    /// Internal: number of the next direction of a link.
    [[nodiscard]] std::uint32_t next_lane() noexcept { return made_lanes_++; }
    /// Internal: number of the next actor.
    [[nodiscard]] std::uint32_t next_actor() noexcept { return made_actors_++; }
    /// Internal: key of the next region.
    [[nodiscard]] std::uint64_t next_key() noexcept { return keys_.next(); }
    /// The network's counts since it was made.
    [[nodiscard]] sim_counts& counts() noexcept { return counts_; }
    /// The virtual time.
    [[nodiscard]] time_point clock_now() const noexcept { return now_; }
    [[nodiscard]] std::map<std::string, detail::sim::backlog*, std::less<>>& listeners() noexcept {
        return listeners_;
    }
    [[nodiscard]] std::vector<detail::sim::wire*>& wires() noexcept { return wires_; }
    /// Internal: recycled messages.
    [[nodiscard]] packet_pool& packets() noexcept { return packets_; }
    /// Internal: recycled gets and puts.
    [[nodiscard]] transfer_pool& transfers() noexcept { return transfers_; }

    /// `e` happens at `at`, or, when all orders are explored, whenever the chooser picks it.
    void schedule(detail::sim::event& e, time_point at);
    void unschedule(detail::sim::event& e) noexcept { queue_.remove(e); }
    /// `link` has something to hand up.
    void ready(detail::sim::pollable& link) noexcept {
        if (!link.linked()) ready_.push_back(link);
    }

    /// Whether a fault that occurs `per_million` times in a million occurs now.
    [[nodiscard]] bool chance(std::uint32_t per_million) noexcept {
        if (per_million == 0) [[likely]]
            return false;
        if (chooser_ != nullptr) return chooser_->choose(2) != 0;
        return random_.chance(per_million);
    }
    /// Added to the duration of an event.
    [[nodiscard]] duration extra() noexcept;

    /// From here on `decides` chooses the next event; nullptr: time and chance again.
    void set_chooser(detail::sim::chooser* decides) noexcept { chooser_ = decides; }
    /// Internal: whether an explorer chooses the order of events.
    [[nodiscard]] bool chosen() const noexcept { return chooser_ != nullptr; }
    [[nodiscard]] const detail::sim::event_queue& queue() const noexcept { return queue_; }

    /// Internal: whether `note` keeps lines.
    [[nodiscard]] bool keeps_log() const noexcept { return options_.keeps_log; }
    /// Internal: adds a line to the log.
    void note(std::string line);
    /// A transfer reads or writes `memory`; the last argument is the transfer's name in the text of a violation.
    void touch(std::span<const std::byte> memory, const char* who);

private:
    struct virtual_clock final : clock {
        sim_world* of = nullptr;
        time_point now() noexcept override { return of->now_; }
        bool advance_to(time_point deadline) noexcept override {
            of->now_ = std::max(of->now_, deadline);
            return true;
        }
    };

    [[nodiscard]] duration up_to(duration most) noexcept;

    RDMACORO_DECL bool poll() noexcept override;

    bool poll_links() noexcept;

    void fire(detail::sim::event& e) noexcept;

    detail::sim::event& choose() noexcept;

    /// Time passes also for a program that waits in a loop, yielding.
    void pass_time() noexcept;

    void set_timer();

public:
    /// The event of that key, for people.
    [[nodiscard]] static std::string described(std::uint64_t key);

private:
    static constexpr unsigned links_budget = 64;
    static constexpr unsigned most_busy = 64;  // turns
    static constexpr unsigned events_in_a_poll = 64;

    sim_world_options options_;
    sim_random random_;
    sim_random keys_;
    virtual_clock clock_;
    time_point now_{};
    scheduler* owner_ = nullptr;
    std::size_t nodes_ = 0;
    unsigned busy_ = 0;
    std::uint32_t made_nodes_ = 0;
    std::uint32_t made_lanes_ = 0;
    std::uint32_t made_actors_ = 0;
    detail::timer_node wake_;
    detail::sim::chooser* chooser_ = nullptr;
    packet_pool packets_;
    transfer_pool transfers_;
    detail::sim::event_queue queue_;
    std::vector<detail::sim::event*> enabled_;
    detail::intrusive_list<detail::sim::pollable> ready_;
    std::map<std::string, detail::sim::backlog*, std::less<>> listeners_;
    std::vector<detail::sim::wire*> wires_;
    detail::sim::memory_watch finished_;
    sim_counts counts_;
    std::uint64_t hash_ = 0xcbf29ce484222325u;
    std::uint64_t fired_ = 0;
    std::vector<std::string> log_;
    std::vector<std::string> violations_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/sim/impl/world.ipp>
#endif
