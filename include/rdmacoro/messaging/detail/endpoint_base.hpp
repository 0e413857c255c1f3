// The part of an endpoint that endpoints, mailboxes and listeners hold, without the types of its transport and
// protocols.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/protocol/connection_base.hpp>

#include <utility>

namespace rdmacoro::detail {

/// The state that an endpoint's operations refer to. A mailbox that attaches the endpoint takes it over, without its `box`; in the
/// mailbox's list are those with a link that has ended, as long as it has not told of them.
class endpoint_base : public list_node<endpoint_base> {
public:
    endpoint_base(const endpoint_base&) = delete;
    endpoint_base& operator=(const endpoint_base&) = delete;
    [[gnu::cold]] virtual ~endpoint_base() {
        unlink();
        drop_box();
    }

    [[nodiscard]] virtual connection_base& base() noexcept = 0;
    /// The endpoint's own mailbox; nullptr once it is attached to another.
    [[nodiscard]] mailbox_base* box() noexcept { return box_; }
    [[gnu::cold]] void drop_box() noexcept { delete std::exchange(box_, nullptr); }

protected:
    [[gnu::cold]] endpoint_base(scheduler& owner, const mailbox_options& options)
        : box_(new mailbox_base(owner, options, false)) {}

private:
    mailbox_base* box_;
};

/// Owns an endpoint's state. Empty: its operations are of nothing, see `no_scheduler`.
class endpoint_owner {
public:
    endpoint_owner() noexcept = default;
    [[gnu::cold]] explicit endpoint_owner(endpoint_base* owned)
        : owned_(owned), link_(&owned->base()), owner_(&link_->mailbox().owner()) {}
    endpoint_owner(endpoint_owner&& other) noexcept : endpoint_owner() { swap(other); }
    endpoint_owner& operator=(endpoint_owner&& other) noexcept {
        endpoint_owner taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~endpoint_owner() { delete owned_; }

    [[nodiscard]] endpoint_base* get() const noexcept { return owned_; }
    [[nodiscard]] endpoint_base* release() noexcept {
        endpoint_base* const owned = std::exchange(owned_, nullptr);
        endpoint_owner().swap(*this);
        return owned;
    }
    /// For operations: known without a look at the state, which may not be there.
    [[nodiscard]] connection_base* link() const noexcept { return link_; }
    [[nodiscard]] scheduler* owner() const noexcept { return owner_; }

private:
    void swap(endpoint_owner& other) noexcept {
        std::swap(owned_, other.owned_);
        std::swap(link_, other.link_);
        std::swap(owner_, other.owner_);
    }

    endpoint_base* owned_ = nullptr;
    connection_base* link_ = nullptr;
    scheduler* owner_ = no_scheduler();
};

}  // namespace rdmacoro::detail
