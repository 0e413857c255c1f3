// Bodies of posted_receives.hpp.
#pragma once

#include <rdmacoro/protocol/detail/posted_receives.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL void posted_receives::add(receive_request& r) noexcept {
    ++count_;
    if (!r.wanted_.exact()) {
        masked_.push_back(r);
        return;
    }
    exact_.grow_if_full(count_,
                        [](const receive_request& other) noexcept { return tag_hash(other.wanted_.tag); });
    exact_.bucket(tag_hash(r.wanted_.tag)).push_back(r);
}

RDMACORO_DECL receive_request* posted_receives::first(tag_type tag) noexcept {
    if (count_ == 0) return nullptr;
    auto& list = exact_.bucket(tag_hash(tag));
    receive_request* exact = list.front();
    while (exact != nullptr && exact->wanted_.tag != tag) exact = list.next(*exact);
    for (receive_request* r = masked_.front(); r != nullptr; r = masked_.next(*r)) {
        if (exact != nullptr && exact->sequence_ < r->sequence_) break;
        if (r->wanted_.accepts(tag)) return r;
    }
    return exact;
}

RDMACORO_DECL receive_request* posted_receives::first_masked(tag_type tag) noexcept {
    receive_request* r = masked_.front();
    while (r != nullptr && !r->wanted_.accepts(tag)) r = masked_.next(*r);
    return r;
}

RDMACORO_COLD void posted_receives::visit_each(void (*visit)(void* to, receive_request& r) noexcept,
                                               void* to) noexcept {
    if (count_ == 0) return;
    const auto call = [=](receive_request& r) noexcept { visit(to, r); };
    exact_.for_each_list([&](intrusive_list<receive_request>& list) noexcept { each_in(list, call); });
    each_in(masked_, call);
}

}  // namespace rdmacoro::detail
