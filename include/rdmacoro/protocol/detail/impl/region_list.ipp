// Bodies of detail/region_list.hpp.
#pragma once

#include <rdmacoro/protocol/detail/region_list.hpp>

#include <new>
#include <utility>

namespace rdmacoro::detail {

RDMACORO_COLD bool region_list::add(region&& open) noexcept {
    region taken(std::move(open));
    if (count_ == 0) {
        first_ = std::move(taken);
    } else {
        if (more_ == nullptr) more_ = new (std::nothrow) region[remote_pieces::most - 1];
        if (more_ == nullptr) return false;
        more_[count_ - 1] = std::move(taken);
    }
    ++count_;
    return true;
}

RDMACORO_COLD void region_list::clear() noexcept {
    for (; count_ > 1; --count_) more_[count_ - 2].reset();
    first_.reset();
    count_ = 0;
}

RDMACORO_COLD void region_list::name_in(remote_pieces& pieces) const noexcept {
    for (std::uint32_t i = 0; i < count_; ++i) pieces.add(i == 0 ? first_.remote() : more_[i - 1].remote());
}

}  // namespace rdmacoro::detail
