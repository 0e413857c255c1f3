// The concepts of a transport: the posting interface that the protocol layer uses.
//
// Belongs here: links, domains, and all code for one network or one way between processes.
// Does not belong here: matching, protocols, tags, credits; the protocol layer builds these once, from the concepts
// here.
#pragma once

#include <rdmacoro/coro/awaitable.hpp>
#include <rdmacoro/coro/result.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/transport/detail/header_included.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rdmacoro {

/// Every message begins with this many bytes that the layer above owns; to a transport they are opaque. Together with a
/// four-byte frame word they leave 48 of a cache line's 64 bytes to the payload.
inline constexpr std::size_t message_header_bytes = 12;

/// Aligned so that the eight bytes at offset 4 sit at a multiple of eight once a four-byte frame word stands before it.
using message_header = std::array<std::byte, message_header_bytes>;

/// The capabilities of a transport, where they are fixed: `Transport::static_capabilities`. Where the device or the kernel decides,
/// `link.capabilities()` has the same at run time; a link never offers less than the fixed part.
struct capabilities {
    std::size_t inline_bytes =
        0;  ///< payload that travels in the cheapest form (a cache line, an inline work request)
    std::size_t max_message = 0;       ///< longest payload of one posted message, in bytes
    std::size_t eager_bytes = 0;       ///< payload up to which one message with data is better than several
    std::size_t segment_bytes = 0;     ///< best payload of one piece of a long message, at most `max_message`
    std::size_t get_alignment = 1;     ///< required of address and length of a get
    bool one_sided = false;            ///< has get and put
    bool one_sided_offloaded = false;  ///< get and put move without the peer's scheduler
    bool needs_registration = false;   ///< local memory of a get or put must be registered, too
    bool atomics = false;              ///< fetch-and-add, compare-and-swap
    bool put_before_send = false;      ///< a message posted after a put is delivered after the put's data
    bool revokes_at_once = false;      ///< a region's end cuts off accesses that are under way
    bool ends_on_refusal = false;      ///< a get or put that is refused ends its link
    bool byte_stream =
        false;  ///< a window of its own bounds what was posted and is not received yet, in bytes
    /// Payload from which a get or put without staging is better than pieces; `never_by_rendezvous`: none.
    std::size_t rendezvous_bytes = 0;
    std::size_t get_bytes = static_cast<std::size_t>(-1);  ///< payload up to which a get is better than a put
};

/// `capabilities::rendezvous_bytes` of a link that moves long messages faster in pieces than by gets and puts.
inline constexpr std::size_t never_by_rendezvous = static_cast<std::size_t>(-1);

/// Longest payload of `post_copied`: control messages.
inline constexpr std::size_t most_copied = 512;

/// The outcome of a post.
enum class post_result : std::uint8_t {
    done,    ///< over; the memory is the caller's again
    posted,  ///< under way: the memory is borrowed until the completion is called
    retry,  ///< no room now, nothing happened; the sink's `writable()` is called when trying again makes sense
    failed,  ///< the link is down; the sink has been or will be notified by `link_down`
};

/// Called once, on the scheduler's thread, when something `posted` is over. Lives in the operation that posted.
struct completion {
    /// Gets the completion and its outcome.
    using function = void (*)(completion& self, std::error_code outcome) noexcept;

    function done;          ///< set by the poster
    completion* next;       ///< the transport's, while posted
    void* transport_state;  ///< the transport's, while posted
};

/// A sink's answer to a message that was offered to it.
enum class delivery : std::uint8_t {
    taken,  ///< consumed, or taken over by the link's `keep()`
    defer,  ///< not now: offer it again at the next poll, and nothing behind it before
    pause,  ///< consumed, and a long copy was made: the rest may come with the next poll, for everything else to have its turn
};

