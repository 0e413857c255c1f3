// core_handle: what a connection is that no link has taken yet.
#pragma once

#include <memory>

namespace rdmacoro::detail {

/// Has the core of an open connection and abandons it when destroyed. `Core` belongs to its domain.
template <class Core>
class core_handle {
public:
    core_handle() noexcept = default;
    explicit core_handle(Core& core) noexcept : core_(&core) {}

    [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }

    /// Closes it now.
    void reset() noexcept { core_.reset(); }

    /// For the link that takes it.
    [[nodiscard]] Core* release() noexcept { return core_.release(); }

private:
    struct abandon {
        void operator()(Core* core) const noexcept { core->abandon(); }
    };
    std::unique_ptr<Core, abandon> core_;
};

}  // namespace rdmacoro::detail
