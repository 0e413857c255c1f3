// Operations as matching and policies see them, and messages that came before their receive.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/coro/operation.hpp>
#include <rdmacoro/memory/buffers.hpp>
#include <rdmacoro/memory/lent_buffer.hpp>
#include <rdmacoro/protocol/wire.hpp>
#include <rdmacoro/transport/concepts.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

namespace rdmacoro {

/// Names a peer within one mailbox.
using peer_id = std::uint32_t;
inline constexpr peer_id any_source = 0xffffffff;  ///< receives from any peer of a mailbox

/// The tags that a receive or probe takes: all that agree with `tag` in the bits of `mask`.
struct tag_match {
    tag_type tag = 0;              ///< the bits that are compared
    tag_type mask = ~tag_type{0};  ///< which bits are compared

    /// One tag.
    constexpr tag_match(tag_type exact) noexcept : tag(exact) {}
    /// Every tag that has `bits` where `which` has ones.
    constexpr tag_match(tag_type bits, tag_type which) noexcept : tag(bits & which), mask(which) {}

    /// Whether it takes a message with that tag.
    [[nodiscard]] constexpr bool accepts(tag_type other) const noexcept { return (other & mask) == tag; }
    /// Whether it takes one tag only.
    [[nodiscard]] constexpr bool exact() const noexcept { return mask == ~tag_type{0}; }
};
inline constexpr tag_match any_tag{0, 0};  ///< takes every tag

/// A message's facts: the value of a receive and of a probe.
struct received {
    std::size_t bytes;  ///< length of the message
    tag_type tag;       ///< its tag
    peer_id source;     ///< the peer that sent it; 0 at an endpoint
};

namespace detail {

class connection_base;
class message_store;
struct unexpected_message;

/// The name of an operation's peer, noted when the operation fails: the connection may be gone when its error is looked at.
struct noted_peer {
    char text[60];       // empty: not known; cut off where it is too long
    std::uint32_t peer;  // its number within the mailbox

    void forget() noexcept {
        text[0] = '\0';
        peer = error_facts::no_peer;
    }
    void note(std::string_view name) noexcept;
    void note(const connection_base* of) noexcept;
};

/// Throws the error of a get, put or atomic that failed: `what` is "rdma_get of " or such.
[[noreturn, gnu::cold]] void throw_one_sided(std::error_code why, const char* what, const noted_peer& with,
                                             const error_facts& about);

/// Where a lent receive has its message: what is short is copied here, other messages are lent by the transport or the store.
class loan {
public:
    /// Longest message that is copied, in bytes: less than what is done to lend one.
    static constexpr std::size_t longest_here = 64;

    loan() noexcept {}  // NOLINT: what is here has no value yet
    explicit loan(lent_buffer memory) noexcept : memory_(std::move(memory)) {}
    loan(loan&& other) noexcept : memory_(std::move(other.memory_)), bytes_(other.bytes_) {
        if (bytes_ != 0) std::memcpy(here_, other.here_, sizeof here_);
        other.bytes_ = 0;
    }
    loan& operator=(loan&& other) noexcept {
        if (this == &other) return *this;
        memory_ = std::move(other.memory_);
        bytes_ = std::exchange(other.bytes_, 0);
        if (bytes_ != 0) std::memcpy(here_, other.here_, sizeof here_);
        return *this;
    }
    ~loan() = default;

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
        return bytes_ != 0 ? std::span<const std::byte>(here_, bytes_) : memory_.bytes();
    }
    /// For a message of so many bytes, `longest_here` at most: where to write it.
    [[nodiscard]] std::span<std::byte> place(std::size_t bytes) noexcept {
        bytes_ = bytes;
        return {here_, bytes};
    }
    /// Takes over what was lent. False: nothing was.
    bool lend(lent_buffer memory) noexcept {
        memory_ = std::move(memory);
        return static_cast<bool>(memory_);
    }
    void release() noexcept {
        memory_.reset();
        bytes_ = 0;
    }

private:
    lent_buffer memory_;
    std::size_t bytes_ = 0;  // of a message that is here; 0: none is, or an empty one
    alignas(16) std::byte here_[longest_here];
};

/// Takes the bytes of a message where they arrive, instead of having them copied into the receive's memory. `take` is called for bytes that lie in
/// memory of the link. Bytes that a device or the kernel writes to the receive's memory are read there when the receive has ended.
class arrival_consumer {
public:
    /// Bytes of the message from `at` on. All before them were taken, or are in the receive's memory.
    virtual void take(std::size_t at, std::span<const std::byte> bytes) noexcept = 0;

protected:
    ~arrival_consumer() = default;
};

/// A receive, posted or being filled.
class receive_request : public operation_base, public list_node<receive_request> {
public:
    [[nodiscard]] bool wants(peer_id from, tag_type tag) const noexcept {
        return wanted_.accepts(tag) && (source_ == from || source_ == any_source);
    }