/// The receiver of a link's messages and events. Semantic requirements:
///  1. All functions are called on the scheduler's thread from inside `link.poll()`, never from inside a post. From
///     inside any of them the sink may post to the link, and from inside all but `link_down` it may close it.
///  2. `deliver` gets a whole message. The payload is readable during the call; to read it longer call `link.keep()` from
///     inside. Bytes come from the peer: they are hostile until checked.
///  3. A link may announce a long message before its payload has come: `begin_payload(header, bytes)`. After `taken` it
///     asks `payload_space()` for memory to put the next bytes to, each time anew, and gives their number by
///     `payload_arrived(n)`, until `bytes` have; an empty span means that the remaining bytes are thrown away;
///     `payload_arrived` counts them as well. The memory is not touched between polls.
///  4. `writable` follows a `retry` when room has come. `link_down` is called once, with the reason, and is the last call.
template <class S>
concept message_sink = requires(S& sink, const message_header& header, std::span<const std::byte> payload,
                                std::size_t n, std::error_code reason) {
    { sink.deliver(header, payload) } noexcept -> std::same_as<delivery>;
    { sink.begin_payload(header, n) } noexcept -> std::same_as<delivery>;
    { sink.payload_space() } noexcept -> std::same_as<std::span<std::byte>>;
    { sink.payload_arrived(n) } noexcept;
    { sink.writable() } noexcept;
    { sink.link_down(reason) } noexcept;
};

namespace detail {
/// The sink that concepts are checked with.
struct sink_archetype {
    delivery deliver(const message_header&, std::span<const std::byte>) noexcept { return delivery::taken; }
    delivery begin_payload(const message_header&, std::size_t) noexcept { return delivery::taken; }
    std::span<std::byte> payload_space() noexcept { return {}; }
    void payload_arrived(std::size_t) noexcept {}
    void writable() noexcept {}
    void link_down(std::error_code) noexcept {}
};
static_assert(message_sink<sink_archetype>);
}  // namespace detail

/// A connected link that hands arriving messages to a `Sink`. Semantic requirements:
///  1. Messages arrive whole, once, in the order posted, or the link goes down.
///  2. `post(header, payload, c)`: `payload.size()` is at most `capabilities().max_message`. On `done` and `retry` nothing
///     refers to `payload` or `c` any more. On `posted` the pieces' memory and `c` stay until `c.done`; the array behind
///     a long gather list stays as long.
///     `post_copied(header, payload)` is the same for at most `most_copied` bytes of payload without a completion: they
///     are copied, and it never answers `posted`.
///  3. `revoke(c)` of something posted: at return neither peer nor device touches the caller's memory, and `c` is not
///     called. True: the peer still gets the whole message (its unsent part has been copied). False: there was no
///     memory to copy it to, and the link must be closed; for a get or put always false: its effect is then unknown.
///  4. `poll(budget)` hands up at most `budget` messages and answers how many moved; not to be called from a sink.
///  5. `keep()`, from inside `deliver` only: takes the payload over as a `lent_buffer`; empty when the transport can't
///     spare the memory, and the sink copies.
///  6. `close(reason)` ends the link at once: everything posted completes with `reason`, and the sink is notified by
///     `link_down` before `close` returns. Destroying a link closes it without notifying the sink.
///  7. Messages posted before an orderly `close` by this side may be lost; a protocol that must drain sends its goodbye
///     first.
template <class L>
concept message_link = requires(L& link, const message_header& header, const const_buffers& payload,
                                completion& c, unsigned budget, std::error_code reason) {
    { link.post(header, payload, c) } noexcept -> std::same_as<post_result>;
    { link.post_copied(header, payload) } noexcept -> std::same_as<post_result>;
    { link.revoke(c) } noexcept -> std::same_as<bool>;
    { link.poll(budget) } noexcept -> std::same_as<unsigned>;
    { link.keep() } noexcept -> std::same_as<lent_buffer>;
    { link.close(reason) } noexcept;
    { link.capabilities() } noexcept -> std::convertible_to<const capabilities&>;
    { link.owner() } noexcept -> std::same_as<scheduler&>;
    { link.peer_name() } -> std::convertible_to<std::string>;
};

