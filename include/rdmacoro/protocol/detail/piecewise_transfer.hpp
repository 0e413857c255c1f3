// Moves bytes between gathered memory here and pieces of memory there, by gets or puts.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// The gets and puts of a link of any type; see `one_sided_link`.
class one_sided_access {
public:
    virtual post_result get(const remote_region& there, std::span<std::byte> into,
                            completion& c) noexcept = 0;
    virtual post_result put(std::span<const std::byte> from, const remote_region& there,
                            completion& c) noexcept = 0;
    virtual void revoke(completion& c) noexcept = 0;

protected:
    ~one_sided_access() = default;
};

/// One transfer at a time; several of its gets or puts are under way together. Stays in place while `busy()`.
class piecewise_transfer {
public:
    /// Called when a get or put that was posted has ended, from inside the link's poll: the owner pumps again.
    using stepped = void (*)(piecewise_transfer& self) noexcept;

    enum class state : std::uint8_t {
        moving,   ///< `stepped` will be called
        stalled,  ///< the link had no room: pump again when it is writable
        over,     ///< nothing is under way; `outcome()` is the result
    };

    piecewise_transfer() noexcept = default;
    piecewise_transfer(const piecewise_transfer&) = delete;
    piecewise_transfer& operator=(const piecewise_transfer&) = delete;

    /// Gets `bytes` bytes to `into`, from `offset` on, from the beginning of `there`, which is at least as long.
    void begin_get(const mutable_buffers& into, std::size_t offset, std::size_t bytes, stepped call) noexcept;
    /// Puts `bytes` bytes of `from`, from `offset` on, to the beginning of `there`.
    void begin_put(const const_buffers& from, std::size_t offset, std::size_t bytes, stepped call) noexcept;

    /// Posts as many gets or puts as the link takes.
    [[nodiscard]] state pump(one_sided_access& link) noexcept;

    /// Memory here is touched no more and `stepped` is not called. Precondition: the link revokes at once.
    void revoke(one_sided_access& link) noexcept;
    /// The link is down: nothing is under way any more.
    void forget() noexcept;
    /// Posts nothing more; gets and puts under way go on.
    void stop() noexcept { left_ = 0; }

    [[nodiscard]] bool busy() const noexcept { return under_way_ != 0; }
    [[nodiscard]] std::error_code outcome() const noexcept { return outcome_; }

    remote_pieces there;     ///< the owner's to set before it begins
    void* owner = nullptr;   ///< the owner's
    std::uint32_t name = 0;  ///< the owner's

private:
    static constexpr std::size_t most_under_way = 4;
    static constexpr std::uint64_t most_at_once = std::uint64_t{1} << 30;  // fits every adapter's limit

    struct hook : completion {
        piecewise_transfer* self;
        bool busy = false;
    };

    void begin(std::size_t offset, std::size_t bytes, stepped call) noexcept;
    [[nodiscard]] post_result post(one_sided_access& link, std::size_t bytes, const remote_region& where,
                                   hook& h) noexcept;

    const_buffers from_;    // of a put
    mutable_buffers into_;  // of a get
    bool gets_ = false;
    std::size_t offset_ = 0;
    std::uint64_t left_ = 0;
    std::uint32_t piece_ = 0;   // the one that the next get or put begins in
    std::uint64_t within_ = 0;  // bytes of it that are posted
    std::uint32_t under_way_ = 0;
    stepped call_ = nullptr;
    std::error_code outcome_{};
    hook hooks_[most_under_way];
};

/// Whether gets between this memory and these pieces have the alignment that the link requires.
[[nodiscard]] RDMACORO_DECL bool meets_alignment(const const_buffers& local, std::size_t bytes,
                                                 std::size_t alignment) noexcept;
[[nodiscard]] RDMACORO_DECL bool meets_alignment(const mutable_buffers& local, std::size_t bytes,
                                                 std::size_t alignment) noexcept;
[[nodiscard]] RDMACORO_DECL bool meets_alignment(const remote_pieces& there, std::size_t alignment) noexcept;

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/piecewise_transfer.ipp>
#endif
