// message_pool: one limit for the stored messages of many links.
//
// Each link has a budget, and is granted a little of it at first. Its grant rises when its peer uses it up, and the pool
// decides how far: to a quarter of what the pool has free, so that the busiest links take about the same each, and a link
// that is new finds room however many have filled theirs. Above that a grant shrinks, by the credit of messages that are received, which
// is not given back.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/protocol/message_store.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace rdmacoro {

class scheduler;

namespace detail {

/// A link that holds a part of a pool.
struct pool_holder : list_node<pool_holder> {
    /// Called when another link gets less than it wants; `self` is given at construction. May be nullptr.
    using function = void (*)(void* self) noexcept;

    pool_holder(function short_of, void* of) noexcept : short_of_memory(short_of), self(of) {}

    function short_of_memory;
    void* self;
};

/// The state that the copies of a pool share. Counted: links and mailboxes may outlive the pool that they were given.
class pool_state {
public:
    /// `grows`: as `allow` says.
    pool_state(std::uint64_t units, bool grows);
    pool_state(const pool_state&) = delete;
    pool_state& operator=(const pool_state&) = delete;

    void use() noexcept { ++users_; }
    void release() noexcept {
        if (--users_ == 0) delete this;
    }

    /// From now on it is of this scheduler alone. Throws `errc::invalid_argument` when it is of another.
    void belong_to(const scheduler& owner);
    /// A link may be given a budget of so much. A pool with a total that the program has not set has room for sixteen such.
    void allow(std::uint32_t budget) noexcept;

    [[nodiscard]] message_store& store() noexcept { return *store_; }
    [[nodiscard]] std::uint64_t total() const noexcept { return total_; }
    [[nodiscard]] std::uint64_t taken() const noexcept { return taken_; }
    /// How much a link may hold that holds `held` now.
    [[nodiscard]] std::uint64_t most(std::uint64_t held) const noexcept {
        return (total_ - taken_ + held) / 4;
    }
    void holds(pool_holder& link) noexcept { holders_.push_back(link); }
    /// `link` wants more than there is: tells the next few others that hold something.
    void run_short(const pool_holder& link) noexcept;
    void take(std::uint32_t units) noexcept { taken_ += units; }
    void give(std::uint32_t units) noexcept { taken_ -= units; }

private:
    ~pool_state() { store_->abandon(); }

    static constexpr int told_at_once = 4;

    std::uint64_t total_;  // in `credit_bytes`
    std::uint64_t taken_ = 0;
    const scheduler* owner_ = nullptr;
    message_store* store_;
    intrusive_list<pool_holder> holders_;
    std::size_t users_ = 1;
    bool grows_;
};

}  // namespace detail

/// A limit for the memory that many links together may take for messages that come before their receive: pass it to `listen` or
/// `connect` as `mailbox_options::pool`. A link has the pool that it was made with also at a mailbox with another one, which limits nothing.
/// Stored messages of its links take at most the total, 16 KiB for each link (256 KiB with lists that have `speculative` or
/// `provider_matched`), and 2 MiB of released blocks; and 64 messages of `staged_get` for each link with a peer that has closed.
/// Copies are the same pool. Only for the thread of one scheduler: that of its first link.
class message_pool {
public:
    /// Of pools that the program does not make itself; more where `mailbox_options::unexpected_bytes` is above 4 MiB.
    static constexpr std::size_t usual_bytes = std::size_t{64} << 20;

    /// `bytes`: the total.
    explicit message_pool(std::size_t bytes) : message_pool(bytes, false) {}
    /// The same pool.
    message_pool(const message_pool& other) noexcept : state_(other.state_) { state_->use(); }
    /// From here on the same pool; what was made with this one before keeps that.
    message_pool& operator=(const message_pool& other) noexcept {
        other.state_->use();
        std::exchange(state_, other.state_)->release();
        return *this;
    }
    ~message_pool() { state_->release(); }

    /// In bytes.
    [[nodiscard]] std::size_t total() const noexcept;
    /// The links' grants of it, used or not, in bytes.
    [[nodiscard]] std::size_t granted() const noexcept;
    /// Memory of stored messages, those that were lent and released blocks included, in bytes.
    [[nodiscard]] std::size_t footprint() const noexcept { return state_->store().footprint(); }

    /// Of the usual total, or more where its links' budgets are larger.
    [[nodiscard]] static message_pool usual() { return message_pool(usual_bytes, true); }

    [[nodiscard]] detail::pool_state& state() const noexcept { return *state_; }

private:
    message_pool(std::size_t bytes, bool grows);

    detail::pool_state* state_;
};

namespace detail {
/// The pool of a scheduler's endpoints and mailboxes that were given none.
struct scheduler_pool {
    explicit scheduler_pool(scheduler&) : pool(message_pool::usual()) {}
    message_pool pool;
};
}  // namespace detail

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/impl/message_pool.ipp>
#endif
