// Registered memory: `region` owns a registration, `remote_region` is what a peer needs to reach it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace rdmacoro {

/// What a peer may do with a region. Combine with `|`.
enum class access_rights : std::uint32_t {
    none = 0,
    remote_read = 1,   ///< get
    remote_write = 2,  ///< put
    all = 3,
};

[[nodiscard]] constexpr access_rights operator|(access_rights a, access_rights b) noexcept {
    return static_cast<access_rights>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
[[nodiscard]] constexpr bool allows(access_rights granted, access_rights wanted) noexcept {
    return (static_cast<std::uint32_t>(granted) & static_cast<std::uint32_t>(wanted)) ==
           static_cast<std::uint32_t>(wanted);
}

/// What a peer needs to reach a region, or a part of one: 32 bytes, trivially copyable, ready to travel in a message
/// between machines of one byte order. The key is unguessable and names one region of one domain; what a peer says here
/// is checked by the side that owns the memory, or by the tables that side publishes.
struct remote_region {
    std::uint64_t address = 0;  ///< of the first byte, in the owner's address space
    std::uint64_t length = 0;   ///< in bytes
    std::uint64_t key = 0;
    access_rights rights = access_rights::none;
    std::uint32_t reserved = 0;

    /// The part of `bytes` bytes that begins at `offset`. Not checked here: the access is.
    [[nodiscard]] constexpr remote_region part(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return {address + offset, bytes, key, rights, reserved};
    }
    [[nodiscard]] constexpr std::uint64_t size() const noexcept { return length; }
};
static_assert(sizeof(remote_region) == 32 && std::is_trivially_copyable_v<remote_region>);

namespace detail {
/// Where regions are registered; a domain's.
class region_owner {
public:
    virtual void deregister(std::uint64_t key) noexcept = 0;

protected:
    ~region_owner() = default;
};
}  // namespace detail

/// Memory registered with a domain, until this goes. When the destructor or `reset` returns no peer can touch the memory
/// any more; a get or put that comes later ends with `errc::bad_key` at the peer. Where `capabilities().revokes_at_once` is false
/// that holds for what begins later: gets and puts that are under way have to have ended. Must not outlive its domain.
class region {
public:
    region() noexcept = default;
    region(detail::region_owner& owner, std::span<std::byte> memory, const remote_region& descriptor) noexcept
        : owner_(&owner), memory_(memory), remote_(descriptor) {}
    region(region&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), memory_(other.memory_), remote_(other.remote_) {}
    region& operator=(region&& other) noexcept {
        if (this != &other) {
            reset();
            owner_ = std::exchange(other.owner_, nullptr);
            memory_ = other.memory_;
            remote_ = other.remote_;
        }
        return *this;
    }
    ~region() { reset(); }

    /// Deregisters now.
    void reset() noexcept {
        if (owner_ != nullptr) std::exchange(owner_, nullptr)->deregister(remote_.key);
    }

    [[nodiscard]] explicit operator bool() const noexcept { return owner_ != nullptr; }
    [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }
    /// What to send to a peer.
    [[nodiscard]] const remote_region& remote() const noexcept { return remote_; }

private:
    detail::region_owner* owner_ = nullptr;
    std::span<std::byte> memory_{};
    remote_region remote_{};
};

}  // namespace rdmacoro
