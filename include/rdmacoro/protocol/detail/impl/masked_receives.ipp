// Bodies of masked_receives.hpp.
#pragma once

#include <rdmacoro/protocol/detail/masked_receives.hpp>

#include <new>

namespace rdmacoro::detail {

RDMACORO_DECL masked_receives::~masked_receives() { delete tables_; }

RDMACORO_COLD std::size_t masked_receives::footprint() const noexcept {
    if (tables_ == nullptr) return 0;
    std::size_t bytes = sizeof(tables);
    for (const table& each : tables_->of) bytes += each.by_tag.footprint();
    return bytes;
}

[[gnu::noinline]] RDMACORO_DECL receive_request*
masked_receives::older_in_tables(tag_type tag, receive_request* other) noexcept {
    for (table& each : tables_->of) {
        if (each.count == 0) continue;
        const tag_type compared = tag & each.mask;
        intrusive_list<receive_request>& list = each.by_tag.bucket(tag_hash(compared));
        for (receive_request* r = list.front(); r != nullptr; r = list.next(*r)) {
            if (other != nullptr && other->sequence_ < r->sequence_) break;
            if (r->wanted_.tag != compared) continue;
            other = r;
            break;
        }
    }
    return other;
}

[[gnu::noinline]] RDMACORO_DECL void masked_receives::add_to_table(receive_request& r) noexcept {
    if (tables_ == nullptr) {
        tables_ = new (std::nothrow) tables;
        if (tables_ == nullptr) {  // slower, and no error
            list_.push_back(r);
            return;
        }
    }
    if (!list_.empty() && free_table() != nullptr) {
        intrusive_list<receive_request> all;
        all.splice_back(list_);
        while (receive_request* other = all.pop_front()) put(*other);
    }
    put(r);
}

/// To the table of its mask. Where there is none, a new one would hide the receives of that mask that may be in the list: only an empty list
/// lets one be made.
RDMACORO_DECL void masked_receives::put(receive_request& r) noexcept {
    table* to = table_of(r.wanted_.mask);
    if (to == nullptr && list_.empty()) {
        to = free_table();
        if (to != nullptr) to->mask = r.wanted_.mask;
    }
    if (to == nullptr) {
        list_.push_back(r);
        return;
    }
    to->by_tag.grow_if_full(
        ++to->count, [](const receive_request& other) noexcept { return tag_hash(other.wanted_.tag); });
    to->by_tag.bucket(tag_hash(r.wanted_.tag)).push_back(r);
}

RDMACORO_DECL masked_receives::table* masked_receives::table_of(tag_type mask) noexcept {
    for (table& each : tables_->of) {
        if (each.count != 0 && each.mask == mask) return &each;
    }
    return nullptr;
}

RDMACORO_DECL masked_receives::table* masked_receives::free_table() noexcept {
    for (table& each : tables_->of) {
        if (each.count == 0) return &each;
    }
    return nullptr;
}

RDMACORO_DECL void masked_receives::removed(tag_type mask) noexcept {
    if (table* const of = table_of(mask)) {
        if (--of->count == 0) of->by_tag.emptied();
    }
}

}  // namespace rdmacoro::detail
