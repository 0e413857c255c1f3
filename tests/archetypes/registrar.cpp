// The least that models `registrar`: a device that registers nothing. The cache is instantiated over it.
#include <rdmacoro/memory/registration_cache.hpp>

namespace {

struct device {
    struct handle {};
    std::optional<handle> register_memory(std::span<std::byte>, rdmacoro::access_rights) noexcept {
        return std::nullopt;
    }
    void deregister(handle&) noexcept {}

    device() = default;
    device(const device&) = delete;
    device& operator=(const device&) = delete;
};

}  // namespace

static_assert(rdmacoro::registrar<device>);
template class rdmacoro::registration_cache<device>;
