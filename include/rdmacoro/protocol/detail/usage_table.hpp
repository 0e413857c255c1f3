// Which memory the application sends from again and again: a bounded table of use counts that age.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <span>

namespace rdmacoro {

/// Counts of the watch for reused memory since its scheduler was made.
struct reuse_statistics {
    std::uint64_t in_place = 0;       ///< sends from prepared memory
    std::uint64_t copies = 0;         ///< sends long enough to be watched that were staged all the same
    std::uint64_t lookups = 0;        ///< of the table
    std::uint64_t registrations = 0;  ///< times memory was prepared
    std::uint64_t refused = 0;        ///< times the link could not prepare it
    std::uint64_t forgotten = 0;      ///< times memory was prepared no longer
    std::uint64_t replaced = 0;       ///< entries that made room for others
    std::uint64_t stopped = 0;        ///< times that adding stopped, as little was reused
    std::uint64_t resumed = 0;        ///< times that it went on
};

namespace detail {

/// Counts uses of memory by address and class of length: lengths of one class differ by less than a factor of two.
///
/// 1024 entries in sets of four; memory that finds its set full wears out the least used of the four, and takes its place
/// when that is cold. Counts age: in `sets * uses_per_ageing` uses each is halved once.
///
///   adding --(of a window's uses less than a fifth was of ready memory, and entries were fought for)--> stopped
///   stopped --(after a pause: one window, and twice as long each time that it was in vain)--> adding
///
/// While stopped, entries that are there go on counting; when none of them is ready nothing is looked up at all.
class usage_table {
public:
    static constexpr std::size_t ways = 4;
    static constexpr std::size_t sets = 256;
    static constexpr std::uint32_t uses_per_ageing = 64;  // of one set
    static constexpr std::uint32_t window = 4096;         // uses
    static constexpr std::uint32_t longest_pause = 64;    // windows
    static constexpr std::uint16_t most_uses = std::numeric_limits<std::uint16_t>::max();

    struct entry {
        std::uintptr_t address = 0;
        std::uint32_t ready_bytes = 0;  ///< from `address` on, prepared to be sent in place
        std::uint16_t uses = 0;
        std::uint8_t length_class = 0;

        [[nodiscard]] bool ready() const noexcept { return ready_bytes != 0; }
    };

    usage_table() noexcept = default;
    usage_table(const usage_table&) = delete;
    usage_table& operator=(const usage_table&) = delete;
    ~usage_table() { delete[] sets_; }

    [[nodiscard]] static constexpr unsigned length_class(std::size_t bytes) noexcept {
        return static_cast<unsigned>(std::bit_width(bytes));
    }

    /// Takes its memory, once. False when there is none.
    [[nodiscard]] bool open() noexcept {
        if (sets_ == nullptr) sets_ = new (std::nothrow) set[sets];
        return sets_ != nullptr;
    }

    /// Counts a use; the answer is its entry, or nullptr when it is not counted. Entries stay in place until the next `use`.
    /// Precondition: open; `memory` is not empty.
    [[nodiscard]] entry* use(std::span<const std::byte> memory) noexcept {
        if (++tick_ % uses_per_ageing == 0) [[unlikely]]
            housekeeping();
        if (stopped_ && ready_entries_ == 0) return nullptr;
        ++statistics_.lookups;
        const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
        const auto length = static_cast<std::uint8_t>(length_class(memory.size()));
        set& home = sets_[index_of(address, length)];
        for (entry& e : home.entries) {
            if (e.address == address && e.length_class == length) [[likely]] {
                ++e.uses;
                if (e.ready()) ++ready_uses_;
                return &e;
            }
        }
        return stopped_ ? nullptr : add(home, address, length);
    }
    /// That use did not happen.
    static void take_back(entry& e) noexcept {
        if (e.uses != 0) --e.uses;
    }

    /// From now on `bytes` bytes can be sent in place.
    void make_ready(entry& e, std::size_t bytes) noexcept {
        if (!e.ready()) ++ready_entries_;
        e.ready_bytes = static_cast<std::uint32_t>(bytes);
    }
    /// Sends from this memory are staged again; its count of uses restarts with this one.
    void start_anew(entry& e) noexcept {
        if (e.ready()) --ready_entries_;
        e.ready_bytes = 0;
        e.uses = 1;
    }

    [[nodiscard]] bool adding() const noexcept { return !stopped_; }
    /// Entries with memory that can be sent in place.
    [[nodiscard]] std::size_t ready_entries() const noexcept { return ready_entries_; }
    [[nodiscard]] const reuse_statistics& statistics() const noexcept { return statistics_; }
    [[nodiscard]] reuse_statistics& statistics() noexcept { return statistics_; }

private:
    struct alignas(64) set {
        entry entries[ways];
    };
    static_assert(sizeof(set) == 64);
    static_assert(window % uses_per_ageing == 0);
    static_assert(2 * sets * uses_per_ageing < most_uses);  // ageing keeps counts below that

    [[nodiscard]] static std::size_t index_of(std::uintptr_t address, std::uint8_t length) noexcept {
        constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
        return static_cast<std::size_t>(((std::uint64_t{address} ^ length) * golden) >>
                                        (64 - std::bit_width(sets - 1)));
    }

    [[nodiscard]] entry* add(set& home, std::uintptr_t address, std::uint8_t length) noexcept;
    void housekeeping() noexcept;
    void judge() noexcept;

    set* sets_ = nullptr;
    std::uint32_t tick_ = 0;
    std::uint32_t next_to_age_ = 0;
    std::size_t ready_entries_ = 0;
    // Since the window began.
    std::uint32_t ready_uses_ = 0;
    std::uint32_t fights_ = 0;
    bool stopped_ = false;
    std::uint32_t pause_ = 1;  // windows that the next stop lasts
    std::uint32_t pause_left_ = 0;
    reuse_statistics statistics_{};
};

}  // namespace detail
}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/usage_table.ipp>
#endif
