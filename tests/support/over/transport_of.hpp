#pragma once

// Implements the abstract types of any_transport.hpp: endpoints, listeners, mailboxes and domains of one transport `T` and
// one list `P`. Included by the units of this folder only.

#include <rdmacoro/messaging/messaging.hpp>
#include <rdmacoro/service/calls.hpp>

#include "support/any_transport.hpp"
#include "support/over/lists.hpp"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro::test::erased {

template <class T, class P>
class peer_of final : public peer_face {
public:
    using link_type = typename endpoint<T, P>::connection_type::link_type;

    explicit peer_of(endpoint<T, P>&& made) noexcept : endpoint_(std::move(made)) {}

    any_operation<void> send(const const_buffers& from, tag_type tag, bool synchronous) override {
        return send_operation<typename endpoint<T, P>::connection_type>(endpoint_.connection(), from, tag,
                                                                        synchronous);
    }
    any_operation<received> recv(const mutable_buffers& into, tag_match wanted) override {
        return endpoint_.recv(into, wanted);
    }
    any_operation<message> recv_lent(tag_match wanted) override { return endpoint_.recv_lent(wanted); }
    any_operation<received> probe(tag_match wanted) override { return endpoint_.probe(wanted); }
    any_operation<void> get(const remote_region& there, std::span<std::byte> into) override {
        return endpoint_.rdma_get(there, into);
    }
    any_operation<void> put(std::span<const std::byte> from, const remote_region& there) override {
        return endpoint_.rdma_put(from, there);
    }
    any_operation<std::uint64_t> fetch_add(const remote_region& there, std::uint64_t value) override {
        if constexpr (atomic_link<link_type>) {
            return endpoint_.rdma_fetch_add(there, value);
        } else {
            throw std::logic_error("this transport has no atomics");
        }
    }
    any_operation<std::uint64_t> compare_swap(const remote_region& there, std::uint64_t expected,
                                              std::uint64_t desired) override {
        if constexpr (atomic_link<link_type>) {
            return endpoint_.rdma_compare_swap(there, expected, desired);
        } else {
            throw std::logic_error("this transport has no atomics");
        }
    }
    any_operation<void> close() override { return endpoint_.close(); }
    void abort() noexcept override { endpoint_.abort(); }
    bool is_open() noexcept override { return endpoint_.is_open(); }
    const capabilities& link_capabilities() noexcept override { return endpoint_.link_capabilities(); }
    rdmacoro::detail::connection_base& connection() noexcept override { return endpoint_.connection(); }
    std::size_t discard(tag_match wanted) override { return endpoint_.discard(wanted); }
    std::unique_ptr<any_calls> make_calls() override {
        if constexpr (std::is_same_v<P, default_protocols<T>>) {
            return std::make_unique<calls<T>>(endpoint_);
        } else {
            throw std::logic_error("calls with another list than the transport's own");
        }
    }
    std::vector<std::size_t> longest_of_each() override {
        std::vector<std::size_t> limits;
        for (std::size_t i = 0; i < P::count; ++i)
            limits.push_back(P::longest_of(i, endpoint_.link_capabilities()));
        return limits;
    }

    [[nodiscard]] endpoint<T, P>& concrete() noexcept { return endpoint_; }

private:
    endpoint<T, P> endpoint_;
};

template <class T, class P>
class listener_of final : public listener_face {
public:
    explicit listener_of(listener<T, P>&& made) : listener_(std::move(made)) {}
    task<peer> accept() override { return accept_from(listener_); }
    std::string address() const override { return listener_.address(); }
    std::uint64_t refused() const override { return listener_.refused(); }

private:
    static task<peer> accept_from(listener<T, P>& from) {
        endpoint<T, P> accepted = co_await from.accept();
        co_return peer(std::make_unique<peer_of<T, P>>(std::move(accepted)));
    }
    listener<T, P> listener_;
};

/// How ends with one list come to be.
template <class T>
struct list_face {
    task<any_listener> (*listen)(typename T::domain&, std::string, mailbox_options);
    task<peer> (*connect)(typename T::domain&, std::string, mailbox_options);
    list_facts (*facts)();
};

