// description: every pending operation of a scheduler, and the next actor that each waits for.
#pragma once

#include <rdmacoro/coro/clock.hpp>
#include <rdmacoro/coro/next_actor.hpp>
#include <rdmacoro/coro/scheduler.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacoro {

/// One operation that has begun and not ended.
struct pending_operation {
    std::string what;        ///< "send", "recv", "rdma_get", "sleep", ...
    std::string peer{};      ///< its name; empty where there is none
    bool tagged = false;     ///< whether it has a tag
    std::uint64_t tag = 0;   ///< the bits that are compared
    std::uint64_t mask = 0;  ///< which bits are compared; all for a send
    std::size_t bytes = 0;   ///< of the message or the buffer; 0 where there is none, or for a lent receive
    std::size_t moved = 0;   ///< bytes of it that are known to have moved
    std::string stage{};     ///< how far it has come
    next_actor next{};       ///< must act for it to go on
    std::optional<duration> waited{};  ///< for how long it waits; empty where that was not recorded
    bool at_least = false;             ///< `waited` counts from when the stall watch saw it first
    std::optional<duration> left{};    ///< until its time has come, where that is known

    const void* id =
        nullptr;  ///< with `serial` names the operation; equal in two descriptions: the same operation
    std::uint64_t serial = 0;  ///< see `id`

    /// One line for people, without a newline.
    [[nodiscard]] std::string text() const;
};

namespace detail {
/// The toolkit's description of an operation, without memory of its own: a `pending_operation` is made of it only by code that is compiled
/// where a program describes.
struct operation_sketch {
    const char* what = "";
    std::string_view peer{};
    bool tagged = false;
    std::uint64_t tag = 0;
    std::uint64_t mask = 0;
    std::size_t bytes = 0;
    std::size_t moved = 0;
    const char* stage = "";
    std::size_t stored = 0;  // messages that it does not take, named in its stage; 0: none
    next_actor next{};
    std::optional<duration> waited{};
    const void* id = nullptr;
    std::uint64_t serial = 0;
};
}  // namespace detail

/// The answer of `scheduler::describe`: a copy, which stays as it is while the operations go on.
class description {
public:
    /// Of no operation.
    description() noexcept;

    /// All pending operations, those of one connection together.
    [[nodiscard]] std::span<const pending_operation> operations() const& noexcept { return operations_; }
    /// The list itself, of a description that is a temporary: `for (const auto& one : on.describe().operations())` is safe.
    [[nodiscard]] std::vector<pending_operation> operations() && noexcept { return std::move(operations_); }
    /// False when memory was short: some are missing.
    [[nodiscard]] bool complete() const noexcept { return complete_; }
    /// One line for each operation; says so when there is none.
    [[nodiscard]] std::string text() const;

    /// Adds one; for the objects that hold operations.
    void add(pending_operation&& one) noexcept;
    /// As above, for the toolkit's own objects.
    void add(const detail::operation_sketch& one) noexcept { add_sketch_(*this, one); }
    /// Memory is short: an operation was left out.
    void miss_one() noexcept { complete_ = false; }
    /// Calls `make(operation)` and adds the operation; what it throws makes the description incomplete.
    template <class Make>
    void add_made(Make make) noexcept {
        try {
            pending_operation one{};
            make(one);
            operations_.push_back(std::move(one));
        } catch (...) {
            miss_one();
        }
    }
    /// Calls `visit` for each operation, to change it.
    template <class Visit>
    void each(Visit visit) {
        for (pending_operation& one : operations_) visit(one);
    }

private:
    // By a pointer, so that a unit that only has connections compiles nothing that makes strings.
    void (*add_sketch_)(description& to, const detail::operation_sketch& one) noexcept;
    std::vector<pending_operation> operations_;
    bool complete_ = true;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/coro/impl/describe.ipp>
#endif
