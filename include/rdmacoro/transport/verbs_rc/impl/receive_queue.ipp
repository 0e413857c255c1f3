// Bodies of receive_queue.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/receive_queue.hpp>

#include <array>
#include <exception>

namespace rdmacoro::detail::verbs {

RDMACORO_DECL bool receive_queue::add_wanted(std::size_t count) noexcept {
    try {
        if (shared_ == nullptr) posted_.reserve(pool_.wanted() + count);
    } catch (const std::exception&) {
        return false;
    }
    pool_.add_wanted(count);
    return true;
}

RDMACORO_DECL void receive_queue::post() noexcept {
    if (shared_ == nullptr && own_ == nullptr) return;
    constexpr std::size_t most = 16;
    std::array<ibv_recv_wr, most> requests;  // NOLINT: set below
    std::array<ibv_sge, most> pieces;        // NOLINT
    while (pool_.queued() != 0) {
        std::size_t count = 0;
        for (; count < most; ++count) {
            slot* const s = pool_.next_to_post();
            if (s == nullptr) break;
            s->queue = this;
            pieces[count] = {reinterpret_cast<std::uintptr_t>(s->data),
                             static_cast<std::uint32_t>(slots_.slot_bytes()), s->lkey};
            requests[count] = {};
            requests[count].wr_id = reinterpret_cast<std::uintptr_t>(s);
            requests[count].sg_list = &pieces[count];
            requests[count].num_sge = 1;
            if (count != 0) requests[count - 1].next = &requests[count];
        }
        if (count == 0) break;
        ibv_recv_wr* refused = nullptr;
        ++totals_.posts;
        const int failed = shared_ != nullptr ? ::ibv_post_srq_recv(shared_, requests.data(), &refused)
                                              : ::ibv_post_recv(own_, requests.data(), &refused);
        std::size_t taken = count;
        if (failed != 0) {
            while (taken > 0) {
                --taken;
                pool_.not_posted(*reinterpret_cast<slot*>(requests[taken].wr_id));
                if (&requests[taken] == refused) break;
            }
        }
        for (std::size_t i = 0; shared_ == nullptr && i < taken; ++i) {
            slot* const s = reinterpret_cast<slot*>(requests[i].wr_id);
            s->place = static_cast<std::uint32_t>(posted_.size());
            posted_.push_back(s);
        }
        if (failed != 0) return refill();  // credits are not returned before a later try
    }
    ++epoch_;
}

RDMACORO_DECL void receive_queue::withdraw() noexcept {
    while (!posted_.empty()) {
        slot& s = *posted_.back();
        static_cast<void>(arrived(s));
        pool_.recycle(s);
    }
    while (slot* const s = pool_.next_to_post()) {
        pool_.arrived();
        pool_.recycle(*s);
    }
    unlink();
}

}  // namespace rdmacoro::detail::verbs
