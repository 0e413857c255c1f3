// Numbered slots of the streams of one side, and the list of the slots that wait for room to send something.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <cstdint>
#include <new>

namespace rdmacoro::detail {

/// How the slots of a table are made and destroyed.
struct slot_type {
    void* (*make)() noexcept;  ///< nullptr when memory is short
    void (*destroy)(void* slot) noexcept;
};
/// Slots that a table holds as pointers to their base class.
template <class Slot, class Base = Slot>
inline constexpr slot_type slot_type_of{
    []() noexcept -> void* {
        Base* made = new (std::nothrow) Slot();
        return made;
    },
    [](void* slot) noexcept { delete static_cast<Slot*>(static_cast<Base*>(slot)); }};

/// Slots that are found by number and stay in place. Some of them are remembered: they have something to send for which
/// there was no room.
class slot_table {
public:
    static constexpr std::uint32_t none = 0xffffffff;

    explicit slot_table(const slot_type& type) noexcept : type_(type) {}
    slot_table(const slot_table&) = delete;
    slot_table& operator=(const slot_table&) = delete;
    ~slot_table();

    [[nodiscard]] void* at(std::uint32_t id) noexcept { return all_[id].slot; }
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }

    /// Whether `take` would need more than `most` slots.
    [[nodiscard]] bool exhausted(std::uint32_t most) const noexcept { return free_ == none && size_ >= most; }
    /// The number of a free slot; `none` when memory is short.
    [[nodiscard]] std::uint32_t take() noexcept;
    void give(std::uint32_t id) noexcept {
        all_[id].next_free = free_;
        free_ = id;
    }

    /// Whether the peer may name `id`: a slot that exists here, or the next. The peer takes its numbers by `take` and sends each before
    /// it takes the next, or gives it back, and a link keeps messages in order. So memory grows by a slot for each that it uses.
    [[nodiscard]] bool in_sequence(std::uint32_t id) const noexcept { return id <= size_; }
    /// Makes all slots up to number `id` exist. False when memory is short.
    [[nodiscard]] bool reach(std::uint32_t id) noexcept;

    /// Slot `id` has something to send. False: it is remembered already. Never allocates.
    bool remember(std::uint32_t id) noexcept;
    /// The same for one that was taken out and keeps its place: it is the first again.
    bool remember_first(std::uint32_t id) noexcept;
    [[nodiscard]] std::uint32_t remembered() const noexcept { return unsent_count_; }
    /// Takes the slot out that has been remembered longest; `none` when there is none.
    [[nodiscard]] std::uint32_t take_remembered() noexcept;
    void forget_unsaid() noexcept {
        while (take_remembered() != none) {}
    }

private:
    struct entry {
        void* slot;
        std::uint32_t next_free;
        std::uint32_t next_unsent;  // in the list of remembered slots; `unlisted`: it is not in it
    };

    static constexpr std::uint32_t unlisted = none - 1;

    [[nodiscard]] bool grow() noexcept;

    slot_type type_;
    entry* all_ = nullptr;
    std::uint32_t size_ = 0;
    std::uint32_t capacity_ = 0;
    std::uint32_t unsent_count_ = 0;
    std::uint32_t first_unsent_ = none;
    std::uint32_t last_unsent_ = none;
    std::uint32_t free_ = none;
};

/// A table of one type of slots.
template <class Slot>
class stream_slots : public slot_table {
public:
    stream_slots() noexcept : slot_table(slot_type_of<Slot>) {}

    [[nodiscard]] Slot& operator[](std::uint32_t id) noexcept { return *static_cast<Slot*>(at(id)); }
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/stream_slots.ipp>
#endif
