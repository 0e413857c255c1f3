// Registered memory: `region` owns a registration, `remote_region` describes it to a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace rdmacoro {

/// The accesses that a region grants to peers. Combine with `|`.
enum class access_rights : std::uint32_t {
    none = 0,
    remote_read = 1,   ///< get
    remote_write = 2,  ///< put
    all = 3,
};

/// Both rights.
[[nodiscard]] constexpr access_rights operator|(access_rights a, access_rights b) noexcept {
    return static_cast<access_rights>(static_cast<std::uint32_t>(a) | static_cast<std::uint32_t>(b));
}
/// Whether `granted` has all of `wanted`.
[[nodiscard]] constexpr bool allows(access_rights granted, access_rights wanted) noexcept {
    return (static_cast<std::uint32_t>(granted) & static_cast<std::uint32_t>(wanted)) ==
           static_cast<std::uint32_t>(wanted);
}

/// Sent to a peer for its access to a region, or to a part of one: 32 bytes, trivially copyable, ready to travel in a message
/// between machines of one byte order. The key names one region of one domain. Over shm, tcp, and libfabric where the owner serves gets and
/// puts, 48 of its bits are random, and the side that owns the memory checks each access, or the tables do that it publishes. Over verbs and
/// other libfabric providers the key is as long as theirs, 32 bits over verbs, and may be guessed; the device or provider checks each access.
struct remote_region {
    std::uint64_t address = 0;                   ///< of the first byte, in the owner's address space
    std::uint64_t length = 0;                    ///< in bytes
    std::uint64_t key = 0;                       ///< names the region at its owner; 0 names none
    access_rights rights = access_rights::none;  ///< the accesses that a peer may make
    std::uint32_t reserved = 0;                  ///< zero

    /// The part of `bytes` bytes that begins at `offset`. Not checked here: the access is.
    [[nodiscard]] constexpr remote_region part(std::uint64_t offset, std::uint64_t bytes) const noexcept {
        return {address + offset, bytes, key, rights, reserved};
    }
    /// As `length`.
    [[nodiscard]] constexpr std::uint64_t size() const noexcept { return length; }
};
static_assert(sizeof(remote_region) == 32 && std::is_trivially_copyable_v<remote_region>);

namespace detail {
/// Deregisters regions; implemented by domains.
class region_owner {
public:
    virtual void deregister(std::uint64_t key) noexcept = 0;

protected:
    ~region_owner() = default;
};
}  // namespace detail

/// Memory registered with a domain, until this is destroyed. When the destructor or `reset` returns no peer can access
/// the memory any more; over shared memory they wait for that, and the scheduler with them. A later get or put ends with
/// `errc::bad_key` at the peer, or ends the link (`capabilities().ends_on_refusal`). One exception: a peer over shared memory that
/// stands still in mid-access (SIGSTOP, a debugger) for longer than `detail::shm::mark_patience` allows loses its link, and
/// may finish one piece, at most 128 KiB, when it goes on. `shared_memory` is given to nothing else before that; what is made
/// of other memory meanwhile may still be read, or written to. Where
/// `capabilities().revokes_at_once` is false that holds for accesses that begin later: gets and puts under way must
/// have ended before. Must not outlive its domain.
class region {
public:
    region() noexcept = default;
    region(detail::region_owner& owner, std::span<std::byte> memory, const remote_region& descriptor) noexcept
        : owner_(&owner), memory_(memory), remote_(descriptor) {}
    region(region&& other) noexcept : owner_(other.owner_), memory_(other.memory_), remote_(other.remote_) {
        other.owner_ = nullptr;
    }
    region& operator=(region&& other) noexcept {
        if (this != &other) {
            reset();
            owner_ = other.owner_;
            memory_ = other.memory_;
            remote_ = other.remote_;
            other.owner_ = nullptr;
        }
        return *this;
    }
    ~region() { reset(); }

    /// Deregisters now.
    void reset() noexcept {
        detail::region_owner* const owner = owner_;
        owner_ = nullptr;
        if (owner != nullptr) owner->deregister(remote_.key);
    }

    [[nodiscard]] explicit operator bool() const noexcept { return owner_ != nullptr; }
    /// The registered memory.
    [[nodiscard]] std::span<std::byte> memory() const noexcept { return memory_; }
    /// The descriptor to send to a peer.
    [[nodiscard]] const remote_region& remote() const noexcept { return remote_; }

private:
    detail::region_owner* owner_ = nullptr;
    std::span<std::byte> memory_{};
    remote_region remote_{};
};

}  // namespace rdmacoro
