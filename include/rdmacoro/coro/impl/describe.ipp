// Describing what waits, and printing it.
#pragma once

#include <rdmacoro/coro/describe.hpp>
#include <rdmacoro/coro/detail/describe_signal.hpp>
#include <rdmacoro/coro/detail/described.hpp>
#include <rdmacoro/coro/detail/parked_wait.hpp>
#include <rdmacoro/coro/detail/stall_watch.hpp>
#include <rdmacoro/coro/operation.hpp>

#include <cstdio>
#include <utility>

#include <unistd.h>

namespace rdmacoro {

namespace detail {

/// "1.5 s", "20 ms", "3 us".
RDMACORO_COLD std::string short_text_of(duration time) {
    struct unit {
        double nanoseconds;
        const char* name;
    };
    static constexpr unit units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    const auto count = static_cast<double>(time.count());
    char text[40];
    for (const unit& u : units) {
        if (count < u.nanoseconds && u.nanoseconds != 1) continue;
        std::snprintf(text, sizeof text, "%.3g %s", count / u.nanoseconds, u.name);
        if (count >= 1000 * u.nanoseconds)
            std::snprintf(text, sizeof text, "%.0f %s", count / u.nanoseconds, u.name);
        break;
    }
    return text;
}

RDMACORO_COLD void add_sketch(description& to, const operation_sketch& from) noexcept {
    to.add_made([&](pending_operation& one) {
        one.what = from.what;
        one.peer = from.peer;
        one.tagged = from.tagged;
        one.tag = from.tag;
        one.mask = from.mask;
        one.bytes = from.bytes;
        one.moved = from.moved;
        one.stage = from.stage;
        if (from.stored != 0)
            one.stage += " (" + std::to_string(from.stored) + " stored that it does not take)";
        one.next = from.next;
        one.waited = from.waited;
        one.id = from.id;
        one.serial = from.serial;
    });
}

}  // namespace detail

RDMACORO_COLD description::description() noexcept : add_sketch_(&detail::add_sketch) {}

RDMACORO_COLD std::string pending_operation::text() const {
    std::string line = what;
    if (tagged) {
        if (mask == 0) {
            line += ", any tag";
        } else {
            line += ", tag " + std::to_string(tag);
            if (mask != ~std::uint64_t{0}) {
                char bits[32];
                std::snprintf(bits, sizeof bits, " under mask 0x%llx", static_cast<unsigned long long>(mask));
                line += bits;
            }
        }
    }
    if (bytes != 0) {
        line += ", ";
        if (moved != 0) line += std::to_string(moved) + " of ";
        line += std::to_string(bytes) + " bytes";
    }
    if (!peer.empty()) line += ", peer " + peer;
    if (!stage.empty()) line += ": " + stage;
    if (waited) {
        line += at_least ? ", for at least " : ", for ";
        line += detail::short_text_of(*waited);
    }
    if (left) line += ", " + detail::short_text_of(*left) + " left";
    line += "; ";
    line += text_of(next);
    return line;
}

RDMACORO_COLD std::string description::text() const {
    if (operations_.empty()) return complete_ ? "no operation is pending\n" : "memory is short\n";
    std::string all = std::to_string(operations_.size());
    all += operations_.size() == 1 ? " operation is pending:\n" : " operations are pending:\n";
    for (const pending_operation& one : operations_) all += "  " + one.text() + "\n";
    if (!complete_) all += "  and others: memory is short\n";
    return all;
}

RDMACORO_COLD void description::add(pending_operation&& one) noexcept {
    add_made([&](pending_operation& added) { added = std::move(one); });
}

RDMACORO_COLD description scheduler::describe() {
    description all;
    const time_point now = time_->now();
    const auto waited_since = [now](time_point since) -> std::optional<duration> {
        if (since == time_point{} || since > now) return {};  // it began before the first turn
        return now - since;
    };
    for (detail::described* at = described_.front(); at != nullptr; at = described_.next(*at))
        at->describe(at->self, all);
    for (detail::parked_wait* at = parked_waits_.front(); at != nullptr; at = parked_waits_.next(*at)) {
        if (at->operation() != nullptr && at->operation()->done()) continue;
        all.add_made([&](pending_operation& one) {
            one.what = at->waits_for().what;
            one.stage = at->waits_for().stage;
            one.next = at->waits_for().next;
            one.waited = waited_since(at->since());
            one.id = at;
            one.serial = static_cast<std::uint64_t>(at->since().time_since_epoch().count());
            if (at->waits_for().more != nullptr) at->waits_for().more(*at, one);
        });
    }
    timers_.each([&](const detail::timer_node& timer) {
        if (!timer.of_sleep) return;
        all.add_made([&](pending_operation& one) {
            one.what = "sleep";
            one.next = next_actor::time;
            one.left = timer.deadline > now ? timer.deadline - now : duration::zero();
            one.id = &timer;
            one.serial = static_cast<std::uint64_t>(timer.deadline.time_since_epoch().count());
        });
    });
    if (unbound_ != 0) {
        all.add_made([&](pending_operation& one) {
            one.what = "other awaitable";
            one.stage = std::to_string(unbound_) + (unbound_ == 1 ? " coroutine waits" : " coroutines wait") +
                        " for what has no `bind`";
            one.next = next_actor::this_program;
            one.id = &unbound_;
            one.serial = unbound_;
        });
    }
    if (service_base* const watch = find_service(&service_key<detail::stall_watch>))
        static_cast<service_holder<detail::stall_watch>*>(watch)->value.complete(all, now);
    return all;
}

RDMACORO_COLD void scheduler::watch_stalls(duration limit) { service<detail::stall_watch>().set(limit); }

RDMACORO_COLD void scheduler::describe_on_sigusr1() { static_cast<void>(service<detail::describe_signal>()); }

RDMACORO_COLD void scheduler::print_description(const char* why) noexcept {
    try {
        const std::string text = "rdmacoro: " + std::string(why) + "; " + describe().text();
        for (std::size_t at = 0; at < text.size();) {
            const ssize_t written = ::write(STDERR_FILENO, text.data() + at, text.size() - at);
            if (written <= 0) return;
            at += static_cast<std::size_t>(written);
        }
    } catch (...) {
        // Memory is short.
    }
}

}  // namespace rdmacoro
