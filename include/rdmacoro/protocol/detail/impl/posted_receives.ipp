// Bodies of posted_receives.hpp.
#pragma once

#include <rdmacoro/protocol/detail/posted_receives.hpp>

namespace rdmacoro::detail {

RDMACORO_DECL void posted_receives::add(receive_request& r) noexcept {
    if (!r.wanted_.exact()) {
        masked_of(r).add(r);
        return;
    }
    exact_.grow_if_full(++exact_count_,
                        [](const receive_request& other) noexcept { return tag_hash(other.wanted_.tag); });
    exact_.bucket(tag_hash(r.wanted_.tag)).push_back(r);
}

RDMACORO_DECL receive_request* posted_receives::first(tag_type tag) noexcept {
    receive_request* found = nullptr;
    if (exact_count_ != 0) {
        auto& list = exact_.bucket(tag_hash(tag));
        found = list.front();
        while (found != nullptr && found->wanted_.tag != tag) found = list.next(*found);
    }
    return masked_before(tag, found);
}

RDMACORO_DECL std::optional<std::uint32_t> posted_receives::before(const receive_request& r,
                                                                   std::uint32_t most) noexcept {
    auto& list = exact_.bucket(tag_hash(r.wanted_.tag));
    std::uint32_t looked_at = 0;
    std::uint32_t count = 0;
    for (receive_request* other = list.front(); other != &r; other = list.next(*other)) {
        if (looked_at++ == most) return {};
        if (other->wanted_.tag == r.wanted_.tag) ++count;
    }
    return count;
}

RDMACORO_COLD void posted_receives::visit_each(void (*visit)(void* to, receive_request& r) noexcept,
                                               void* to) noexcept {
    if (empty()) return;
    const auto call = [=](receive_request& r) noexcept { visit(to, r); };
    const auto visit_list = [&](intrusive_list<receive_request>& list) noexcept { each_in(list, call); };
    exact_.for_each_list(visit_list);
    masked_.for_each_list(visit_list);
    high_.for_each_list(visit_list);
}

}  // namespace rdmacoro::detail
