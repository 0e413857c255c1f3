// The slow steps of a lane's thread: all but putting messages.
#pragma once

#include <rdmacoro/service/detail/gate_lane.hpp>

#include <algorithm>
#include <bit>
#include <new>
#include <thread>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD gate_lane::gate_lane(task_port& port, const gate_options& options, bool shared)
    : port_(port),
      mask_(std::bit_ceil(std::max<std::size_t>(options.messages, 4)) - 1),
      kept_((mask_ + 1) / 4),
      shared_(shared),
      message_bytes_(options.message_bytes),
      free_(std::make_unique<gate_slot*[]>(mask_ + 1)),
      ready_(std::make_unique<gate_slot*[]>(mask_ + 1)),
      most_flows_(mask_ + 1) {
    const std::size_t stride = (sizeof(gate_slot) + message_bytes_ + 63) / 64 * 64;
    memory_ = std::make_unique<std::byte[]>(stride * (mask_ + 1) + 63);
    auto* at = memory_.get();
    at += (64 - reinterpret_cast<std::uintptr_t>(at) % 64) % 64;
    for (std::size_t i = 0; i <= mask_; ++i, at += stride)
        free_[i] = ::new (static_cast<void*>(at))
            gate_slot{nullptr, this, {.loan = nullptr}, 0, gate_slot::content::inside, 0};
    news.lane = this;
    here_.lane = this;
    here_.call = &look_here;
}

RDMACORO_COLD gate_flow& gate_lane::find_flow(std::uint32_t peer) {
    const auto at = flows_.find(peer);
    if (at != flows_.end()) return *(last_ = &at->second);
    if (flows_.size() >= most_flows_) drop_flows();
    return *(last_ = &flows_.try_emplace(peer, peer).first->second);
}
RDMACORO_COLD void gate_lane::drop_flows() noexcept {
    last_ = nullptr;
    std::erase_if(flows_, [this](const auto& one) {
        return outstanding(one.second) == 0 && one.second.waiting.empty();
    });
    most_flows_ = std::max(mask_ + 1, 2 * flows_.size());  // those that are left have a slot or wait
}

RDMACORO_DECL gate_lane::put_result gate_lane::lend(gate_flow& to, gate_loan& loan, tag_type tag) noexcept {
    gate_slot* const slot = claim(to);
    if (slot == nullptr) return why_not();
    slot->tag = tag;
    slot->kind = gate_slot::content::lent;
    slot->loan = &loan;
    return publish(*slot, to);
}
RDMACORO_DECL gate_lane::put_result gate_lane::call(gate_flow& to, remote_base& what) noexcept {
    gate_slot* const slot = claim(to);
    if (slot == nullptr) return why_not();
    slot->kind = gate_slot::content::call;
    slot->call = &what;
    return publish(*slot, to);
}

RDMACORO_DECL gate_lane::put_result gate_lane::wake() noexcept {
    return asks_to_look() ? post_news() : put_result::done;
}
RDMACORO_DECL gate_lane::put_result gate_lane::post_news() noexcept {
    if (port_.post(news)) return put_result::done;
    refused_ = true;
    std::uint64_t last = put_;
    return tail_.compare_exchange_strong(last, put_ - 1, std::memory_order_seq_cst) ? put_result::closed
                                                                                    : put_result::done;
}
RDMACORO_COLD std::uint64_t gate_lane::claim_tail() noexcept {
    std::uint64_t last = tail_.load(std::memory_order_seq_cst);
    while ((last & claimed) == 0 &&
           !tail_.compare_exchange_weak(last, last | claimed, std::memory_order_seq_cst)) {}
    return last & ~claimed;
}

template <class Met, class Over>
bool gate_lane::sleep(std::uint64_t look_at, time_point until, Met met, Over over) noexcept {
    const bool others = armed_ && disarm();  // coroutines of this thread, which sleep as well
    bool reached = false;
    for (;;) {
        look_at_.store(look_at, std::memory_order_relaxed);
        waits_.store(sleeps, std::memory_order_seq_cst);
        reached = met();
        if (reached || over()) break;
        wait_for_change(waits_, sleeps, until);
    }
    waits_.store(0, std::memory_order_seq_cst);
    if (others) {  // look again in their scheduler's next turn: this may be outside of it
        armed_ = true;
        waiter_->post(here_);
        told_.store(true, std::memory_order_release);
    }
    return reached;
}
template <class Met>
bool gate_lane::sleep(std::uint64_t look_at, time_point until, Met met) noexcept {
    return sleep(look_at, until, met, [this, until] {
        return port_.closed() || (until != time_point::max() && monotonic_now() >= until);
    });
}
RDMACORO_DECL bool gate_lane::wait_for_room(gate_flow& to, time_point until) noexcept {
    const std::uint64_t back = back_.load(std::memory_order_seq_cst);
    // Until half of it is back: a thread is not woken for each message.
    if (const std::uint64_t there = outstanding(to)) {
        const std::uint64_t target = to.put - there / 2;
        // Where others' messages are back there may be room though this peer takes nothing.
        return sleep(back + (there - there / 2), until,
                     [&] { return to.back.load(std::memory_order_seq_cst) >= target || has_room(to); });
    }
    // All of it is back: the room is others', unless all that has come back since it was short.
    return has_room(to) || sleep(back + 1, until, [&] {
               return back_.load(std::memory_order_seq_cst) > back && has_room(to);
           });
}
RDMACORO_DECL bool gate_lane::wait_until_back(time_point until) noexcept {
    return sleep(put_, until, [this] { return back_.load(std::memory_order_seq_cst) == put_; });
}
RDMACORO_DECL void gate_lane::wait_until_back(const gate_loan& loan) noexcept {
    static_cast<void>(sleep(
        ~std::uint64_t{0}, time_point::max(), [&] { return loan.back.load(std::memory_order_seq_cst); },
        [] { return false; }));
}