/// A link with one-sided operations. Semantic requirements:
///  0. `expose(memory, rights)`: lets the peer reach the memory until the region ends, registered anew or taken from
///     the domain's registration cache; empty when that is not possible now. Where `capabilities().revokes_at_once` the
///     end of the region cuts the peer off; elsewhere only the peer's own message does.
///  1. `get(from, into, c)` and `put(from, to, c)` answer like `post`; lengths are equal (the caller checked), may be zero,
///     and are bounded by the address space only.
///  2. A wrong or revoked key, a range past the region's end or a missing right ends the operation with `errc::bad_key`,
///     `errc::out_of_bounds` or `errc::access_denied` and leaves the link usable. Where `capabilities().ends_on_refusal` it
///     ends the link, too; which of the three it was, or that it was one of them and not `errc::peer_lost`, is not always
///     known then, and of no bytes nothing is checked.
///  3. A completed put is visible to the peer's thread when it next polls. `revoke(c)` works on both.
template <class L>
concept one_sided_link =
    message_link<L> && requires(L& link, const remote_region& there, std::span<std::byte> into,
                                std::span<const std::byte> from, access_rights rights, completion& c) {
        { link.get(there, into, c) } noexcept -> std::same_as<post_result>;
        { link.put(from, there, c) } noexcept -> std::same_as<post_result>;
        { link.expose(into, rights) } noexcept -> std::same_as<region>;
    };

/// A link with `capabilities().revokes_at_once`, but for one access that the peer had begun: the end of a region of `expose` waits for
/// nothing. Semantic requirements:
///  1. `touches_closed_memory()`: whether the peer may be in the middle of such an access. No access begins once the region has ended.
///  2. When it is over, the sink's `writable()` is called. When it takes too long, the link ends.
template <class L>
concept late_access_link = one_sided_link<L> && requires(L& link) {
    { link.touches_closed_memory() } noexcept -> std::same_as<bool>;
};

/// A link that changes numbers in the peer's memory, each time undisturbed by others that do. Semantic requirements:
///  1. `fetch_add(there, value, was, c)` adds to the number at `there`; `compare_swap(there, expected, desired, was,
///     c)` sets it to `desired` if it is `expected`. Numbers have 8 bytes, aligned to 8, in the peer's byte order, in a
///     region with all rights. They answer like `get`; the number as it was before is in `was`, in this machine's byte
///     order, once `c` is called; `was` stays borrowed until then.
///  2. Undisturbed by other atomics through the network; nothing is promised when the peer's own processor changes the
///     number meanwhile.
///  3. An access to other than 8 aligned bytes ends with `errc::invalid_argument`, and everything with
///     `errc::unsupported` where `capabilities().atomics` is false. Refusals by the peer are as in `one_sided_link`,
///     and `revoke(c)` works.
template <class L>
concept atomic_link = one_sided_link<L> && requires(L& link, const remote_region& there, std::uint64_t value,
                                                    std::uint64_t& was, completion& c) {
    { link.fetch_add(there, value, was, c) } noexcept -> std::same_as<post_result>;
    { link.compare_swap(there, value, value, was, c) } noexcept -> std::same_as<post_result>;
};

/// Names one block that both ends copy together.
using shared_copy_id = std::uint32_t;
inline constexpr shared_copy_id no_shared_copy = 0xffffffff;  ///< no block

/// A link with two ends that can copy one block together: the receiving side from its front, by getting, the sending
/// side from its back, by putting, until they meet. Semantic requirements:
///  1. `open_shared_copy(bytes)`, at the sending side: a name for a block of that length, to be sent to the peer, or
///     `no_shared_copy` when all are taken. `close_shared_copy(id)` gives it back; by then the peer has sent that it is done.
///  2. `copy_from_front(id, bytes of the source there, into, c)`, at the receiving side, and `copy_from_back(id, from,
///     bytes of the destination there, c)`, at the sending side, answer like `get` and `put`. Each copies, in pieces,
///     the bytes that the other has not claimed, and goes on at each poll. The front's completes when all bytes are in
///     place, copied by either side; the back's when nothing is left to claim and the pieces it claimed are copied.
///  3. A peer that never copies delays nothing: the other side copies all. The words that a peer writes to shared
///     memory are checked; a violation ends the link with `errc::protocol_violation`. `revoke(c)` works on both, for
///     the whole of which then nothing is known.
template <class L>
concept shared_copy_link =
    one_sided_link<L> && requires(L& link, const remote_region& there, std::span<std::byte> into,
                                  std::span<const std::byte> from, shared_copy_id id, completion& c) {
        { link.open_shared_copy(from.size()) } noexcept -> std::same_as<shared_copy_id>;
        { link.close_shared_copy(id) } noexcept;
        { link.copy_from_front(id, there, into, c) } noexcept -> std::same_as<post_result>;
        { link.copy_from_back(id, from, there, c) } noexcept -> std::same_as<post_result>;
    };

