#pragma once

// Transports and protocol lists behind abstract types, so that a conformance case is compiled once and runs over all of them.
// support/over/ has one unit for each transport, which compiles it with each list; a program says in a unit of its own over
// which transports it runs.

#include <rdmacoro/coro/scheduler.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/messaging/message.hpp>
#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include "support/any_operation.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rdmacoro {
class any_calls;
}

namespace rdmacoro::test {

/// The protocol lists that the suite runs with; over/lists.hpp has their types.
enum class list_name : std::uint8_t {
    standard,  ///< the transport's own
    eager_and_pieces,
    get,
    put,
    by_size,
    cooperative,
    reuse_aware,
    speculative_get,
    staged,
    staged_short,
    eager_and_put,
    speculative_put,
    eager_and_cooperative,
    // only to connect with, and be refused
    shorter_eager,
    pieces_only,
};

/// How ends of a connection recognize a list.
struct list_facts {
    std::string text;
    std::uint64_t fingerprint;
};

namespace erased {

class peer_face {
public:
    virtual ~peer_face() = default;
    virtual any_operation<void> send(const const_buffers& from, tag_type tag, bool synchronous) = 0;
    virtual any_operation<received> recv(const mutable_buffers& into, tag_match wanted) = 0;
    virtual any_operation<message> recv_lent(tag_match wanted) = 0;
    virtual any_operation<received> probe(tag_match wanted) = 0;
    virtual any_operation<void> get(const remote_region& there, std::span<std::byte> into) = 0;
    virtual any_operation<void> put(std::span<const std::byte> from, const remote_region& there) = 0;
    virtual any_operation<std::uint64_t> fetch_add(const remote_region& there, std::uint64_t value) = 0;
    virtual any_operation<std::uint64_t> compare_swap(const remote_region& there, std::uint64_t expected,
                                                      std::uint64_t desired) = 0;
    virtual any_operation<void> close() = 0;
    virtual void abort() noexcept = 0;
    [[nodiscard]] virtual bool is_open() noexcept = 0;
    [[nodiscard]] virtual const capabilities& link_capabilities() noexcept = 0;
    [[nodiscard]] virtual rdmacoro::detail::connection_base& connection() noexcept = 0;
    [[nodiscard]] virtual std::size_t discard(tag_match wanted) = 0;
    /// Calls over the endpoint, of the transport's own list only.
    [[nodiscard]] virtual std::unique_ptr<any_calls> make_calls() = 0;
    /// Up to which length each policy of the list carries messages, in bytes.
    [[nodiscard]] virtual std::vector<std::size_t> longest_of_each() = 0;
};

}  // namespace erased

/// An endpoint of any transport and list, with the functions of `endpoint`.
class peer {
public:
    peer() noexcept = default;
    explicit peer(std::unique_ptr<erased::peer_face> made) noexcept : face_(std::move(made)) {}

    [[nodiscard]] any_operation<void> send(const const_buffers& from, tag_type tag = 0) {
        return face_->send(from, tag, false);
    }
    [[nodiscard]] any_operation<void> ssend(const const_buffers& from, tag_type tag = 0) {
        return face_->send(from, tag, true);
    }
    [[nodiscard]] any_operation<received> recv(const mutable_buffers& into, tag_match wanted = any_tag) {
        return face_->recv(into, wanted);
    }
    [[nodiscard]] any_operation<message> recv_lent(tag_match wanted = any_tag) {
        return face_->recv_lent(wanted);
    }
    [[nodiscard]] any_operation<received> probe(tag_match wanted = any_tag) { return face_->probe(wanted); }
    [[nodiscard]] any_operation<void> rdma_get(const remote_region& there, std::span<std::byte> into) {
        return face_->get(there, into);
    }
    [[nodiscard]] any_operation<void> rdma_put(std::span<const std::byte> from, const remote_region& there) {
        return face_->put(from, there);
    }
    /// Only where `traits::has_atomics`.
    [[nodiscard]] any_operation<std::uint64_t> rdma_fetch_add(const remote_region& there,
                                                              std::uint64_t value) {
        return face_->fetch_add(there, value);
    }
    /// Only where `traits::has_atomics`.
    [[nodiscard]] any_operation<std::uint64_t>
    rdma_compare_swap(const remote_region& there, std::uint64_t expected, std::uint64_t desired) {
        return face_->compare_swap(there, expected, desired);
    }
    [[nodiscard]] any_operation<void> close() { return face_->close(); }
    void abort() noexcept { face_->abort(); }

