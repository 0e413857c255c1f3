// Registration of a simulated node's own memory.
#pragma once

#include <rdmacoro/memory/registration_cache.hpp>

#include <cstddef>
#include <optional>
#include <span>

namespace rdmacoro::detail::sim {

/// The registrar of a node's cache: reports each registration to the node.
struct local_registrar {
    struct handle {};
    using function = void (*)(void* node, std::size_t bytes) noexcept;

    function registered = nullptr;
    void* node = nullptr;

    [[nodiscard]] std::optional<handle> register_memory(std::span<std::byte> pages, access_rights) noexcept {
        registered(node, pages.size());
        return handle{};
    }
    void deregister(handle&) noexcept {}
};

using local_cache = registration_cache<local_registrar>;

}  // namespace rdmacoro::detail::sim
