// sim_world: the time, the chance and the order of a simulated network.
#pragma once

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

/// A link as its world sees it: in the list of those that have something to hand up.
class pollable : public list_node<pollable> {
public:
    virtual unsigned poll(unsigned budget) noexcept = 0;

protected:
    ~pollable() { unlink(); }
};

}  // namespace detail::sim

/// A network of simulated nodes, all on one scheduler. What happens, and when, follows from the options, the seed and the
/// program alone.
///
/// Give its `time()` to the scheduler and time is virtual: it stands still while anything can run and then jumps to the
/// next event or timer. Under any other clock what the network does takes no time: the next event happens when nothing
/// else can run. The world outlives its scheduler, or is the scheduler's own, as `sim::domain(scheduler)` makes it.
class sim_world final : private progress_source {
public:
    explicit sim_world(const sim_world_options& options = {})
        : options_(options), random_(options.seed), keys_(~options.seed) {
        clock_.of = this;
        wake_.expired = [](detail::timer_node&) noexcept {};
    }
    /// The scheduler's own world.
    explicit sim_world(scheduler&) : sim_world(sim_world_options{}) {}
    ~sim_world() = default;

    /// What the scheduler of all nodes is constructed with.
    [[nodiscard]] clock& time() noexcept { return clock_; }
    /// Since the world began.
    [[nodiscard]] duration now() const noexcept { return now_.time_since_epoch(); }
    [[nodiscard]] const sim_world_options& options() const noexcept { return options_; }
    /// From here on this goes wrong by itself.
    void set_faults(const sim_faults& faults) noexcept { options_.faults = faults; }
    [[nodiscard]] sim_random& random() noexcept { return random_; }
    /// Of all nodes.
    [[nodiscard]] const sim_counts& counts() const noexcept { return counts_; }

    /// Two runs did the same if and, but for a chance of 2^-64, only if their hashes are equal.
    [[nodiscard]] std::uint64_t trace_hash() const noexcept { return hash_; }
    /// How many events have happened.
    [[nodiscard]] std::uint64_t events() const noexcept { return fired_; }
    /// What has happened, a line each, when the options ask for it.
    [[nodiscard]] const std::vector<std::string>& log() const noexcept { return log_; }

    /// The owner of `memory` has it back: a transfer that touches it from now on is a violation.
    void finished(std::span<const std::byte> memory) { finished_.add(memory); }
    /// It is lent again.
    void borrowed(std::span<const std::byte> memory) { finished_.remove(memory); }

    /// What nobody may do and somebody did, a line each; see `sim_world_options::violations_are_fatal`.
    [[nodiscard]] const std::vector<std::string>& violations() const noexcept { return violations_; }
    /// Adds one. For programs that check themselves, too.
    void violation(std::string text) {
        if (options_.violations_are_fatal) {
            for (const std::string& line : log_) std::fprintf(stderr, "  %s\n", line.c_str());
            detail::fatal(text.c_str());
        }
        note("VIOLATION: " + text);
        violations_.push_back(std::move(text));
    }

    // ---- for the nodes, links and explorers of this world

    using packet_pool = detail::sim::recycled<detail::sim::packet, &detail::sim::packet::next>;
    using transfer_pool = detail::sim::recycled<detail::sim::transfer, &detail::sim::transfer::next_free>;

    /// Every node is on the same scheduler. Throws `errc::invalid_argument` when it is not.
    void attach(scheduler& owner) {
        if (nodes_ != 0 && owner_ != &owner) {
            detail::throw_error(errc::invalid_argument, "a sim_world's nodes share one scheduler");
        }
        if (nodes_++ == 0) {
            owner_ = &owner;
            owner.add_source(*this);
        }
    }
    void detach() noexcept {
        if (--nodes_ != 0) return;
        owner_->remove_source(*this);
        owner_->remove_timer(wake_);
    }
    [[nodiscard]] std::uint32_t next_node() noexcept { return made_nodes_++; }
    [[nodiscard]] std::uint32_t next_lane() noexcept { return made_lanes_++; }
    [[nodiscard]] std::uint32_t next_actor() noexcept { return made_actors_++; }
    [[nodiscard]] std::uint64_t next_key() noexcept { return keys_.next(); }
    [[nodiscard]] sim_counts& counts() noexcept { return counts_; }
    [[nodiscard]] time_point clock_now() const noexcept { return now_; }
    [[nodiscard]] std::map<std::string, detail::sim::backlog*, std::less<>>& listeners() noexcept {
        return listeners_;
    }
    [[nodiscard]] std::vector<detail::sim::wire*>& wires() noexcept { return wires_; }
    [[nodiscard]] packet_pool& packets() noexcept { return packets_; }
    [[nodiscard]] transfer_pool& transfers() noexcept { return transfers_; }

    /// `e` happens at `at`, or, when all orders are explored, whenever the chooser says.
    void schedule(detail::sim::event& e, time_point at) {
        e.at = chooser_ != nullptr ? now_ : std::max(at, now_);
        queue_.insert(e);
    }
    void unschedule(detail::sim::event& e) noexcept { queue_.remove(e); }
    /// `link` has something to hand up.
    void ready(detail::sim::pollable& link) noexcept {
        if (!link.linked()) ready_.push_back(link);
    }

