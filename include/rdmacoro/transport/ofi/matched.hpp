// Messages that the provider matches: the tagged endpoint of one link.
//
//   sender                                   receiver
//     | == tagged message: head, payload ======> |   matches a receive, or a claim: a receive of any message
//     | == tagged message: head alone =========> |   of a long one: where the payload is
//     | <======================= get ========== |
//     | <----------------- fetched, number ----- |   the sender's memory is its own again
//
// Each link has an endpoint of its own for these, so that all bits of a tag are the user's, and messages that a link leaves behind
// do not disturb others. Its address travels as a frame of the link when the link begins. No message is longer than a slot, and
// receives are slots: so no receive is too short for the message that it matches, and the provider touches users' memory in gets
// only.
#pragma once

#include <rdmacoro/transport/detail/recycled_pool.hpp>
#include <rdmacoro/transport/ofi/session.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail::fabric {

/// A receive or claim that is with the provider, and the message that it matched.
struct tagged_operation : operation, list_node<tagged_operation> {
    enum class stage : std::uint8_t { idle, posted, ended, claimed, waiting, getting, unsent };

    tagged_operation() noexcept : operation(kind::tagged) {}

    struct get_completion : completion {
        tagged_operation* of;
    };

    stage at = stage::idle;
    bool claims = false;
    bool canceled = false;
    std::uint32_t place = 0;  // in its link's pool, for its name
    tagged_completion* user = nullptr;
    matched_side* owner = nullptr;
    slot* memory = nullptr;
    mutable_buffers into{};
    std::uint64_t tag = 0;
    tagged_head head{};
    get_completion got{};
};

/// A long message that its receiver has not fetched.
struct long_message : list_node<long_message> {
    completion* done = nullptr;
    region open;
    std::uint16_t place = 0;
    std::uint16_t generation = 0;

    [[nodiscard]] std::uint32_t number() const noexcept {
        return std::uint32_t{generation} << 16 | (std::uint32_t{place} + 1);
    }
};

/// The part of a link that sends and receives messages that the provider matches.
class matched_side {
public:
    /// Receives that may be with the provider at a time, beside a claim: each has a slot.
    static constexpr std::size_t most_receives = 128;
    /// Long messages that may be on their way at a time.
    static constexpr std::size_t most_long = 4096;

    explicit matched_side(session& of) noexcept : session_(of), engine_(of.of()) {}
    matched_side(const matched_side&) = delete;
    matched_side& operator=(const matched_side&) = delete;
    ~matched_side();

    /// Opens the endpoint. 0, or libfabric's negative number.
    [[nodiscard]] int open() noexcept;
    [[nodiscard]] const matching_traits& traits() const noexcept { return traits_; }

    // ---- interface of a link

    post_result post(std::uint64_t tag, std::uint32_t note, const const_buffers& payload,
                     completion& c) noexcept;
    post_result receive(std::uint64_t tag, std::uint64_t mask, const mutable_buffers& into,
                        tagged_completion& c) noexcept;
    post_result claim(tagged_completion& c) noexcept;
    post_result receive_claimed(claimed_message name, const mutable_buffers& into,
                                tagged_completion& c) noexcept;
    void discard(claimed_message name) noexcept;
    [[nodiscard]] bool withdraw(completion& c) noexcept;

    // ---- called by its session

    /// Takes completions; calls no listener. Returns how many there were.
    unsigned progress() noexcept;
    /// Calls the completions of operations that ended, and returns how many.
    unsigned serve() noexcept;
    /// Sends the frames that are owed to the peer.
    void send_owed() noexcept;
    /// The link is closed: ends everything with `reason`. The endpoint stays open until this is destroyed: a peer in the same
    /// process may still send to it.
    void end(std::error_code reason) noexcept;
    [[nodiscard]] bool match(std::span<const std::byte> address) noexcept;
    /// The peer has fetched a long message. False: it cannot have.
    [[nodiscard]] bool fetched(std::uint32_t number) noexcept;
    /// Whether its descriptor shows the next completion.
    [[nodiscard]] bool may_wait() const noexcept;
    /// Empty looks until it is at rest; 0: it is. Its engine's.
    unsigned looks_left = 0;

private:
    using stage = tagged_operation::stage;

    [[nodiscard]] int open_queue(std::size_t entries) noexcept;
    session::sent send(std::uint64_t tag, const tagged_head& head, const const_buffers& payload) noexcept;
    [[nodiscard]] tagged_operation* take(tagged_completion& c) noexcept;
    void give(tagged_operation& t) noexcept;
    void give_slot(tagged_operation& t) noexcept;
    void give_sent(slot& s) noexcept;
    post_result begin(tagged_operation* t, std::uint64_t tag, std::uint64_t ignored) noexcept;
    void over(void* context, std::uint64_t tag, std::size_t bytes, int error) noexcept;
    void complete(tagged_operation& t) noexcept;
    [[nodiscard]] post_result fill(tagged_operation& t) noexcept;
    void got(tagged_operation& t, std::error_code outcome) noexcept;
    void have(tagged_operation& t) noexcept;
    [[nodiscard]] bool send_fetched(tagged_operation& t) noexcept;
    [[nodiscard]] long_message* take_long() noexcept;
    [[nodiscard]] post_result no_room(bool provider_is_busy) noexcept;

    session& session_;
    engine& engine_;
    matching_traits traits_{};
    unique_addresses addresses_;
    unique_queue queue_;
    unique_endpoint endpoint_;
    fd_handler completions_;  // only wakes
    std::size_t inject_limit_ = 0;
    fi_addr_t to_ = FI_ADDR_UNSPEC;
    bool introduced_ = false;  // the peer has been sent the address
    bool ended_ = false;

    intrusive_list<tagged_operation> ended_operations_;  // their completions are to be called
    intrusive_list<tagged_operation> waiting_;           // for room to get
    intrusive_list<tagged_operation> unsent_;            // the sender is to be notified that they are fetched
    recycled_pool<tagged_operation> operations_;         // goes first: unlinks its operations
    std::size_t receives_ = 0;

    intrusive_list<long_message> fetched_;
    recycled_pool<long_message> long_;
};

}  // namespace rdmacoro::detail::fabric
