// Bodies of codec.hpp.
#pragma once

#include <rdmacoro/service/codec.hpp>

#include <algorithm>

namespace rdmacoro {

RDMACORO_DECL std::span<const std::span<const std::byte>> encoder::pieces() {
    list_.clear();
    std::size_t at = 0;
    const auto add_own = [&](std::size_t end) {
        if (end != at) list_.emplace_back(own_.get() + at, end - at);
        at = end;
    };
    for (const borrowed_row& one : borrowed_) {
        add_own(one.after);
        list_.push_back(one.bytes);
    }
    add_own(used_);
    return list_;
}

RDMACORO_DECL std::vector<std::byte> encoder::bytes() const {
    std::vector<std::byte> all;
    all.reserve(size());
    std::size_t at = 0;
    const auto add_own = [&](std::size_t end) {
        all.insert(all.end(), own_.get() + at, own_.get() + end);
        at = end;
    };
    for (const borrowed_row& one : borrowed_) {
        add_own(one.after);
        all.insert(all.end(), one.bytes.begin(), one.bytes.end());
    }
    add_own(used_);
    return all;
}

RDMACORO_DECL void encoder::borrow(std::span<const std::byte> bytes) {
    borrowed_.push_back({bytes, used_});
    borrowed_bytes_ += bytes.size();
}

RDMACORO_COLD void encoder::grow(std::size_t bytes) {
    constexpr std::size_t least = 256;
    if (bytes > static_cast<std::size_t>(-1) / 4 - used_) throw std::bad_alloc();
    const std::size_t room = std::max({least, 2 * room_, used_ + bytes});
    auto larger = std::make_unique_for_overwrite<std::byte[]>(room);
    if (used_ != 0) std::memcpy(larger.get(), own_.get(), used_);
    own_ = std::move(larger);
    room_ = room;
}

RDMACORO_COLD const std::byte* copied_rows::add(std::span<const std::byte> row) {
    auto place = std::make_unique_for_overwrite<std::byte[]>(row.size());
    std::memcpy(place.get(), row.data(), row.size());
    bytes_ += row.size();
    return rows_.emplace_back(std::move(place)).get();
}

RDMACORO_COLD bool decoder::copy_row(const std::byte*& begin, std::size_t bytes) {
    if (bytes == 0) {
        begin = nullptr;
        return true;
    }
    if (copies_ == nullptr) return refuse("a row that does not lie in memory as its elements must");
    if (!charge(bytes, 1)) return false;
    begin = copies_->add({begin, bytes});
    copied_ += bytes;
    return true;
}

}  // namespace rdmacoro
