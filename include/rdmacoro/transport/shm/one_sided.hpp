// get and put over shared memory: directly where the kernel permits it, otherwise served by the peer through the ring.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/detail/plain_vector.hpp>
#include <rdmacoro/transport/shm/channel.hpp>
#include <rdmacoro/transport/shm/domain.hpp>

#include <cstddef>
#include <cstdint>

namespace rdmacoro::detail::shm {

/// The gets and puts of one link: those of this side, and those served for the peer.
///
/// Served operations need no state at the serving side: the initiator asks for one piece at a time, keeps at most
/// `most_asked` requests unanswered, and answers come in the order of requests. A request that can't be answered for want
/// of room stays in the ring.
class one_sided_engine {
public:
    explicit one_sided_engine(channel& link) noexcept : link_(link) {}
    one_sided_engine(const one_sided_engine&) = delete;
    one_sided_engine& operator=(const one_sided_engine&) = delete;
    ~one_sided_engine();

    [[nodiscard]] post_result begin(bool read, const remote_region& there, std::byte* local,
                                    completion& c) noexcept;

    /// Forgets an operation; later answers to it are thrown away.
    void revoke(completion& c) noexcept;

    [[nodiscard]] bool idle() const noexcept { return open_ == 0 && unsent_count_ == 0; }

    /// Advances the operations of this side in turn, as far as the domain's `copy_allowance` goes; true when anything moved.
    bool advance() noexcept;
    /// Whether some wait for the next poll.
    [[nodiscard]] bool waits() const noexcept { return waits_; }

    /// Whether the memory of operations that are over is kept for others.
    [[nodiscard]] bool keeps_memory() const noexcept { return !free_.empty(); }
    /// Frees that of so many.
    void free_memory(std::size_t most) noexcept;

    /// Ends every operation of this side with `reason`.
    void fail_all(std::error_code reason) noexcept;

    /// Handles a record of the one-sided kinds. `errc::protocol_violation` when the peer must not send it, `errc::no_resources` when this
    /// side has no memory for an answer that finds no room: the link is to end. It never has to wait for room: a record behind it in the
    /// ring may be the one that makes room for the answer. What it copies counts for the domain's `copy_allowance`: the
    /// caller leaves a record in the ring while that is used up.
    [[nodiscard]] errc serve(const record& r) noexcept;

private:
    static constexpr std::size_t most_asked = 16;

    struct transfer_fields {
        completion* done = nullptr;
        bool read = false;
        remote_region there{};
        std::byte* local = nullptr;
        std::uint64_t asked = 0;  // bytes asked of a serving peer
        std::uint64_t moved = 0;  // bytes that are where they belong
        errc status = errc::ok;
    };
    struct transfer : list_node<transfer>, transfer_fields {};
    /// The thing without which a transfer can't go on.
    enum class need : std::uint8_t {
        end,         // nothing: it is over
        short_copy,  // what this side may copy, see `copy_allowance::piece_of`
        copy,        // the same for a long one
        request,     // an unanswered request less, room in the ring, and to copy a put to there
        answers,     // of the peer, which was asked for all
    };
    /// A request that the peer has yet to answer.
    struct asked {
        transfer* job = nullptr;  // nullptr: revoked
        bool read = false;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
    };
    struct request_body {
        std::uint64_t key;
        std::uint64_t address;
        std::uint64_t length;
    };
    /// The answer to a request of the peer.
    struct answer {
        record_type type;
        errc verdict;  // of a put; a get's is found when it is sent
        request_body of;
    };

    [[nodiscard]] transfer* take() noexcept;
    void give_back(transfer& job) noexcept;

    void finish(transfer& job, errc outcome) noexcept;
    void finish(transfer& job, std::error_code outcome) noexcept;
    /// Answers to its open requests are dropped.
    void drop_answers_to(const transfer& job) noexcept;

    /// Whether the next piece is copied without the peer's help.
    [[nodiscard]] bool goes_directly(const transfer_fields& job) const noexcept;
    [[nodiscard]] need need_of(const transfer_fields& job) const noexcept;
    [[nodiscard]] intrusive_list<transfer>& waiting(need what) noexcept {
        return waiting_[static_cast<unsigned>(what)];
    }
    /// It is the last of those that need the same.
    void enqueue(transfer& job, need what) noexcept;
    /// Whether a copy to the ring has to wait for the next poll, which `waits` tells then.
    [[nodiscard]] bool has_to_wait(std::uint64_t bytes) noexcept;
    /// Copies the next piece, of at most so many bytes.
    void step_directly(transfer_fields& job, std::size_t most) noexcept;

    /// Copies for those in turn, until no more may be copied; true when anything moved. Those behind that are not looked at: a poll takes
    /// no longer where a hundred thousand wait.
    bool copy_in_turn(need which) noexcept;
    /// Sends requests, one for each in turn, until no more can be sent.
    bool ask_in_turn() noexcept;
    /// Sends one request; false: it has to wait.
    [[nodiscard]] bool ask(transfer& job) noexcept;

    /// Whether the peer may be served that.
    [[nodiscard]] errc may_touch(const request_body& what, access_rights wanted) const noexcept;

    [[nodiscard]] errc serve_get(std::span<const std::byte> payload) noexcept;

    [[nodiscard]] errc serve_put(std::span<const std::byte> payload) noexcept;

    [[nodiscard]] errc answer_with(const answer& what) noexcept;

    bool send_answers() noexcept;

    [[nodiscard]] bool send(const answer& what) noexcept;

    [[nodiscard]] errc answered(const record& r, bool read) noexcept;

    // Values of `transfer_fields::asked` for an operation of no bytes: it sends one request all the same, to check the key.
    static constexpr std::uint64_t waiting_empty = 1;
    static constexpr std::uint64_t served_empty = 2;

    channel& link_;
    intrusive_list<transfer> waiting_[static_cast<unsigned>(need::answers) + 1];
    intrusive_list<transfer> turn_;  // those that `advance` or `fail_all` is ending
    intrusive_list<transfer> free_;
    need first_ =
        need::short_copy;  // in the next `advance`: the one before it has used up what may be copied
    bool waits_ = false;
    // Most links have no requests: both rings get their memory, for `most_asked`, when they are used first.
    plain_vector<asked> asked_;
    std::size_t asked_first_ = 0;
    std::size_t asked_count_ = 0;
    plain_vector<answer> unsent_;  // answers that found no room yet, in order
    std::size_t unsent_first_ = 0;
    std::size_t unsent_count_ = 0;
    std::size_t open_ = 0;  // operations of this side
};

}  // namespace rdmacoro::detail::shm

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/shm/impl/one_sided.ipp>
#endif
