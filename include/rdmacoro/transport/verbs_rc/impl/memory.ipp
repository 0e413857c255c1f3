// Bodies of memory.hpp.
#pragma once

#include <rdmacoro/transport/verbs_rc/memory.hpp>

#include <cerrno>
#include <utility>

#include <sys/random.h>

namespace rdmacoro::detail::verbs {

RDMACORO_DECL std::optional<page_registrar::handle>
page_registrar::register_memory(std::span<std::byte> pages, access_rights rights) noexcept {
    const int flags = device_.access_flags(rights);
    handle made;
    made.registration.reset((::ibv_reg_mr)(device_.domain(), pages.data(), pages.size(), flags));
    made.writable = made.registration != nullptr;
    // Memory that is not writable can still be sent from.
    if (made.registration == nullptr && !allows(rights, access_rights::remote_write))
        made.registration.reset((::ibv_reg_mr)(device_.domain(), pages.data(), pages.size(),
                                               flags & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)));
    if (made.registration == nullptr) return std::nullopt;
    return made;
}

RDMACORO_DECL region_list::region_list(device& of) noexcept : device_(of) {
    if (::getrandom(&salt_, sizeof salt_, 0) != sizeof salt_) salt_ = reinterpret_cast<std::uintptr_t>(this);
}

RDMACORO_DECL remote_region region_list::add(std::span<std::byte> memory, access_rights rights) {
    reserve_one();
    entry made;
    // Devices refuse to register nothing.
    const std::span<std::byte> real = memory.empty() ? std::span<std::byte>(&nothing_, 1) : memory;
    int flags = device_.access_flags(rights);
    made.exact.reset((::ibv_reg_mr)(device_.domain(), real.data(), real.size(), flags));
    if (made.exact == nullptr && errno == EFAULT && !allows(rights, access_rights::remote_write)) {
        flags &= ~IBV_ACCESS_LOCAL_WRITE;
        made.exact.reset((::ibv_reg_mr)(device_.domain(), real.data(), real.size(), flags));
    }
    if (made.exact == nullptr) throw_registration_failure(real.size(), errno);
    const std::uint32_t rkey = made.exact->rkey;
    return enter(std::move(made), memory, rights, rkey);
}

RDMACORO_DECL std::optional<remote_region> region_list::add(page_cache::lease&& lease,
                                                            access_rights rights) noexcept {
    try {
        reserve_one();
    } catch (const std::exception&) {
        return std::nullopt;
    }
    const std::uint32_t rkey = lease.registration().registration->rkey;
    const std::span<std::byte> memory = lease.memory();
    entry made;
    made.cached = std::move(lease);
    return enter(std::move(made), memory, rights, rkey);
}

RDMACORO_DECL void region_list::remove(std::uint64_t key) noexcept {
    const std::size_t at = (key >> 32) % most;
    entries_[at].exact.reset();
    entries_[at].cached.reset();
    free_.push_back(static_cast<std::uint32_t>(at));
    --count_;
}

RDMACORO_DECL void region_list::reserve_one() {
    if (!free_.empty()) return;
    if (entries_.size() == most)
        throw error(errc::no_resources, "verbs: 65,536 regions are registered in one domain");
    free_.reserve(entries_.size() + 1);
    entries_.emplace_back();
    free_.push_back(static_cast<std::uint32_t>(entries_.size() - 1));
}

RDMACORO_DECL remote_region region_list::enter(entry&& made, std::span<std::byte> memory,
                                               access_rights rights, std::uint32_t rkey) noexcept {
    const std::uint32_t at = free_.back();
    free_.pop_back();
    entries_[at] = std::move(made);
    ++count_;
    salt_ = salt_ * 6364136223846793005u + 1442695040888963407u;
    const std::uint64_t high = ((salt_ >> 48) << 16) | at;
    return {reinterpret_cast<std::uintptr_t>(memory.data()), memory.size(), (high << 32) | rkey, rights};
}

}  // namespace rdmacoro::detail::verbs