    /// Whether something that goes wrong `per_million` times in a million does now.
    [[nodiscard]] bool chance(std::uint32_t per_million) noexcept {
        if (per_million == 0) [[likely]]
            return false;
        if (chooser_ != nullptr) return chooser_->choose(2) != 0;
        return random_.chance(per_million);
    }
    /// What is added to the time that something takes.
    [[nodiscard]] duration extra() noexcept {
        if (chooser_ != nullptr) return {};
        duration more{};
        if (options_.jitter.count() > 0) more += up_to(options_.jitter);
        if (random_.chance(options_.faults.delayed)) [[unlikely]]
            more += up_to(options_.faults.delay);
        return more;
    }

    /// From here on `decides` says what happens next; nullptr: time and chance again.
    void set_chooser(detail::sim::chooser* decides) noexcept { chooser_ = decides; }
    [[nodiscard]] bool chosen() const noexcept { return chooser_ != nullptr; }
    [[nodiscard]] const detail::sim::event_queue& queue() const noexcept { return queue_; }

    [[nodiscard]] bool keeps_log() const noexcept { return options_.keeps_log; }
    void note(std::string line) {
        if (options_.keeps_log)
            log_.push_back(std::to_string(now_.time_since_epoch().count()) + " ns  " + line);
    }
    /// Somebody reads or writes `memory` for somebody else.
    void touch(std::span<const std::byte> memory, const char* who) {
        if (finished_.overlaps(memory)) [[unlikely]]
            violation(std::string(who) + " touches memory that its owner has back");
    }

private:
    struct virtual_clock final : clock {
        sim_world* of = nullptr;
        time_point now() noexcept override { return of->now_; }
        bool advance_to(time_point deadline) noexcept override {
            of->now_ = std::max(of->now_, deadline);
            return true;
        }
    };

    [[nodiscard]] duration up_to(duration most) noexcept {
        return duration(
            static_cast<duration::rep>(random_.below(static_cast<std::uint64_t>(most.count()) + 1)));
    }

    bool poll() noexcept override {
        bool any = poll_links();
        if (chooser_ == nullptr && &owner_->time() == &clock_) {
            while (detail::sim::event* e = queue_.front()) {
                if (e->at > now_) break;
                fire(*e);
                any = true;
            }
            if (any) any |= poll_links();
            if (any || !owner_->has_ready()) {
                busy_ = 0;
            } else if (++busy_ == most_busy) {
                pass_time();
            }
            set_timer();
            return any;
        }
        if (chooser_ != nullptr) {
            // Every node does all it can between two events. A program that waits in a loop sees them all the same.
            if (queue_.empty() || (owner_->has_ready() && ++busy_ < most_busy)) return any;
            busy_ = 0;
            fire(choose());
            static_cast<void>(poll_links());
            return true;
        }
        // While coroutines run, one arrival, get or put a turn: a program that yields sees each stage.
        for (unsigned n = 0; n < events_in_a_poll && !queue_.empty(); ++n) {
            detail::sim::event& e = *queue_.front();
            const bool a_stage = detail::sim::event_key::kind(e.key) != detail::sim::event_kind::transmitted;
            fire(e);
            static_cast<void>(poll_links());
            any = true;
            if (a_stage && owner_->has_ready()) break;
        }
        return any;
    }

    bool poll_links() noexcept {
        if (ready_.empty()) return false;
        bool any = false;
        detail::intrusive_list<detail::sim::pollable> now;
        now.splice_back(ready_);
        while (detail::sim::pollable* link = now.pop_front()) any |= link->poll(links_budget) != 0;
        return any;
    }

    void fire(detail::sim::event& e) noexcept {
        queue_.remove(e);
        now_ = std::max(now_, e.at);
        ++fired_;
        for (const std::uint64_t word :
             {e.key, static_cast<std::uint64_t>(now_.time_since_epoch().count())}) {
            hash_ = (hash_ ^ word) * 0x100000001b3u;
            hash_ ^= hash_ >> 29;
        }
        if (options_.keeps_log) [[unlikely]]
            note(described(e.key));
        e.fire(e);
    }

    detail::sim::event& choose() noexcept {
        enabled_.assign(queue_.all().begin(), queue_.all().end());
        std::sort(enabled_.begin(), enabled_.end(),
                  [](const auto* a, const auto* b) { return a->key < b->key; });
        detail::sim::event* chosen_one = chooser_->choose(enabled_);
        return chosen_one != nullptr ? *chosen_one : *queue_.front();
    }

    /// A program that waits in a loop, yielding, sees time pass all the same.
    void pass_time() noexcept {
        busy_ = 0;
        duration step = std::chrono::microseconds(1);
        if (const detail::sim::event* e = queue_.front()) step = std::min(step, e->at - now_);
        now_ += step;
    }

    void set_timer() {
        const detail::sim::event* e = queue_.front();
        if (e != nullptr && wake_.queued() && wake_.deadline == e->at) return;
        owner_->remove_timer(wake_);
        if (e == nullptr) return;
        wake_.deadline = e->at;
        owner_->add_timer(wake_);
    }

public:
    /// The event of that key, for people.
    [[nodiscard]] static std::string described(std::uint64_t key) {
        using detail::sim::event_key;
        const auto kind = event_key::kind(key);
        return std::string(name_of(kind)) + (kind == detail::sim::event_kind::step ? " actor " : " lane ") +
               std::to_string(event_key::whose(key)) + " #" + std::to_string(event_key::number(key));
    }

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
