// way: the target of an operation with the scheduler that runs it.
#pragma once

#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <concepts>
#include <type_traits>

namespace rdmacoro::detail {

/// The target of an operation, and the scheduler that runs it: a connection, a link or a mailbox's state. Without one it is an
/// operation of nothing.
template <class Target>
class way {
public:
    way() noexcept = default;
    way(Target* to, scheduler* owner) noexcept : to_(to), owner_(owner) {}
    way(Target& to) noexcept : to_(&to), owner_(owner_of(to)) {}
    /// As a way to its base.
    template <class Derived>
        requires std::derived_from<Derived, Target>
    way(const way<Derived>& other) noexcept : to_(other.to()), owner_(other.owner()) {}

    [[nodiscard]] Target* to() const noexcept { return to_; }
    [[nodiscard]] scheduler* owner() const noexcept { return owner_; }

    /// To the connection's link.
    [[nodiscard]] auto link() const noexcept {
        using link_type = std::remove_reference_t<decltype(to_->link())>;
        return to_ != nullptr ? way<link_type>(&to_->link(), owner_) : way<link_type>();
    }

private:
    [[nodiscard]] static scheduler* owner_of(Target& to) noexcept {
        if constexpr (requires { to.mailbox(); }) {
            return &to.mailbox().owner();
        } else {
            return &to.owner();
        }
    }

    Target* to_ = nullptr;
    scheduler* owner_ = no_scheduler();
};

}  // namespace rdmacoro::detail
