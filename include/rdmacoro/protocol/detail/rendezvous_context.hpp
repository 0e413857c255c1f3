// The functions of a connection and its link that engines for long messages use, for any types of transport and list.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/detail/piecewise_transfer.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>

namespace rdmacoro::detail {

/// The context of an engine that is compiled once for all transports. Calls are virtual: such engines are called a few
/// times in each long message. Functions that are not described here do the same as their namesakes in `connection`.
class rendezvous_context : public one_sided_access {
public:
    rendezvous_context(const rendezvous_context&) = delete;
    rendezvous_context& operator=(const rendezvous_context&) = delete;

    [[nodiscard]] connection_base& connection() noexcept { return connection_; }
    [[nodiscard]] const connection_base& connection() const noexcept { return connection_; }
    [[nodiscard]] metrics& counts() noexcept { return connection_.counts(); }
    [[nodiscard]] credit_account& credits() noexcept { return connection_.credits(); }
    [[nodiscard]] scheduler& owner() noexcept { return connection_.mailbox().owner(); }
    /// Why a get, put or post failed, where it answered that the link is down.
    [[nodiscard]] std::error_code why_failed() const noexcept { return connection_.why_failed(); }

    /// `kind` counts from the policy's first.
    virtual post_result post_copied(unsigned kind, std::uint8_t flags, tag_type tag,
                                    std::span<const std::byte> payload) noexcept = 0;
    /// Stores a message of the policy without its payload, which stays with the sender. nullptr: the link is down.
    virtual unexpected_message* store(tag_type tag, std::size_t bytes, std::uint32_t cost) noexcept = 0;
    virtual receive_request* match(tag_type tag) noexcept = 0;
    virtual void announce(unexpected_message& m) noexcept = 0;
    virtual bool pass(std::uint32_t cost) noexcept = 0;
    virtual region expose(std::span<std::byte> memory, access_rights rights) noexcept = 0;
    /// Whether the peer may be in the middle of an access to memory that was exposed and is closed. While it is, an operation that was
    /// canceled has not ended; `writable` comes when it no longer is.
    [[nodiscard]] virtual bool touches_closed_memory() noexcept = 0;
    [[nodiscard]] virtual const capabilities& link_capabilities() const noexcept = 0;
    virtual void under_way() noexcept = 0;
    virtual void settled() noexcept = 0;
    virtual void sent_at_once(send_request& r) noexcept = 0;
    virtual void finish_send(send_request& r, std::error_code outcome) noexcept = 0;
    virtual void room_for_sends() noexcept = 0;
    virtual void close(std::error_code why) noexcept = 0;
    /// The peer broke the protocol. Ends the link.
    delivery violation() noexcept;

    // Of links that are a `shared_copy_link`; others never have one to open.
    virtual shared_copy_id open_shared_copy(std::size_t bytes) noexcept = 0;
    virtual void close_shared_copy(shared_copy_id id) noexcept = 0;
    virtual post_result copy_from_front(shared_copy_id id, const remote_region& there,
                                        std::span<std::byte> into, completion& c) noexcept = 0;
    virtual post_result copy_from_back(shared_copy_id id, std::span<const std::byte> from,
                                       const remote_region& there, completion& c) noexcept = 0;

protected:
    explicit rendezvous_context(connection_base& connection) noexcept : connection_(connection) {}
    ~rendezvous_context() = default;

private:
    connection_base& connection_;
};

/// That of a connection, for the policy that its list has as `Listed`.
template <class Context, class Listed>
class rendezvous_context_of : public rendezvous_context {
public:
    explicit rendezvous_context_of(Context& context) noexcept : rendezvous_context(context) {}

    [[nodiscard]] Context& context() noexcept { return static_cast<Context&>(connection()); }
    [[nodiscard]] const Context& context() const noexcept {
        return static_cast<const Context&>(connection());
    }

    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept override {
        return context().link().get(there, into, c);
    }
    post_result put(std::span<const std::byte> from, const remote_region& there,
                    completion& c) noexcept override {
        return context().link().put(from, there, c);
    }
    void revoke(completion& c) noexcept override { static_cast<void>(context().link().revoke(c)); }

    post_result post_copied(unsigned kind, std::uint8_t flags, tag_type tag,
                            std::span<const std::byte> payload) noexcept override {
        return context().template post_copied<Listed>(kind, flags, tag, payload);
    }
    unexpected_message* store(tag_type tag, std::size_t bytes, std::uint32_t cost) noexcept override {
        return context().template keep<Listed>(tag, bytes, 0, cost);
    }
    receive_request* match(tag_type tag) noexcept override { return context().match(tag); }
    void announce(unexpected_message& m) noexcept override { context().announce(m); }
    bool pass(std::uint32_t cost) noexcept override { return context().pass(cost); }
    region expose(std::span<std::byte> memory, access_rights rights) noexcept override {
        return context().expose(memory, rights);
    }
    bool touches_closed_memory() noexcept override {
        if constexpr (late_access_link<typename Context::link_type>)
            return context().link().touches_closed_memory();
        return false;
    }
    [[nodiscard]] const capabilities& link_capabilities() const noexcept override {
        return context().link_capabilities();
    }
    void under_way() noexcept override { context().under_way(); }
    void settled() noexcept override { context().settled(); }
    void sent_at_once(send_request& r) noexcept override { context().sent_at_once(r); }
    void finish_send(send_request& r, std::error_code outcome) noexcept override {
        context().finish_send(r, outcome);
    }
    void room_for_sends() noexcept override { context().room_for_sends(); }
    void close(std::error_code why) noexcept override { context().close(why); }

    shared_copy_id open_shared_copy([[maybe_unused]] std::size_t bytes) noexcept override {
        if constexpr (shared_copies) return context().link().open_shared_copy(bytes);
        return no_shared_copy;
    }
    void close_shared_copy([[maybe_unused]] shared_copy_id id) noexcept override {
        if constexpr (shared_copies) context().link().close_shared_copy(id);
    }
    post_result copy_from_front([[maybe_unused]] shared_copy_id id,
                                [[maybe_unused]] const remote_region& there,
                                [[maybe_unused]] std::span<std::byte> into,
                                [[maybe_unused]] completion& c) noexcept override {
        if constexpr (shared_copies) return context().link().copy_from_front(id, there, into, c);
        return post_result::retry;
    }
    post_result copy_from_back([[maybe_unused]] shared_copy_id id,
                               [[maybe_unused]] std::span<const std::byte> from,
                               [[maybe_unused]] const remote_region& there,
                               [[maybe_unused]] completion& c) noexcept override {
        if constexpr (shared_copies) return context().link().copy_from_back(id, from, there, c);
        return post_result::retry;
    }

private:
    static constexpr bool shared_copies = shared_copy_link<typename Context::link_type>;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/rendezvous_context.ipp>
#endif