    /// The receive has ended.
    void finish(status code, std::uint64_t info = 0) noexcept {
        code_ = code;
        info_ = info;
        if (code) [[unlikely]]
            noted_.note(filling_);
        filling_ = nullptr;
        complete();
    }
    /// The receive ends before it begins.
    void fail_unbegun(errc code) noexcept {
        code_ = code;
        info_ = 0;
        noted_.forget();
    }
    [[nodiscard]] error_facts facts() const noexcept;
    [[noreturn]] void throw_failure() const;
    /// Its bytes do not simply go to `into_`: it is lent, or consumes them.
    [[nodiscard]] bool is_special() const noexcept { return special_ != nullptr; }
    [[nodiscard]] bool is_lent() const noexcept { return special_ != nullptr && !consumes_; }
    /// Of a lent receive: the place for the message.
    [[nodiscard]] loan& lent() const noexcept { return *static_cast<loan*>(special_); }
    /// Of a receive that consumes its bytes; else nullptr. It has `into_` all the same, as long as the message may be.
    [[nodiscard]] arrival_consumer* consumer() const noexcept {
        return consumes_ ? static_cast<arrival_consumer*>(special_) : nullptr;
    }
    void note_wait() noexcept { since_ = owner_->coarse_now().time_since_epoch().count(); }

    /// Where a receive is that the link matches, or fills from a message that was claimed.
    enum class stage : std::uint8_t { posted, filling, waiting, answering };
    struct posted_completion : tagged_completion {
        receive_request* self;
        stage place;
    };

    tag_match wanted_;
    peer_id source_;
    static constexpr std::uint16_t not_announced = 0xffff;
    static constexpr std::uint16_t watched = 0xfffe;
    std::uint16_t announcement_ =
        not_announced;           ///< the number its buffer was announced by; `watched`: it might have been
    bool canceling_ = false;     ///< asked to end, and posted until its buffer is taken back
    bool discards_ : 1 = false;  ///< if it is canceled, its message is dropped when it comes
    bool discards_always_ : 1 = false;     ///< however many such there are: the peer limits them
    bool consumes_ : 1 = false;            ///< `special_` is an `arrival_consumer`, and no `loan`
    std::uint64_t sequence_;               ///< its place among all receives of the mailbox; the matcher's
    void* special_;                        ///< nullptr: it is received `into_` memory
    connection_base* filling_ = nullptr;   ///< the connection that fills it; nullptr while it is only posted
    unexpected_message* block_ = nullptr;  ///< block in which a lent message is gathered
    mutable_buffers into_;
    duration::rep since_;  ///< when its coroutine was suspended for it; set where it has a `waiter`
    received got_;         ///< set when it has ended well, or is truncated
    status code_{};
    std::uint64_t info_;        ///< set when it has ended
    noted_peer noted_;          ///< set when it has failed
    posted_completion posted_;  ///< set by lists that leave matching to the link

protected:
    // Buffers are made in place from the caller's argument: a copy would be read before it is fully written.
    template <class Buffers>
    receive_request(scheduler* owner, tag_match wanted, peer_id source, Buffers&& into, loan* place) noexcept
        : operation_base(owner),
          wanted_(wanted),
          source_(source),
          special_(place),
          into_(static_cast<Buffers&&>(into)) {}
    receive_request(receive_request&& other, loan* place) noexcept
        : operation_base(std::move(other)),
          wanted_(other.wanted_),
          source_(other.source_),
          discards_(other.discards_),
          discards_always_(other.discards_always_),
          special_(place),
          into_(other.into_) {}

