// Decides for each send whether its memory is staged or sent from where it lies, and has it prepared when that will pay.
#pragma once

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/protocol/detail/reuse_costs.hpp>
#include <rdmacoro/protocol/detail/usage_table.hpp>

#include <cstddef>
#include <span>

namespace rdmacoro::detail {

/// The costs for a scheduler that does not run in real time, so that a simulation repeats itself. In nanoseconds.
inline constexpr reuse_costs nominal_reuse_costs{.copy = 20, .copied_byte = 0.1, .bookkeeping = 10};

/// The uses of memory that the connections of one kind on one scheduler send from: they share it, so that its size does
/// not grow with their number, and a buffer that goes to many peers is known at once. Meant for one domain: memory that
/// one has prepared is forgotten when a connection of another sends from it.
class reuse_watch {
public:
    struct choice {
        usage_table::entry* entry;  ///< nullptr: not counted
        bool in_place;
    };

    explicit reuse_watch(scheduler& owner) noexcept : owner_(owner) {}

    /// Before anything else: allocates, and measures the unknown costs. False when there is no memory.
    [[nodiscard]] bool open() noexcept {
        if (open_) return true;
        if (!table_.open()) return false;
        if (!costs_given_) {
            const bool real = &owner_.time() == &monotonic_clock::instance();
            threshold_.set_costs(real ? measured_reuse_costs() : nominal_reuse_costs);
            measures_links_ = real;
        }
        open_ = true;
        return true;
    }
    /// Uses these costs instead of measured ones.
    void set_costs(const reuse_costs& costs) noexcept {
        costs_given_ = true;
        measures_links_ = false;
        threshold_.set_costs(costs);
    }

    /// Counts a use. Preconditions: open; the length is from `threshold().pays_from()` to `reuse_threshold::most_bytes`.
    template <class Link>
    [[nodiscard]] choice look_at(Link& link, std::span<const std::byte> memory) noexcept {
        usage_table::entry* e = table_.use(memory);
        if (e == nullptr) return {nullptr, false};
        if (e->ready()) {
            if (link.in_place(memory)) [[likely]]
                return {e, true};
            if (memory.size() <= e->ready_bytes) {
                table_.start_anew(*e);
                ++table_.statistics().forgotten;
                return {e, false};
            }
        }
        if (e->uses < threshold_.uses(e->length_class)) [[likely]]
            return {e, false};
        return {e, prepare(link, memory, *e)};
    }

    [[nodiscard]] usage_table& table() noexcept { return table_; }
    [[nodiscard]] const reuse_threshold& threshold() const noexcept { return threshold_; }
    [[nodiscard]] reuse_statistics& statistics() noexcept { return table_.statistics(); }

private:
    template <class Link>
    [[gnu::noinline]] bool prepare(Link& link, std::span<const std::byte> memory,
                                   usage_table::entry& e) noexcept {
        const time_point before = owner_.now();
        const bool prepared = link.prepare_in_place(memory);
        const duration took = owner_.now() - before;
        if (!prepared) {
            table_.start_anew(e);
            ++statistics().refused;
            return false;
        }
        table_.make_ready(e, memory.size());
        ++statistics().registrations;
        if (measures_links_) {
            measures_links_ = false;
            reuse_costs costs = threshold_.costs();
            costs.bookkeeping += nanoseconds_of([&](unsigned) noexcept {
                const bool answer = link.in_place(memory);
                asm volatile("" ::"r"(&answer) : "memory");
            });
            threshold_.set_costs(costs);
        }
        threshold_.prepared(e.length_class, took);
        return link.in_place(memory);
    }

    scheduler& owner_;
    usage_table table_;
    reuse_threshold threshold_;
    bool open_ = false;
    bool costs_given_ = false;
    bool measures_links_ = false;  // the cost of `in_place` is still to be added
};

}  // namespace rdmacoro::detail