template <class T, class P>
task<any_listener> listen_with(typename T::domain& in, std::string address, mailbox_options options) {
    listener<T, P> made = co_await rdmacoro::listen<T, P>(in, address, options);
    co_return any_listener(std::make_unique<listener_of<T, P>>(std::move(made)));
}
template <class T, class P>
task<peer> connect_with(typename T::domain& in, std::string address, mailbox_options options) {
    endpoint<T, P> made = co_await rdmacoro::connect<T, P>(in, address, options);
    co_return peer(std::make_unique<peer_of<T, P>>(std::move(made)));
}
/// With a list that no listener has.
template <class T, class P>
task<peer> connect_in_vain(typename T::domain& in, std::string address, mailbox_options options) {
    static_cast<void>(co_await rdmacoro::connect<T, P>(in, address, options));
    throw std::logic_error("connected to a listener with another list");
}
template <class P>
list_facts facts_of_list() {
    return {P::text(), P::fingerprint};
}

/// One list over one transport. Each is compiled in a unit of its own, or of a few.
template <class T, class P>
list_face<T> list_over() {
    return {listen_with<T, P>, connect_with<T, P>, facts_of_list<P>};
}

template <class T>
class mailbox_of final : public any_mailbox {
    using P = default_protocols<T>;

public:
    explicit mailbox_of(scheduler& on) : mailbox_(on) {}
    peer_id attach(peer&& taken) override {
        endpoint<T, P> none;
        auto* of = static_cast<peer_of<T, P>*>(taken.face().get());
        const peer_id id = mailbox_.attach(std::move(of != nullptr ? of->concrete() : none));
        taken.face().reset();
        return id;
    }
    void remove(peer_id which) override { mailbox_.remove(which); }
    any_operation<void> send(peer_id to, const const_buffers& from, tag_type tag) override {
        return mailbox_.send(to, from, tag);
    }
    any_operation<void> ssend(peer_id to, const const_buffers& from, tag_type tag) override {
        return mailbox_.ssend(to, from, tag);
    }
    any_operation<received> recv(const mutable_buffers& into, tag_match wanted, peer_id source) override {
        return mailbox_.recv(into, wanted, source);
    }
    any_operation<message> recv_lent(tag_match wanted, peer_id source) override {
        return mailbox_.recv_lent(wanted, source);
    }
    any_operation<received> probe(tag_match wanted, peer_id source) override {
        return mailbox_.probe(wanted, source);
    }
    any_operation<void> rdma_get(peer_id of, const remote_region& there, std::span<std::byte> into) override {
        return mailbox_.rdma_get(of, there, into);
    }
    any_operation<void> rdma_put(peer_id to, std::span<const std::byte> from,
                                 const remote_region& there) override {
        return mailbox_.rdma_put(to, from, there);
    }
    any_operation<void> close(peer_id which) override { return mailbox_.close(which); }
    task<> close() override { return mailbox_.close(); }
    std::size_t size() const override { return mailbox_.size(); }
    bool is_open(peer_id which) const override { return mailbox_.is_open(which); }
    const metrics& counts(peer_id which) const override { return mailbox_.counts(which); }
    std::string peer_name(peer_id which) const override { return mailbox_.peer_name(which); }
    scheduler& owner() override { return mailbox_.owner(); }
    rdmacoro::detail::mailbox_base& base() override { return mailbox_.base(); }

private:
    mailbox<T, P> mailbox_;
};

template <class T>
class bare_connection_of final : public bare_connection {
public:
    explicit bare_connection_of(typename T::connection&& of) : made(std::move(of)) {}
    typename T::connection made;
};

template <class T>
class bare_end_of final : public bare_end {
public:
    explicit bare_end_of(typename T::connection&& made) : link_(std::move(made), sink_) {}
    post_result post_copied(const message_header& header, std::span<const std::byte> payload) override {
        return link_.post_copied(header, const_buffers(payload));
    }
    std::error_code reason() const override { return sink_.reason; }

private:
    struct sink {
        delivery deliver(const message_header&, std::span<const std::byte>) noexcept {
            return delivery::taken;
        }
        delivery begin_payload(const message_header&, std::size_t) noexcept { return delivery::taken; }
        std::span<std::byte> payload_space() noexcept { return {}; }
        void payload_arrived(std::size_t) noexcept {}
        void writable() noexcept {}
        void link_down(std::error_code why) noexcept { reason = why; }
        std::error_code reason{};
    };
    sink sink_;
    typename T::template link<sink> link_;
};