/// A link that stages short messages in memory of its own, and can do without for memory registered before. Semantic
/// requirements:
///  1. `post_in_place(header, payload, c)` is `post`, but the payload is sent from where it lies, so it is `posted` until
///     the network has read it. `payload` lies in memory for which `prepare_in_place` has answered true since it was mapped.
///  2. `prepare_in_place(memory)`: registers it with the domain's registration cache, where that is needed; false when
///     that is not possible. The cache may drop the registration later: memory that was unmapped is not `in_place` any
///     more.
///  3. `in_place(memory)`: whether `post_in_place` may be used now.
template <class L>
concept in_place_link =
    message_link<L> && requires(L& link, const message_header& header, const const_buffers& payload,
                                std::span<const std::byte> memory, completion& c) {
        { link.post_in_place(header, payload, c) } noexcept -> std::same_as<post_result>;
        { link.prepare_in_place(memory) } noexcept -> std::same_as<bool>;
        { link.in_place(memory) } noexcept -> std::same_as<bool>;
    };

/// Names a message that a link has set aside for the layer above.
using claimed_message = std::uint64_t;

/// The outcome of a posted receive or a claim; the link sets the rest before it calls `done`, or answers `done`.
struct tagged_completion : completion {
    std::uint64_t tag;      ///< the message's tag
    std::size_t bytes;      ///< of the whole message, also where it was longer than the memory for it
    std::uint32_t note;     ///< the sender's, beside the tag
    claimed_message claim;  ///< of a claim: the message
};

/// Properties of a link that matches by itself.
struct matching_traits {
    unsigned tag_bits = 64;  ///< the lowest so many bits of a tag are carried and compared
    /// A post of so many bytes ends without a receive at the other side; of more it may wait for one.
    std::size_t buffered_bytes = 0;
    std::size_t longest = static_cast<std::size_t>(-1);  ///< payload of one message, in bytes
    std::size_t pieces = 1;                              ///< most pieces of memory for one message
};

/// A link that matches messages with receives by itself, beside those of `message_link`, which are not matched. The
/// link decides how a long message travels and where a short one waits for its receive. Semantic requirements:
///  1. `post_tagged(tag, note, payload, c)` answers like `post`; `note` is given to the receiver and not matched. A
///     message longer than `matching().buffered_bytes` may be under way until a receive at the other side matches it,
///     it is claimed and received, or discarded; `revoke` must not be called for it. A shorter one can be revoked as in
///     `message_link`.
///  2. `post_receive(tag, mask, into, c)`: matches the first message with a tag that agrees in the bits of `mask`,
///     among the messages that no earlier receive takes: messages and receives that fit match in the order sent and
///     posted. `mask` and `tag` have no bits beyond `tag_bits`. `done`: a message is in the memory already, and `c` has
///     its tag and length. A message that is longer than the memory fills it, the rest is thrown away, and that is no
///     error: `c.bytes` is its true length.
///  3. `claim(c)`: sets the next message with any tag aside that no posted receive takes, and names it. Messages are
///     claimed in the order sent, one claim at a time, for which there is room however many receives are posted. A
///     receive that is posted during a claim matches an undefined message: a caller that claims waits with further
///     receives. A scheduler that waits for a claim sleeps only where the message's coming wakes it.
///  4. `receive_claimed(message, into, c)` answers like `post_receive`, and `discard(message)` ends one unread; its
///     sender's post ends by either. Must not be called once the link is down: claimed messages are then discarded.
///  5. `withdraw(c)` of a posted receive or a claim. True: at return the memory is not touched any more and `c` is not
///     called. False: `c` is called, with `errc::canceled` when it was taken back, else with its outcome.
///  6. Between these messages and those of `post` no order is promised. `close` ends all of them as in `message_link`.
template <class L>
concept matching_link =
    message_link<L> && requires(L& link, const const_buffers& payload, const mutable_buffers& into,
                                std::uint64_t tag, std::uint64_t mask, std::uint32_t note,
                                claimed_message message, completion& sent, tagged_completion& c) {
        { link.post_tagged(tag, note, payload, sent) } noexcept -> std::same_as<post_result>;
        { link.post_receive(tag, mask, into, c) } noexcept -> std::same_as<post_result>;
        { link.claim(c) } noexcept -> std::same_as<post_result>;
        { link.receive_claimed(message, into, c) } noexcept -> std::same_as<post_result>;
        { link.discard(message) } noexcept;
        { link.withdraw(c) } noexcept -> std::same_as<bool>;
        { link.matching() } noexcept -> std::convertible_to<const matching_traits&>;
    };

