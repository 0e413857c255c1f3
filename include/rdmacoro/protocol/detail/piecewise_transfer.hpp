// Moves bytes between gathered memory here and pieces of memory there, by gets or puts.
#pragma once

#include <rdmacoro/protocol/detail/rendezvous_wire.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace rdmacoro::detail {

/// One transfer at a time; several of its gets or puts are under way together. `Byte` is `std::byte` for gets and
/// `const std::byte` for puts. Stays in place while `busy()`.
template <class Byte>
class piecewise_transfer {
public:
    /// Called when a get or put that was posted has ended, from inside the link's poll: the owner pumps again.
    using stepped = void (*)(piecewise_transfer& self) noexcept;

    enum class state : std::uint8_t {
        moving,   ///< `stepped` will be called
        stalled,  ///< the link had no room: pump again when it is writable
        over,     ///< nothing is under way; `outcome()` says how it went
    };

    piecewise_transfer() = default;
    piecewise_transfer(const piecewise_transfer&) = delete;
    piecewise_transfer& operator=(const piecewise_transfer&) = delete;

    /// `bytes` bytes from `offset` on of `local`, to or from the beginning of `there`, which is at least as long.
    void begin(const basic_buffers<Byte>& local, std::size_t offset, std::size_t bytes,
               stepped call) noexcept {
        local_ = local;
        offset_ = offset;
        left_ = bytes;
        piece_ = 0;
        within_ = 0;
        outcome_ = {};
        call_ = call;
    }

    /// Posts what can be posted.
    template <class Link>
    [[nodiscard]] state pump(Link& link) noexcept {
        while (left_ != 0 && !outcome_) {
            hook* free = free_hook();
            if (free == nullptr) return state::moving;
            while (within_ == there.at[piece_].length) {
                ++piece_;
                within_ = 0;
            }
            const remote_pieces::piece& p = there.at[piece_];
            std::span<Byte> here = local_.at_offset(offset_);
            here = here.first(static_cast<std::size_t>(
                std::min<std::uint64_t>({here.size(), left_, p.length - within_, most_at_once})));
            const remote_region where{p.address + within_, here.size(), p.key};
            switch (post(link, here, where, *free)) {
                case post_result::done: break;
                case post_result::posted:
                    free->busy = true;
                    ++under_way_;
                    break;
                case post_result::retry: return under_way_ != 0 ? state::moving : state::stalled;
                case post_result::failed: outcome_ = make_error_code(errc::closed); continue;
            }
            offset_ += here.size();
            within_ += here.size();
            left_ -= here.size();
        }
        return under_way_ != 0 ? state::moving : state::over;
    }

    /// Memory here is touched no more and nobody is called. Precondition: the link revokes at once.
    template <class Link>
    void revoke(Link& link) noexcept {
        for (hook& h : hooks_) {
            if (std::exchange(h.busy, false)) static_cast<void>(link.revoke(h));
        }
        left_ = under_way_ = 0;
    }
    /// The link is down: nothing is under way any more.
    void forget() noexcept {
        for (hook& h : hooks_) h.busy = false;
        left_ = under_way_ = 0;
    }
    /// Posts nothing more; what is under way goes on.
    void stop() noexcept { left_ = 0; }

    [[nodiscard]] bool busy() const noexcept { return under_way_ != 0; }
    /// Whether everything is posted.
    [[nodiscard]] bool all_posted() const noexcept { return left_ == 0 && !outcome_; }
    [[nodiscard]] std::error_code outcome() const noexcept { return outcome_; }

    remote_pieces there;     ///< the owner's to set before `begin`
    void* owner = nullptr;   ///< the owner's
    std::uint32_t name = 0;  ///< the owner's

private:
    static constexpr std::size_t most_under_way = 4;
    static constexpr std::uint64_t most_at_once = std::uint64_t{1} << 30;  // fits every adapter's limit

    struct hook : completion {
        piecewise_transfer* self;
        bool busy = false;
    };

    [[nodiscard]] hook* free_hook() noexcept {
        for (hook& h : hooks_) {
            if (!h.busy) return &h;
        }
        return nullptr;
    }
    template <class Link>
    [[nodiscard]] post_result post(Link& link, std::span<Byte> here, const remote_region& where,
                                   hook& h) noexcept {
        h.self = this;
        h.done = [](completion& c, std::error_code outcome) noexcept {
            auto& ended = static_cast<hook&>(c);
            ended.busy = false;
            --ended.self->under_way_;
            if (outcome && !ended.self->outcome_) ended.self->outcome_ = outcome;
            ended.self->call_(*ended.self);
        };
        if constexpr (std::is_const_v<Byte>) {
            return link.put(here, where, h);
        } else {
            return link.get(where, here, h);
        }
    }

    basic_buffers<Byte> local_;
    std::size_t offset_ = 0;
    std::uint64_t left_ = 0;
    std::uint32_t piece_ = 0;   // the one that the next get or put begins in
    std::uint64_t within_ = 0;  // bytes of it that are posted
    std::uint32_t under_way_ = 0;
    stepped call_ = nullptr;
    std::error_code outcome_{};
    std::array<hook, most_under_way> hooks_{};
};

/// Whether gets between this memory and those pieces meet the alignment that the link asks for.
template <class Byte>
[[nodiscard]] bool meets_alignment(const basic_buffers<Byte>& local, std::size_t bytes,
                                   std::size_t alignment) noexcept {
    for (std::size_t i = 0; alignment > 1 && bytes > 0; ++i) {
        const std::span<Byte> piece = local[i];
        const std::size_t now = std::min(piece.size(), bytes);
        if (reinterpret_cast<std::uintptr_t>(piece.data()) % alignment != 0 || now % alignment != 0)
            return false;
        bytes -= now;
    }
    return true;
}
[[nodiscard]] inline bool meets_alignment(const remote_pieces& there, std::size_t alignment) noexcept {
    for (std::uint32_t i = 0; alignment > 1 && i < there.count; ++i) {
        if (there.at[i].address % alignment != 0 || there.at[i].length % alignment != 0) return false;
    }
    return true;
}

}  // namespace rdmacoro::detail