RDMACORO_DECL void gate_lane::give_loan_back(gate_loan& loan, const status& failed,
                                             const std::exception_ptr* why) noexcept {
    loan.failed = failed;
    if (why != nullptr) loan.why = *why;
    loan_back_ = true;
    loan.back.store(true, std::memory_order_seq_cst);  // it may be gone after this
}
RDMACORO_DECL void gate_lane::wake_thread(bool in_any_case) noexcept {
    // Of a wait that has ended it may be the next one's number: then that thread looks once more.
    if (!in_any_case && !loan_back_ && given_ < look_at_.load(std::memory_order_relaxed)) return;
    switch (waits_.exchange(0, std::memory_order_seq_cst)) {
        case sleeps: wake_threads(waits_); break;
        case awaits:
            waiter_->post(here_);
            told_.store(true, std::memory_order_release);
            break;
        default: break;
    }
}

RDMACORO_COLD void gate_lane::enlist(gate_flow& to, gate_wait& one) noexcept {
    to.waiting.push_back(one);
    if (!to.linked()) waiting_flows_.push_back(to);
    if (!armed_ || disarm()) begin_waiting();
}
RDMACORO_COLD void gate_lane::enlist(gate_wait& one) noexcept {
    flushes_.push_back(one);
    if (!armed_ || disarm()) begin_waiting();
}
RDMACORO_COLD void gate_lane::forget(gate_wait& one, gate_flow* to) noexcept {
    one.unlink();
    if (to != nullptr && to->waiting.empty()) to->unlink();
    if (!armed_ || !waiting_flows_.empty() || !flushes_.empty()) return;
    // None waits: nothing may come to this scheduler, which may end before the lane does.
    if (disarm()) return;
    while (!told_.load(std::memory_order_acquire)) std::this_thread::yield();
    if (!waiter_->withdraw(here_)) return;
    told_.store(false, std::memory_order_relaxed);
    armed_ = false;
}

/// Ends the waits that are over; the others look again.
RDMACORO_COLD void gate_lane::serve_waits() noexcept {
    for (gate_flow* flow = waiting_flows_.front(); flow != nullptr;) {
        gate_flow* const behind = waiting_flows_.next(*flow);
        while (gate_wait* const one = flow->waiting.pop_front()) {
            if (one->looks()) continue;
            flow->waiting.push_front(*one);
            break;
        }
        if (flow->waiting.empty()) flow->unlink();
        flow = behind;
    }
    intrusive_list<gate_wait> flushes;
    flushes.splice_back(flushes_);
    while (gate_wait* const one = flushes.pop_front()) {
        if (!one->looks()) flushes_.push_back(*one);
    }
}
/// For those of the scheduler that runs here. Precondition: `here_` is not on its way, and nothing on the other thread reads `waiter_`.
RDMACORO_COLD void gate_lane::begin_waiting() noexcept {
    waiter_ = scheduler::current();
    await_back();
}
/// Until something is back that one of those that wait may be waiting for.
RDMACORO_COLD void gate_lane::await_back() noexcept {
    for (;;) {
        const std::uint64_t back = back_.load(std::memory_order_seq_cst);
        serve_waits();
        if (waiting_flows_.empty() && flushes_.empty()) return;
        // As for a thread that sleeps: half of what is there of a peer.
        std::uint64_t least = put_ - back;
        for (gate_flow* flow = waiting_flows_.front(); flow != nullptr; flow = waiting_flows_.next(*flow)) {
            const std::uint64_t there = outstanding(*flow);
            least = std::min(least, there - there / 2);
        }
        const std::uint64_t look_at = back + std::max<std::uint64_t>(least, 1);
        look_at_.store(look_at, std::memory_order_relaxed);
        armed_ = true;
        waits_.store(awaits, std::memory_order_seq_cst);
        // Credit that was given back before the store was not told of.
        if (back_.load(std::memory_order_seq_cst) < look_at && !port_.closed()) return;
        if (!disarm()) return;
    }
}
/// True: `here_` is not called for what was armed. False: it is on its way.
RDMACORO_COLD bool gate_lane::disarm() noexcept {
    if (waits_.exchange(0, std::memory_order_seq_cst) != awaits) return false;
    armed_ = false;
    return true;
}
RDMACORO_COLD void gate_lane::look_here(posted_node& at) noexcept {
    gate_lane& self = *static_cast<here_node&>(at).lane;
    while (!self.told_.load(std::memory_order_acquire)) std::this_thread::yield();
    self.told_.store(false, std::memory_order_relaxed);
    self.armed_ = false;
    self.await_back();
}

RDMACORO_COLD void gate_lane::fail(const status& with, std::uint32_t peer,
                                   const std::exception_ptr* why) noexcept {
    if (failed_.load(std::memory_order_acquire)) return;
    error_ = with;
    error_peer_ = peer;
    error_why_ = why != nullptr ? *why : nullptr;
    failed_.store(true, std::memory_order_release);
}
RDMACORO_COLD std::error_code gate_lane::take_error(std::uint32_t& peer, std::exception_ptr& why) noexcept {
    if (!failed_.load(std::memory_order_acquire)) return {};
    const std::error_code first = error_;
    peer = error_peer_;
    why = std::move(error_why_);
    failed_.store(false, std::memory_order_release);
    return first;
}

}  // namespace rdmacoro::detail