    [[nodiscard]] explicit operator bool() const noexcept { return face_ != nullptr; }
    [[nodiscard]] bool is_open() const noexcept { return face_->is_open(); }
    [[nodiscard]] const capabilities& link_capabilities() const noexcept {
        return face_->link_capabilities();
    }
    [[nodiscard]] rdmacoro::detail::connection_base& connection() noexcept { return face_->connection(); }
    [[nodiscard]] const metrics& counts() const noexcept { return face_->connection().counts(); }
    std::size_t discard(tag_match wanted) { return face_->discard(wanted); }
    /// Defined in support/calls_pair.hpp, which knows what calls are.
    [[nodiscard]] std::unique_ptr<any_calls> make_calls();
    [[nodiscard]] std::vector<std::size_t> longest_of_each() { return face_->longest_of_each(); }

    /// For mailboxes, which take over its endpoint.
    [[nodiscard]] std::unique_ptr<erased::peer_face>& face() noexcept { return face_; }

private:
    std::unique_ptr<erased::peer_face> face_;
};

/// A mailbox of any transport, with its standard list and the functions of `mailbox`.
class any_mailbox {
public:
    virtual ~any_mailbox() = default;
    virtual peer_id attach(peer&& taken) = 0;
    virtual void remove(peer_id) = 0;
    [[nodiscard]] virtual any_operation<void> send(peer_id to, const const_buffers& from,
                                                   tag_type tag = 0) = 0;
    [[nodiscard]] virtual any_operation<void> ssend(peer_id to, const const_buffers& from,
                                                    tag_type tag = 0) = 0;
    [[nodiscard]] virtual any_operation<received>
    recv(const mutable_buffers& into, tag_match wanted = any_tag, peer_id source = any_source) = 0;
    [[nodiscard]] virtual any_operation<message> recv_lent(tag_match wanted = any_tag,
                                                           peer_id source = any_source) = 0;
    [[nodiscard]] virtual any_operation<received> probe(tag_match wanted = any_tag,
                                                        peer_id source = any_source) = 0;
    [[nodiscard]] virtual any_operation<void> rdma_get(peer_id of, const remote_region& there,
                                                       std::span<std::byte> into) = 0;
    [[nodiscard]] virtual any_operation<void> rdma_put(peer_id to, std::span<const std::byte> from,
                                                       const remote_region& there) = 0;
    [[nodiscard]] virtual any_operation<void> close(peer_id) = 0;
    [[nodiscard]] virtual task<> close() = 0;
    [[nodiscard]] virtual std::size_t size() const = 0;
    [[nodiscard]] virtual bool is_open(peer_id) const = 0;
    [[nodiscard]] virtual const metrics& counts(peer_id) const = 0;
    [[nodiscard]] virtual std::string peer_name(peer_id) const = 0;
    [[nodiscard]] virtual scheduler& owner() = 0;
    [[nodiscard]] virtual rdmacoro::detail::mailbox_base& base() = 0;
};

namespace erased {
class listener_face {
public:
    virtual ~listener_face() = default;
    [[nodiscard]] virtual task<peer> accept() = 0;
    [[nodiscard]] virtual std::string address() const = 0;
    [[nodiscard]] virtual std::uint64_t refused() const = 0;
};
}  // namespace erased

/// A listener of any transport and list, with the functions of `listener`.
class any_listener {
public:
    explicit any_listener(std::unique_ptr<erased::listener_face> made) noexcept : face_(std::move(made)) {}
    [[nodiscard]] task<peer> accept() { return face_->accept(); }
    [[nodiscard]] std::string address() const { return face_->address(); }
    [[nodiscard]] std::uint64_t refused() const { return face_->refused(); }

private:
    std::unique_ptr<erased::listener_face> face_;
};

/// A connection of the bare transport, with nothing on it yet.
class bare_connection {
public:
    virtual ~bare_connection() = default;
};

/// The bare end of a connection: sends messages without a protocol and drops those that arrive.
class bare_end {
public:
    virtual ~bare_end() = default;
    [[nodiscard]] virtual post_result post_copied(const message_header& header,
                                                  std::span<const std::byte> payload) = 0;
    /// Why the link is down; zero while it is not.
    [[nodiscard]] virtual std::error_code reason() const = 0;
};

/// A listener of the bare transport.
class bare_listener {
public:
    virtual ~bare_listener() = default;
    [[nodiscard]] virtual task<std::unique_ptr<bare_connection>> accept() = 0;
    [[nodiscard]] virtual std::string address() const = 0;
};

/// A domain of any transport.
class any_domain {
public:
    virtual ~any_domain() = default;
    [[nodiscard]] virtual region register_memory(std::span<std::byte> memory, access_rights rights) = 0;
    /// Regions that peers of this domain can reach now.
    [[nodiscard]] virtual std::size_t registered() = 0;