template <class T>
class bare_listener_of final : public bare_listener {
public:
    explicit bare_listener_of(typename T::listener&& made) : listener_(std::move(made)) {}
    task<std::unique_ptr<bare_connection>> accept() override { return accept_from(listener_); }
    std::string address() const override { return listener_.address(); }

private:
    static task<std::unique_ptr<bare_connection>> accept_from(typename T::listener& from) {
        typename T::connection made = co_await from.accept();
        co_return std::make_unique<bare_connection_of<T>>(std::move(made));
    }
    typename T::listener listener_;
};

/// Where a list over `T` is; the unit of the transport defines it.
template <class T>
list_face<T> list_of(list_name which);

template <class T>
class domain_of final : public any_domain {
public:
    explicit domain_of(std::unique_ptr<typename T::domain> made) : domain_(std::move(made)) {}

    region register_memory(std::span<std::byte> memory, access_rights rights) override {
        return domain_->register_memory(memory, rights);
    }
    std::size_t registered() override {
        if constexpr (requires { domain_->regions().registered(); }) {
            return domain_->regions().registered();
        } else {
            return domain_->registered();
        }
    }
    task<any_listener> listen(list_name list, std::string address, mailbox_options options) override {
        return list_of<T>(list).listen(*domain_, std::move(address), options);
    }
    task<peer> connect(list_name list, std::string address, mailbox_options options) override {
        return list_of<T>(list).connect(*domain_, std::move(address), options);
    }
    list_facts facts_of(list_name list) const override { return list_of<T>(list).facts(); }
    std::unique_ptr<any_mailbox> make_mailbox() override {
        return std::make_unique<mailbox_of<T>>(domain_->owner());
    }
    task<std::unique_ptr<bare_listener>> listen_bare(std::string address) override {
        return bare_listener_in(*domain_, std::move(address));
    }
    task<std::unique_ptr<bare_connection>> connect_bare(std::string address) override {
        return bare_connection_in(*domain_, std::move(address));
    }
    std::unique_ptr<bare_end> end_over(std::unique_ptr<bare_connection> made) override {
        return std::make_unique<bare_end_of<T>>(std::move(bare(*made)));
    }
    peer endpoint_over(std::unique_ptr<bare_connection> made) override {
        using P = default_protocols<T>;
        return peer(
            std::make_unique<peer_of<T, P>>(endpoint<T, P>(domain_->owner(), std::move(bare(*made)))));
    }

private:
    static typename T::connection& bare(bare_connection& made) {
        return static_cast<bare_connection_of<T>&>(made).made;
    }
    static task<std::unique_ptr<bare_listener>> bare_listener_in(typename T::domain& in, std::string where) {
        typename T::listener made = co_await in.listen(where);
        co_return std::make_unique<bare_listener_of<T>>(std::move(made));
    }
    static task<std::unique_ptr<bare_connection>> bare_connection_in(typename T::domain& in,
                                                                     std::string where) {
        typename T::connection made = co_await in.connect(where);
        co_return std::make_unique<bare_connection_of<T>>(std::move(made));
    }
    std::unique_ptr<typename T::domain> domain_;
};

/// The traits that follow from the types of a transport; the unit of the transport sets the others.
template <class Variant>
constexpr traits traits_of(std::string_view name) {
    using T = typename Variant::transport_type;
    traits found;
    found.name = name;
    found.crosses_threads = Variant::crosses_threads;
    if constexpr (requires { Variant::can_park; }) found.can_park = Variant::can_park;
    found.delegates_matching = default_protocols<T>::delegates;
    found.has_atomics = atomic_link<typename endpoint<T>::connection_type::link_type>;
    found.cuts_sends = found.cuts_receives = !found.delegates_matching;
    return found;
}

template <class Variant>
class variant_of final : public variant {
public:
    explicit constexpr variant_of(const traits& of) noexcept : traits_(of) {}
    const traits& is() const noexcept override { return traits_; }
    std::unique_ptr<any_domain> open(scheduler& on) const override {
        return std::make_unique<domain_of<typename Variant::transport_type>>(Variant::open(on));
    }
    std::string address() const override { return Variant::address(); }

private:
    traits traits_;
};

}  // namespace rdmacoro::test::erased
