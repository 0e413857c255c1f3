// The engine of segmented: numbered streams of pieces, each way.
#pragma once

#include <rdmacoro/protocol/connection_base.hpp>
#include <rdmacoro/protocol/detail/grown_array.hpp>
#include <rdmacoro/protocol/detail/owed_messages.hpp>
#include <rdmacoro/protocol/policy.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail {

/// The kinds of `segmented` on the wire, from the policy's first.
enum class segment_kind : std::uint8_t { announce, piece, proceed, abandon, gone, taken };

/// Compiled once for all links and lists: a piece is long, and one virtual call for each costs nothing.
///
/// Streams take turns, a piece at a time. Where a link stores the pieces itself, as shared memory does, it would be full
/// of them, and every other message would wait until the receiver had taken them all: of such pieces the sender asks
/// now and then to hear that the receiver has taken them, and keeps at most `most_asked` of these questions open. No piece is longer than
/// what lies between two of them, so that the link holds `most_asked * ask_after` bytes at most. A byte stream has a window of its own.
class segmented_engine : private owed_messages {
public:
    /// Streams of one side at a time; more sends wait their turn.
    static constexpr std::uint32_t most_streams = 1024;
    /// After so many bytes that the link has stored it asks whether they are taken.
    static constexpr std::size_t ask_after = 32 * 1024;
    static constexpr std::uint32_t most_asked = 2;

    /// `first_kind`, `policy`: the policy's first number on the wire and its place in the list.
    segmented_engine(connection_base& context, std::uint8_t first_kind, std::size_t policy) noexcept
        : owed_messages(context, slot_type_of<in_slot, owing_slot>),
          context_(context),
          policy_(policy),
          first_kind_(first_kind) {}
    segmented_engine(const segmented_engine&) = delete;
    segmented_engine& operator=(const segmented_engine&) = delete;

    // ---- sending

    start_result start(send_request& r) noexcept;
    void transmitted(send_request& r, std::error_code outcome) noexcept;
    void cancel_send(send_request& r) noexcept;

    // ---- receiving

    delivery arrived(unsigned kind, const wire_header& h, std::span<const std::byte> payload) noexcept;
    delivery begin_payload(unsigned kind, const wire_header& h, std::size_t bytes) noexcept;
    std::span<std::byte> payload_space() noexcept;
    void payload_arrived(std::size_t n) noexcept;
    void matched(unexpected_message& m, receive_request& r) noexcept;
    bool forget_receive(receive_request& r) noexcept;

    void writable() noexcept;
    void fail(std::error_code reason) noexcept;
    /// Adds the operations that it holds.
    void describe(connection_description& into) noexcept;

protected:
    ~segmented_engine() = default;

private:
    static constexpr std::uint32_t none = 0xffffffff;
    static constexpr std::size_t announcement_bytes = 16;

    enum class out_state : std::uint8_t { free, sending, abandoning, abandoned };
    struct out_slot {
        send_request* request = nullptr;
        out_state state = out_state::free;
        bool queued = false;  // for its turn
        std::uint32_t next_free = none;
        std::uint32_t next_turn = none;
    };
    enum class in_state : std::uint8_t { none, stored, filling, discarding };
    enum owed_bits : std::uint8_t { owes_proceed = 1, owes_gone = 2 };
    struct in_slot : owing_slot {
        receive_request* request = nullptr;     // filling
        unexpected_message* message = nullptr;  // stored
        std::size_t total = 0;
        std::size_t arrived = 0;
        tag_type tag = 0;
        in_state state = in_state::none;
        bool synchronous = false;
        bool answered = false;  // proceed was sent, or is owed
    };

    /// How much of a message may come before its receiver has a place for it.
    [[nodiscard]] std::size_t unasked_by_peer() noexcept {
        return unasked_bytes(context_.credits().peer_budget());
    }
    [[nodiscard]] std::size_t unasked_here() noexcept { return unasked_bytes(context_.credits().granted()); }

    [[nodiscard]] std::uint8_t on_wire(segment_kind kind) const noexcept {
        return static_cast<std::uint8_t>(first_kind_ + static_cast<std::uint8_t>(kind));
    }
    [[nodiscard]] post_result send_word(segment_kind kind, tag_type tag,
                                        std::span<const std::byte> payload = {}) noexcept {
        return context_.post_copied_kind(on_wire(kind), 0, tag, payload, kind == segment_kind::announce);
    }

    /// An incoming stream.
    [[nodiscard]] in_slot& in(std::uint32_t id) noexcept { return static_cast<in_slot&>(owing(id)); }
    [[nodiscard]] std::uint32_t take_out() noexcept;
    void give_out(std::uint32_t id) noexcept;
    /// How much of it may be posted by now, in bytes.
    [[nodiscard]] std::size_t allowed(const send_request& r) noexcept;
    /// Has nothing to wait for: its next piece is posted when its turn comes, or it ends.
    void go_on(send_request& r) noexcept;
    /// Posts pieces, of each stream one in turn, while there is room for them.
    void take_turns() noexcept;
    /// One piece of the stream that has its turn.
    [[nodiscard]] post_result post_piece(send_request& r) noexcept;
    void end_send(send_request& r, std::error_code outcome) noexcept;
    void send_abandon(std::uint32_t id) noexcept;
    [[nodiscard]] delivery proceeded(const wire_header& h, std::span<const std::byte> payload) noexcept;
    [[nodiscard]] delivery peer_gone(const wire_header& h, std::span<const std::byte> payload) noexcept;
    [[nodiscard]] delivery peer_took(const wire_header& h, std::span<const std::byte> payload) noexcept;

    [[nodiscard]] bool wants_answer(const in_slot& slot) noexcept {
        return !slot.answered && (slot.synchronous || slot.total > unasked_here());
    }
    [[nodiscard]] delivery announced(const wire_header& h, std::span<const std::byte> payload) noexcept;
    /// The stream that such a piece belongs to; nullptr when there can be none.
    [[nodiscard]] in_slot* admissible_piece(const wire_header& h, std::size_t bytes) noexcept;
    [[nodiscard]] delivery piece_arrived(const wire_header& h, std::span<const std::byte> payload) noexcept;
    /// A piece came for this stream: it may be complete.
    void after_piece(std::uint32_t id) noexcept;
    /// A piece was taken, and its sender asked to hear of that.
    void send_taken() noexcept;
    void answer(std::uint32_t id) noexcept;
    RDMACORO_DECL post_result send_owed(std::uint32_t id, std::uint8_t message) noexcept override;
    void owed_sent(std::uint32_t, std::uint8_t) noexcept override {}
    [[nodiscard]] delivery abandoned(const wire_header& h, std::span<const std::byte> payload) noexcept;

    connection_base& context_;
    std::size_t policy_;
    grown_array<out_slot> out_;
    std::uint32_t free_out_ = none;
    std::uint32_t leaving_ = 0;
    std::uint32_t current_ = 0;  // the stream of the piece that is arriving in parts
    std::size_t current_left_ = 0;
    std::uint32_t first_turn_ = none;  // the streams with pieces to post
    std::uint32_t last_turn_ = none;
    std::size_t stored_bytes_ = 0;    // pieces that the link has stored, since it was last asked
    std::uint32_t asked_ = 0;         // questions that are not answered
    std::uint32_t taken_unsent_ = 0;  // the peer's questions that had no room for their answers
    bool taking_turns_ = false;
    bool current_asks_ = false;
    std::uint8_t first_kind_;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/protocol/detail/impl/segmented_engine.ipp>
#endif
