// Bodies of frame.hpp: the frames that are not messages, and connect_info.
#pragma once

#include <rdmacoro/transport/ofi/frame.hpp>

#include <cstring>

namespace rdmacoro::detail::fabric {

RDMACORO_DECL void connect_info::store(std::byte* to) const noexcept {
    store_number(to, magic);
    store_number(to + 4, version);
    store_number(to + 8, slot_bytes);
    store_number(to + 12, credits);
    store_number(to + 16, flags);
    store_number(to + 20, address_format);
    store_number(to + 24, link);
    store_number(to + 32, host);
    store_number(to + 40, address_bytes);
    store_number(to + 44, nonce);
    std::memcpy(to + 48, provider.data(), provider.size());
    std::memcpy(to + 48 + most_provider, address.data(), address.size());
}

RDMACORO_DECL void connect_info::load(const std::byte* from) noexcept {
    magic = load_number<std::uint32_t>(from);
    version = load_number<std::uint32_t>(from + 4);
    slot_bytes = load_number<std::uint32_t>(from + 8);
    credits = load_number<std::uint32_t>(from + 12);
    flags = load_number<std::uint32_t>(from + 16);
    address_format = load_number<std::uint32_t>(from + 20);
    link = load_number<std::uint64_t>(from + 24);
    host = load_number<std::uint64_t>(from + 32);
    address_bytes = load_number<std::uint32_t>(from + 40);
    nonce = load_number<std::uint32_t>(from + 44);
    std::memcpy(provider.data(), from + 48, provider.size());
    std::memcpy(address.data(), from + 48 + most_provider, address.size());
}

RDMACORO_DECL void connect_info::name_provider(std::string_view name) noexcept {
    provider.fill('\0');
    std::memcpy(provider.data(), name.data(), name.size() < most_provider ? name.size() : most_provider - 1);
}

RDMACORO_DECL std::string_view connect_info::provider_name() const noexcept {
    const std::string_view all(provider.data(), provider.size());
    const std::size_t end = all.find('\0');
    return all.substr(0, end);
}

RDMACORO_DECL bool connect_info::good() const noexcept {
    return slot_bytes >= least_slot && slot_bytes <= most_slot && credits >= least_credits &&
           credits <= most_credits && address_bytes != 0 && address_bytes <= most_address &&
           provider.back() == '\0';
}

RDMACORO_DECL service_request service_request::load(const std::byte* from) noexcept {
    return {load_number<std::uint64_t>(from),      load_number<std::uint64_t>(from + 8),
            load_number<std::uint64_t>(from + 16), load_number<std::uint64_t>(from + 24),
            load_number<std::uint64_t>(from + 32), load_number<std::uint32_t>(from + 40)};
}

}  // namespace rdmacoro::detail::fabric