/// The awaitable interface: a connected link for programs that want the bare network. `bare_link` is one over every
/// transport. Semantic requirements:
///  1. Messages are received in the order in which their sends began; nothing is matched. `recv` ends with the length.
///  2. `close` ends everything pending with `errc::closed` before it returns; `reason` is zero until the link is down.
template <class L>
concept awaitable_link =
    std::movable<L> && requires(L& link, const const_buffers& from, const mutable_buffers& into) {
        { link.send(from) } -> awaitable;
        { link.recv(into) } -> awaitable;
        { link.close() } noexcept;
        { link.reason() } noexcept -> std::same_as<std::error_code>;
        { link.capabilities() } noexcept -> std::convertible_to<const capabilities&>;
        requires std::same_as<await_result_t<decltype(link.send(from))>, void>;
        requires std::same_as<await_result_t<decltype(link.recv(into))>, std::size_t>;
    };

/// An opened device or name space of one transport, on one scheduler. Semantic requirements:
///  1. `connect` and `listen` fail with an `error`; its text names the address and the remedy.
///  2. A `connection` is connected and not yet a link; it is movable, and becomes a link by constructing
///     `Transport::link<Sink>(connection, sink)`. Messages that arrived meanwhile are not lost.
///  3. `accept()` never fails because of one bad client; a bad client is dropped.
///  4. Links, listeners, connections and regions must be destroyed before their domain.
template <class D, class T>
concept transport_domain = requires(D& domain, std::string_view address, typename T::listener& listener,
                                    std::span<std::byte> memory, access_rights rights) {
    { domain.connect(address) } -> std::same_as<task<typename T::connection>>;
    { domain.listen(address) } -> std::same_as<task<typename T::listener>>;
    { listener.accept() } -> std::same_as<task<typename T::connection>>;
    { listener.address() } -> std::convertible_to<std::string>;
    { domain.register_memory(memory, rights) } -> std::same_as<region>;
    { domain.owner() } noexcept -> std::same_as<scheduler&>;
};

/// A transport: a type that names its domain, connection, listener and link types and its fixed properties. Semantic
/// requirements:
///  1. `name` is the scheme of its addresses (`tcp` for `tcp://host:port`); `description` is one line for people.
///  2. `link<Sink>` models `message_link` for every `message_sink`, and `one_sided_link` when
///     `static_capabilities.one_sided`.
///  3. `domain` is constructible from `(scheduler&)` with good defaults, and is a progress source of that scheduler while
///     it lives.
template <class T>
concept transport =
    detail::header_included<T> &&
    requires {
        typename T::domain;
        typename T::connection;
        typename T::listener;
        { T::name } -> std::convertible_to<std::string_view>;
        { T::description } -> std::convertible_to<std::string_view>;
        { T::static_capabilities } -> std::convertible_to<const capabilities&>;
    } && transport_domain<typename T::domain, T> && std::movable<typename T::connection> &&
    std::movable<typename T::listener> && message_link<typename T::template link<detail::sink_archetype>> &&
    std::constructible_from<typename T::domain, scheduler&> &&
    std::constructible_from<typename T::template link<detail::sink_archetype>, typename T::connection,
                            detail::sink_archetype&>;

}  // namespace rdmacoro
