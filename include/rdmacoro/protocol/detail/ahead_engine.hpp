// Messages sent ahead of their turn: how a posted receive gets its message while the sends before it wait for credit.
//
//   sender                                   receiver
//     | -- starved ------------------------> |   its sends wait: there are messages that have not come
//     | <- want (up to 16 tag and mask) ---- |   receives that wait, oldest first
//     | -- none, or offer (which, tag, len)  |   the first of them for which a queued send has a message, and the first such send
//     | <- accept, or decline -------------- |   declined: the receive has ended meanwhile, or an older one wants the message
//     | -- piece -- piece -- ... ----------> |   straight to the receive; the other sends keep their places
//
// One question at a time each way. Nothing is stored at the receiver, and the message is the one that would have met
// this receive had all messages come in order: no older receive takes it, and this receive takes no older message.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/protocol/policy.hpp>
#include <rdmacoro/protocol/requests.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <system_error>
#include <utility>

namespace rdmacoro::detail {

class connection_base;
class connection_description;

/// The meaning of a message of kind `control_kind::ahead`, in its flags.
enum class ahead_word : std::uint8_t { want, none, offer, accept, decline, piece, withdrawn };

/// Both sides of one link. While the peer is known to be starved it is in its mailbox's list of such links.
class ahead_engine : public list_node<ahead_engine> {
public:
    /// Receives that are asked for at a time.
    static constexpr std::uint32_t most_wants = 16;
    /// The policy of a send that goes ahead of its turn, as `send_request::policy_` has it.
    static constexpr std::uint8_t policy = 0xff;

    explicit ahead_engine(connection_base& context) noexcept : context_(context) {}
    ahead_engine(const ahead_engine&) = delete;
    ahead_engine& operator=(const ahead_engine&) = delete;

    // ---- receiving

    /// The peer has sends that wait, and did not have them, or not all of them, when it last answered.
    void peer_starved() noexcept;
    /// Credit went to the peer: it says `starved` again if that is not enough.
    void peer_fed() noexcept {
        if (in_ == in_state::idle) unlink_if_linked();
    }
    /// A receive was posted, and the peer is starved.
    void receive_posted() noexcept;
    /// Of its mailbox: for which of the receives from any source it was asked last.
    std::uint64_t asked_round = 0;
    /// A receive that it may be filling is canceled.
    void forget(const receive_request& r) noexcept;
    /// The connection belongs to another mailbox.
    void moved() noexcept;

    // ---- sending

    /// A send was offered, and holds its place in the queue until the peer has answered.
    [[nodiscard]] bool holds_queue() const noexcept { return offered_ != nullptr; }
    /// A send leaves the queue without having begun.
    void left_queue(const send_request& r) noexcept {
        if (offered_ == &r) offered_ = nullptr;
    }
    /// Sends more of a message of which a part was sent.
    void go_on() noexcept {
        if (sending_ != nullptr && !sending_->in_flight_) pump();
    }
    void transmitted(send_request& r, std::error_code outcome) noexcept;
    void cancel(send_request& r) noexcept;

    // ---- both

    delivery arrived(const wire_header& h, std::span<const std::byte> payload) noexcept;
    /// Whether a message has led it past so many sends or receives that everything else is to have its turn.
    [[nodiscard]] bool walked_far() noexcept { return std::exchange(walked_, 0) > far; }
    delivery begin_payload(const wire_header& h, std::size_t bytes) noexcept;
    std::span<std::byte> payload_space() noexcept;
    void payload_arrived(std::size_t n) noexcept;
    void writable() noexcept;
    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;
    /// Whether this send was offered to a receive, and waits for the answer.
    [[nodiscard]] bool offers(const send_request& r) const noexcept { return offered_ == &r; }

private:
    enum class in_state : std::uint8_t { idle, asked, filling, discarding };
    enum class out_state : std::uint8_t { idle, answered, offered, accepted, sending };
    static constexpr ahead_word nothing = static_cast<ahead_word>(0xff);
    static constexpr std::uint32_t far = 256;
    /// Bytes that the link may copy in one call.
    static constexpr std::size_t most_at_once = 64 * 1024;

    void unlink_if_linked() noexcept {
        if (linked()) unlink();
    }
    [[nodiscard]] bool send(ahead_word word, tag_type tag = 0,
                            std::span<const std::byte> payload = {}) noexcept;

    // Receiving.
    void ask() noexcept;
    void choose_wanted(std::byte* raw) noexcept;
    void send_in() noexcept;
    void idle_again() noexcept;
    [[nodiscard]] receive_request* first_for(tag_type tag) noexcept;
    delivery none(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery offered(const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery piece(std::span<const std::byte> payload) noexcept;
    delivery withdrawn(std::span<const std::byte> payload) noexcept;
    void piece_ended() noexcept;

    // Sending.
    /// Whether a policy of the list carries it. One that none carries fails in its turn, and is a message for no receive.
    [[nodiscard]] bool carried(const send_request& r) const noexcept;
    delivery wanted(std::span<const std::byte> payload) noexcept;
    delivery answered(bool accepted, std::span<const std::byte> payload) noexcept;
    void send_out() noexcept;
    void begin_accepted() noexcept;
    void pump() noexcept;
    void end_send(status outcome) noexcept;

    connection_base& context_;

    receive_request* filled_ = nullptr;
    std::uint64_t asked_[most_wants];  // sequence numbers of receives
    std::uint64_t cursor_ = 0;         // the last receive that is known to want nothing of what waits
    std::size_t total_ = 0;            // of the message that comes
    std::size_t arrived_ = 0;
    std::size_t left_of_piece_ = 0;
    tag_type tag_ = 0;
    std::uint32_t asked_count_ = 0;
    std::uint32_t walked_ = 0;  // sends and receives that were looked at
    in_state in_ = in_state::idle;
    ahead_word in_owed_ = nothing;
    bool again_ = false;  // the peer has more since the first receives were asked for

    out_state out_ = out_state::idle;
    ahead_word out_owed_ = nothing;
    std::uint32_t index_ = 0;          // of the receive that wants `offered_`
    send_request* offered_ = nullptr;  // nullptr in state `offered`: it was canceled
    send_request* sending_ = nullptr;  // until the transport is done with it, perhaps longer than the state
};

}  // namespace rdmacoro::detail

// Its bodies need the whole connection: connection_base.hpp includes them.