    [[nodiscard]] task<any_listener> listen(std::string address, const mailbox_options& options = {}) {
        return listen(list_name::standard, std::move(address), options);
    }
    [[nodiscard]] task<peer> connect(std::string address, const mailbox_options& options = {}) {
        return connect(list_name::standard, std::move(address), options);
    }
    [[nodiscard]] virtual task<any_listener> listen(list_name list, std::string address,
                                                    mailbox_options options = {}) = 0;
    [[nodiscard]] virtual task<peer> connect(list_name list, std::string address,
                                             mailbox_options options = {}) = 0;
    [[nodiscard]] virtual list_facts facts_of(list_name list) const = 0;
    [[nodiscard]] virtual std::unique_ptr<any_mailbox> make_mailbox() = 0;

    // ---- without the handshake

    [[nodiscard]] virtual task<std::unique_ptr<bare_listener>> listen_bare(std::string address) = 0;
    [[nodiscard]] virtual task<std::unique_ptr<bare_connection>> connect_bare(std::string address) = 0;
    [[nodiscard]] virtual std::unique_ptr<bare_end> end_over(std::unique_ptr<bare_connection> made) = 0;
    /// An endpoint that does not wait for its peer's hello.
    [[nodiscard]] virtual peer endpoint_over(std::unique_ptr<bare_connection> made) = 0;
};

/// Which long messages of the policies take several turns of the scheduler, so that some stop meets them in the middle.
enum class in_turns : std::uint8_t {
    unknown,       ///< a device decides
    all_but_gets,  ///< a get may be over as soon as it is posted
    all,
};

/// Properties of a transport, as it is opened, that cases depend on. A capability that it lacks is stated here, and asserted by
/// a case.
struct traits {
    std::string_view name;
    /// Whether its two ends may be on two schedulers, each with its thread.
    bool crosses_threads = false;
    /// Whether it runs `every_real_transport`: cases that take long, or need its ends in two threads.
    bool real = false;
    /// Whether it runs `every_kind`: one way to open each transport.
    bool kind = false;
    /// Whether it runs `every_counted_transport`: cases that count allocations, of which a stand-in has its own.
    bool counted = false;
    /// Whether a scheduler with it can sleep until something comes.
    bool can_park = true;
    /// Whether its standard list leaves matching to the link: then a message that is matched is received to its end, and only
    /// the transport knows of unexpected messages.
    bool delegates_matching = false;
    in_turns moves = in_turns::unknown;
    /// Whether it has the functions for atomics; the link's capabilities tell whether they answer `errc::unsupported`.
    bool has_atomics = false;
    /// Whether a stop can meet a message of the standard list half sent, or half received.
    bool cuts_sends = true;
    bool cuts_receives = true;
    /// Whether a long message of the standard list fills a receive's memory in several turns, so that its peer's end can leave it
    /// half filled.
    bool fills_in_turns = true;
    /// Whether `cuts_receives` and `fills_in_turns` depend on a device's timing: then what they state happens on some transport of the
    /// program (`seldom`), and need not happen on each.
    bool timing_decides = false;
    /// Whether a link that ends lets the device finish what it has begun: a get, put or message may end well all the same.
    bool lingers = false;
    /// `capabilities::put_before_send` of its links.
    bool puts_before_sends = false;
    /// Whether its domain answers gets and puts of links that no endpoint has been made of yet.
    bool serves_bare_links = false;
    /// Whether unexpected messages lie in buffers that a network library sizes.
    bool stored_by_library = false;
    /// The bits of a tag that its standard list carries: fewer than 64 only where the link matches by itself.
    unsigned tag_bits = 64;
    /// How much slower emulated devices are: tests that repeat something do a share of it there.
    int slowness = 1;
    /// Links of one domain that may be open at a time: a case that opens many opens at most so many.
    std::size_t most_links = 1000;
};

/// A transport, and a way to open it.
class variant {
public:
    constexpr variant() noexcept = default;
    variant(const variant&) = delete;
    variant& operator=(const variant&) = delete;

    [[nodiscard]] virtual const traits& is() const noexcept = 0;
    [[nodiscard]] virtual std::unique_ptr<any_domain> open(scheduler& on) const = 0;
    /// Where a listener can be.
    [[nodiscard]] virtual std::string address() const = 0;

protected:
    ~variant() = default;
};
using variants = std::span<const variant* const>;

// Defined in support/over/, each in the unit of its transport.
extern const variants over_shm;
extern const variants over_tcp;
extern const variants over_sim;
extern const variants over_loopback;
extern const variants over_matching_loopback;
extern const variants over_verbs;
extern const variants over_ofi;

/// The transports of this program, defined by its unit of support/over/. Ready before any other object is made.
extern const std::span<const variants* const> program_variants;
/// Whether it leaves out those that are not `traits::kind`, in all its cases.
extern const bool program_of_kinds;

}  // namespace rdmacoro::test
