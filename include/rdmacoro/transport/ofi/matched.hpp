// Messages that the provider matches: the tagged endpoint of one link.
//
//   sender                                   receiver
//     | == tagged message: head, payload ======> |   met by a receive, or by a claim: a receive of whatever comes
//     | == tagged message: head alone =========> |   of a long one: where the payload is
//     | <======================= get ========== |
//     | <----------------- fetched, number ----- |   the sender's memory is its own again
//
// Each link has an endpoint of its own for these, so that all of a tag is the user's, and nothing that a link leaves behind is
// in the way of others. Its address travels as a frame of the link when the link begins. No message is longer than a slot, and
// receives are slots: so no receive is ever too short for what it meets, and users' memory is never the provider's but in gets.
#pragma once

#include <rdmacoro/transport/ofi/core.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace rdmacoro::detail::fabric {

/// A receive or claim of the provider, and what it has met.
struct tagged_operation : operation, list_node<tagged_operation> {
    enum class stage : std::uint8_t { idle, posted, ended, claimed, waiting, getting, unsaid };

    tagged_operation() noexcept : operation(kind::tagged) {}

    struct get_completion : completion {
        tagged_operation* of;
    };

    stage at = stage::idle;
    bool claims = false;
    bool canceled = false;
    std::uint32_t place = 0;  // among its link's, for its name
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

/// What one link has beside its core when the provider matches its messages.
class matched_side {
public:
    /// Receives that may be with the provider at a time, beside a claim: each has a slot.
    static constexpr std::size_t most_receives = 128;
    /// Long messages that may be on their way at a time.
    static constexpr std::size_t most_long = 4096;

    explicit matched_side(core& of) noexcept : core_(of), engine_(of.of()) {}
    matched_side(const matched_side&) = delete;
    matched_side& operator=(const matched_side&) = delete;
    inline ~matched_side();

    /// Opens the endpoint. 0, or libfabric's negative number.
    [[nodiscard]] inline int open() noexcept;
    [[nodiscard]] const matching_traits& traits() const noexcept { return traits_; }

    // ---- what a link does

    inline post_result post(std::uint64_t tag, std::uint32_t note, const const_buffers& payload,
                            completion& c) noexcept;
    inline post_result receive(std::uint64_t tag, std::uint64_t mask, const mutable_buffers& into,
                               tagged_completion& c) noexcept;
    inline post_result claim(tagged_completion& c) noexcept;
    inline post_result receive_claimed(claimed_message name, const mutable_buffers& into,
                                       tagged_completion& c) noexcept;
    inline void discard(claimed_message name) noexcept;
    [[nodiscard]] inline bool withdraw(completion& c) noexcept;

    // ---- what its core does

    /// Takes completions in; calls nobody above. Answers how many came.
    inline unsigned progress() noexcept;
    /// Tells what ended. Answers how much.
    inline unsigned serve() noexcept;
    /// Says to the peer what is owed.
    inline void say() noexcept;
    /// The link is closed: ends everything with `reason`. The endpoint lives on until this goes: a peer in the same process may
    /// still send to it.
    inline void end(std::error_code reason) noexcept;
    [[nodiscard]] inline bool meet(std::span<const std::byte> address) noexcept;
    /// The peer has a long message. False: it can't.
    [[nodiscard]] inline bool fetched(std::uint32_t number) noexcept;
    /// Whether its descriptor tells of what comes.
    [[nodiscard]] inline bool may_wait() const noexcept;

private:
    using stage = tagged_operation::stage;

    [[nodiscard]] inline unique_info ask() noexcept;
    [[nodiscard]] inline int open_queue(std::size_t entries) noexcept;
    inline core::sent send(std::uint64_t tag, const tagged_head& head, const const_buffers& payload) noexcept;
    [[nodiscard]] inline tagged_operation* take(tagged_completion& c) noexcept;
    inline void give(tagged_operation& t) noexcept;
    inline void give_slot(tagged_operation& t) noexcept;
    inline post_result begin(tagged_operation* t, std::uint64_t tag, std::uint64_t ignored) noexcept;
    inline void over(void* context, std::uint64_t tag, std::size_t bytes, int error) noexcept;
    inline void tell(tagged_operation& t) noexcept;
    [[nodiscard]] inline post_result fill(tagged_operation& t) noexcept;
    inline void got(tagged_operation& t, std::error_code outcome) noexcept;
    inline void have(tagged_operation& t) noexcept;
    [[nodiscard]] inline bool say_fetched(tagged_operation& t) noexcept;
    [[nodiscard]] inline long_message* take_long() noexcept;
    [[nodiscard]] inline post_result no_room(bool provider_is_busy) noexcept;

    core& core_;
    engine& engine_;
    matching_traits traits_{};
    unique_addresses addresses_;
    unique_queue queue_;
    unique_endpoint endpoint_;
    fd_handler completions_;  // only wakes
    std::size_t inject_limit_ = 0;
    fi_addr_t to_ = FI_ADDR_UNSPEC;
    bool introduced_ = false;  // the peer knows the address
    bool ended_ = false;

    std::vector<std::unique_ptr<tagged_operation>> operations_;
    intrusive_list<tagged_operation> idle_;
    intrusive_list<tagged_operation> told_;     // to be: the provider is done with them
    intrusive_list<tagged_operation> waiting_;  // for room to get
    intrusive_list<tagged_operation> unsaid_;   // the sender has yet to hear that it is fetched
    std::size_t receives_ = 0;

    std::vector<std::unique_ptr<long_message>> long_;
    intrusive_list<long_message> idle_long_;
    intrusive_list<long_message> fetched_;
};

}  // namespace rdmacoro::detail::fabric
