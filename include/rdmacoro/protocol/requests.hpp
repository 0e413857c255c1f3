// What matching and policies know of the operations a user awaits, and of messages that nobody awaits yet.
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

namespace rdmacoro {

/// Names a peer within one mailbox.
using peer_id = std::uint32_t;
inline constexpr peer_id any_source = 0xffffffff;

/// Which tags a receive or probe takes: those that agree with `tag` in the bits of `mask`.
struct tag_match {
    tag_type tag = 0;
    tag_type mask = ~tag_type{0};

    constexpr tag_match(tag_type exact) noexcept : tag(exact) {}
    constexpr tag_match(tag_type bits, tag_type which) noexcept : tag(bits & which), mask(which) {}

    [[nodiscard]] constexpr bool accepts(tag_type other) const noexcept { return (other & mask) == tag; }
    [[nodiscard]] constexpr bool exact() const noexcept { return mask == ~tag_type{0}; }
};
inline constexpr tag_match any_tag{0, 0};

/// What is known of a message: what a receive ends with, and what a probe answers.
struct received {
    std::size_t bytes;
    tag_type tag;
    peer_id source;
};

namespace detail {

class connection_base;
class message_store;
struct unexpected_message;

/// A receive, posted or being filled.
class receive_request : public operation_base, public list_node<receive_request> {
public:
    [[nodiscard]] bool wants(peer_id from, tag_type tag) const noexcept {
        return wanted_.accepts(tag) && (source_ == any_source || source_ == from);
    }

    /// The receive has ended.
    void finish(status code, std::uint64_t info = 0) noexcept {
        code_ = code;
        info_ = info;
        filling_ = nullptr;
        complete();
    }
    [[nodiscard]] bool is_lent() const noexcept { return loan_ != nullptr; }

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
        not_announced;        ///< the number its buffer was announced by; `watched`: it might have been
    bool canceling_ = false;  ///< asked to end, and posted until its buffer is taken back
    lent_buffer* loan_;       ///< where to put a message that is to be lent; nullptr: it goes `into_` memory
    connection_base* filling_ = nullptr;   ///< who is putting bytes into it; nullptr while it is only posted
    unexpected_message* block_ = nullptr;  ///< what a lent message is being gathered in
    mutable_buffers into_;
    std::uint64_t sequence_;  ///< its place among all receives of the mailbox; the matcher's
    received got_;            ///< set when it has ended well
    status code_{};
    std::uint64_t info_;        ///< set when it has ended
    posted_completion posted_;  ///< of lists that leave matching to the link; theirs to set

protected:
    // Buffers are made in place from what the caller has: a copy would be read before it is fully written.
    template <class Buffers>
    receive_request(scheduler* owner, tag_match wanted, peer_id source, Buffers&& into,
                    lent_buffer* loan) noexcept
        : operation_base(owner),
          wanted_(wanted),
          source_(source),
          loan_(loan),
          into_(static_cast<Buffers&&>(into)) {}
    receive_request(receive_request&& other, lent_buffer* loan) noexcept
        : operation_base(std::move(other)),
          wanted_(other.wanted_),
          source_(other.source_),
          loan_(loan),
          into_(other.into_) {}
};

/// A probe that waits.
class probe_request : public operation_base, public list_node<probe_request> {
public:
    void finish(status code) noexcept {
        code_ = code;
        complete();
    }

    tag_match wanted_;
    peer_id source_;
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
        complete();
    }

    connection_base* via_ = nullptr;
    const_buffers from_;
    tag_type tag_;
    bool synchronous_;
    bool in_flight_ = false;      ///< `posted_` is with the transport
    bool answered_ = false;       ///< the receiver said that it has a place for it
    std::uint8_t policy_ = 0;     ///< index in the protocol list
    std::uint32_t stream_;        ///< the policy's name for it; from here on the policy's to set
    std::size_t sent_;            ///< bytes that the transport is done with
    std::size_t posted_bytes_;    ///< bytes that are in flight
    unexpected_message* staged_;  ///< a copy in one piece, for a link that takes no more
    posted_completion posted_;
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

struct by_key;
struct by_tag;
struct by_arrival;

/// A message, or the beginning of one, that came before its receive. Lies in a block of the message store; the payload
/// follows it there.
struct unexpected_message : list_node<by_key>, list_node<by_tag>, list_node<by_arrival> {
    connection_base* from = nullptr;  ///< who gets its credit back; nullptr when that is gone
    message_store* home = nullptr;
    peer_id source = 0;
    std::uint32_t cost = 0;  ///< to give back to the peer
    tag_type tag = 0;
    std::size_t bytes = 0;   ///< of the whole message
    std::size_t stored = 0;  ///< of those, how many are here
    std::size_t block_bytes = 0;
    std::uint32_t stream = 0;  ///< the policy's name for a message that is still coming or wants an answer
    std::uint8_t policy = 0;   ///< index in the protocol list
    bool complete = true;      ///< nothing more comes and nobody wants an answer

    [[nodiscard]] std::byte* payload() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
};

}  // namespace detail
}  // namespace rdmacoro
