// Bodies of mailbox_base.hpp.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/mailbox_base.hpp>

#include <algorithm>
#include <new>

namespace rdmacoro::detail {

RDMACORO_COLD mailbox_base::mailbox_base(scheduler& owner, const mailbox_options& options, bool many_sources)
    : owner_(owner),
      options_(options),
      matcher_(many_sources),
      pool_(options.pool != nullptr ? *options.pool : owner.service<scheduler_pool>().pool),
      store_(&pool_.state().store()) {
    options_.pool = nullptr;  // need not exist any more
    pool().belong_to(owner);
    pool().allow(budget());
    owner.described().push_back(described_);
}

RDMACORO_COLD std::uint32_t mailbox_base::budget() const noexcept {
    constexpr std::size_t most = 0x7fffffff;
    return static_cast<std::uint32_t>(
        std::clamp<std::size_t>(options_.unexpected_bytes / credit_bytes, least_budget, most));
}

RDMACORO_COLD mailbox_base::~mailbox_base() {
    discarding_.end_all(matcher_);
    drop_stored(false);
}

RDMACORO_COLD void mailbox_base::drop_stored(bool complete_alone) noexcept {
    matcher_.drop_stored(complete_alone, [](unexpected_message& m) noexcept { message_store::release(m); });
}

RDMACORO_COLD void mailbox_base::ask_some() noexcept {
    for (int asked = 0; asked < most_asked_at_once; ++asked) {
        ahead_engine* const next = starving_.front();
        if (next == nullptr || next->asked_round == asked_round_) {
            asking_.stop();
            return;
        }
        next->asked_round = asked_round_;
        next->unlink();
        starving_.push_back(*next);
        next->receive_posted();
    }
    asking_.start(owner_, owner_.now());
}

RDMACORO_COLD void mailbox_base::leave_discarding(receive_request& r) noexcept {
    if (discarding_receive* const instead = make_discarding(r)) {
        matcher_.replace(r, *instead);
    } else {
        matcher_.withdraw(r);
    }
}

RDMACORO_COLD bool mailbox_base::discard(unexpected_message& m) noexcept {
    if (m.complete) {
        discarding_receive at_once(owner_, m.tag, m.source);
        matcher_.remove(m);
        connection_base::hand_over(m, at_once);
        return true;
    }
    constexpr auto any_number = static_cast<std::size_t>(-1);  // streams are limited
    discarding_receive* const rest = discarding_.make(owner_, m.tag, m.source, any_number);
    if (rest == nullptr) return false;
    matcher_.remove(m);
    connection_base::match(m, *rest);
    return true;
}

RDMACORO_COLD std::size_t mailbox_base::discard(peer_id source, tag_match wanted) {
    require_thread_of(&owner_, "messages for", "were discarded");
    std::size_t count = 0;
    bool short_of_memory = false;
    // False: it is to be asked again, as memory is short or other messages went with this one.
    const auto drop = [&](unexpected_message& m) noexcept {
        const std::size_t others = matcher_.unexpected() - 1;
        short_of_memory = !discard(m);
        count += short_of_memory ? 0 : 1;
        return matcher_.unexpected() == others;
    };
    while (unexpected_message* const m = short_of_memory ? nullptr : matcher_.find(source, wanted)) {
        if (wanted.exact()) {
            drop(*m);
        } else {
            matcher_.each_masked(source, wanted, drop);
        }
    }
    if (short_of_memory) throw std::bad_alloc();
    return count;
}

}  // namespace rdmacoro::detail