    /// Before it begins.
    void consume_by(arrival_consumer& consumer) noexcept {
        special_ = &consumer;
        consumes_ = true;
    }
};

/// A probe that waits.
class probe_request : public operation_base, public list_node<probe_request> {
public:
    void finish(status code) noexcept {
        code_ = code;
        complete();
    }
    [[nodiscard]] error_facts facts() const noexcept;
    [[noreturn]] void throw_failure() const;
    void note_wait() noexcept { since_ = owner_->coarse_now().time_since_epoch().count(); }

    tag_match wanted_;
    peer_id source_;
    duration::rep since_ = 0;  ///< as of a receive
    received got_{};
    status code_{};

protected:
    probe_request(scheduler* owner, tag_match wanted, peer_id source) noexcept
        : operation_base(owner), wanted_(wanted), source_(source) {}
    probe_request(probe_request&& other) noexcept
        : operation_base(std::move(other)), wanted_(other.wanted_), source_(other.source_) {}
};

/// A send, waiting for its turn or under way.
class send_request : public operation_base, public list_node<send_request> {
public:
    struct posted_completion : completion {
        send_request* self;
    };

    void finish(status code) noexcept {
        code_ = code;
        if (code) [[unlikely]] {
            unbegun_ = false;
            noted_.note(via_);
        }
        complete();
    }
    /// Canceled while it waits for credit or room: the peer gets nothing of it.
    void finish_canceled_in_queue() noexcept {
        code_ = errc::canceled;
        unbegun_ = true;
        noted_.note(via_);
        complete();
    }
    /// The send ends before it begins.
    void fail_unbegun(errc code) noexcept {
        code_ = code;
        unbegun_ = true;
        noted_.forget();
    }
    [[nodiscard]] error_facts facts() const noexcept;
    [[noreturn]] void throw_failure() const;

    connection_base* via_ = nullptr;
    const_buffers from_;
    tag_type tag_;
    bool synchronous_;
    bool in_flight_ = false;      ///< `posted_` is with the transport
    bool answered_ = false;       ///< the receiver has a place for it
    std::uint8_t policy_ = 0;     ///< index in the protocol list
    bool unbegun_;                ///< set when it has failed: the peer gets nothing of it
    duration::rep since_;         ///< when it began to wait or was given to a policy for long messages
    std::uint32_t stream_;        ///< the policy's name for it; from here on the policy's to set
    std::size_t sent_;            ///< bytes that the transport is done with
    std::size_t posted_bytes_;    ///< bytes that are in flight
    unexpected_message* staged_;  ///< a copy in one piece, for a link that takes no more
    posted_completion posted_;
    noted_peer noted_;  ///< set when it has failed
    status code_{};

protected:
    template <class Buffers>
    send_request(scheduler* owner, Buffers&& from, tag_type tag, bool synchronous) noexcept
        : operation_base(owner), from_(static_cast<Buffers&&>(from)), tag_(tag), synchronous_(synchronous) {}
    send_request(send_request&& other) noexcept
        : operation_base(std::move(other)),
          from_(other.from_),
          tag_(other.tag_),
          synchronous_(other.synchronous_) {}
};

struct of_source;
struct of_all;
template <class Which>
struct kept_by_arrival;
template <class Which>
struct kept_by_tag;

/// A stored message's places: among the messages of its source, or among all of the mailbox.
template <class Which>
struct kept_in : list_node<kept_by_arrival<Which>>, list_node<kept_by_tag<Which>> {};

/// A message, or the beginning of one, that came before its receive. Lies in a block of the message store; the payload
/// follows it there.
struct alignas(16) unexpected_message : kept_in<of_source>, kept_in<of_all> {
    connection_base* from = nullptr;  ///< its credit goes back to this; nullptr when that no longer exists
    message_store* home = nullptr;
    peer_id source = 0;
    std::uint32_t cost = 0;  ///< to give back to the peer
    tag_type tag = 0;
    std::size_t bytes = 0;   ///< of the whole message
    std::size_t stored = 0;  ///< bytes of them that are stored here
    std::size_t block_bytes = 0;
    std::uint64_t number = 0;  ///< its place in the order of arrival; the matcher's
    std::uint32_t stream = 0;  ///< the policy's number of a message that is still arriving or needs an answer
    std::uint8_t policy = 0;   ///< index in the protocol list
    bool complete = true;      ///< all bytes have arrived and no answer is due; or `lost`
    bool lost = false;         ///< the link ended before the rest came

    [[nodiscard]] std::byte* payload() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

}  // namespace detail
}  // namespace rdmacoro
