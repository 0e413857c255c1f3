// collective: one rank's part of a running collective, as its algorithm sees it.
#pragma once

#include <rdmacoro/service/algorithm.hpp>
#include <rdmacoro/service/detail/group_state.hpp>
#include <rdmacoro/service/detail/in_turns.hpp>
#include <rdmacoro/service/detail/scratch.hpp>
#include <rdmacoro/service/reduction.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace rdmacoro {

namespace detail {

/// Where the blocks of ranks lie in memory: all of one length, or with an offset for each. In bytes.
struct block_layout {
    std::size_t each = 0;
    const std::size_t* offsets = nullptr;  // size + 1 of them; nullptr: all have `each` bytes

    [[nodiscard]] std::size_t offset(unsigned rank) const noexcept {
        return offsets != nullptr ? offsets[rank] : rank * each;
    }
    [[nodiscard]] std::size_t bytes(unsigned rank) const noexcept {
        return offsets != nullptr ? offsets[rank + 1] - offsets[rank] : each;
    }
};

/// A fault that a rank has found in another one's message.
struct wrong_message {
    unsigned from = 0;  // in the job
    std::size_t got = 0;
    std::size_t wanted = 0;
};

/// Room for a function object of a reduction.
struct alignas(16) operation_room {
    std::byte bytes[32];
};

/// The types of a collective's elements and operation.
struct element_types {
    std::uint64_t number;   ///< the same for the same types in programs of one compiler
    std::string_view text;  ///< as the compiler writes them
};

/// A rank's request, without types.
struct collective_call {
    collective_kind kind{};
    unsigned root = 0;
    std::size_t element = 1;        // in bytes
    const std::byte* in = nullptr;  // this rank's contribution
    std::byte* out = nullptr;
    block_layout in_blocks{};   // of scatter, alltoall and reduce_scatter
    block_layout out_blocks{};  // of gather, allgather and alltoall
    std::size_t bytes = 0;      // of the whole, of broadcast, reductions and scans; else of this rank's block
    std::span<const std::size_t>
        in_counts{};  // elements of each block; empty: all are alike, or not known here
    std::span<const std::size_t> out_counts{};
    bool uneven = false;
    bool root_knows = false;  // the lengths of blocks are known at the root alone
    bool own_placed = false;  // what this rank gives to itself is where it belongs
    bool reproducible = false;
    std::string_view named{};              // in errors, instead of the kind: it is a part of something else
    const element_types* types = nullptr;  // for the comparison between ranks
    std::uint32_t number = 0;              // that was taken for it; 0: none yet
    std::optional<std::string_view>
        unknown_algorithm{};             // asked for by a name that is none: the call is refused
    std::span<const algorithm> asked{};  // for this call; in the order in which they are asked
    reduction with{};

    /// Copies the function object.
    void keep(reduction how, const void* op, std::size_t op_bytes) noexcept {
        with = how;
        std::memcpy(room_.bytes, op, op_bytes);
    }
    /// The call is where it stays: the reduction refers to its copy.
    void bind_operation() noexcept { with.op = room_.bytes; }

private:
    operation_room room_{};
};

}  // namespace detail

/// One rank's part of a running collective: its rank, where its memory lies, and transfers with the other ranks. Made by `group`; an
/// algorithm gets it as its argument.
///
/// Memory. `data()` is the whole of `broadcast`, `reduce` (at every rank), `allreduce`, `scan` and `exscan`, with this rank's contribution in
/// it; the result must be there in the end, of `reduce` at the root only. An algorithm that says `from_input` finds the contribution at `contribution()` alone. `block(r)` is the block of rank `r` among the results of `gather` (at the root only), `allgather`
/// and `alltoall`, and the block that `scatter` and `reduce_scatter` leave at this rank is `own()`. `given(r)` is what this rank gives to `r`, in `scatter` at the root, in
/// `alltoall` and `reduce_scatter`. What this rank gives to itself is where it belongs already; with `from_input`, after `place_own()`.
///
/// Transfers begin when they are made, and are awaited once each, in any order; then `check()` throws where one has failed. No transfer may be
/// taken to end before the other rank receives: begin the sends and the receives that belong to one step before awaiting either, the sends first, since
/// other ranks wait for them. Two messages from one rank to another are received in the order in which they were sent.
class collective final : private detail::running_collective {
public:
    /// For `group`. `around`: the token of the task that waits for it. The call is borrowed.
    /// `number`: in the group; `phase`: separates the messages of steps that have the same number.
    collective(detail::group_state& of, const detail::collective_call& call, local_stop_token around,
               std::uint32_t number, unsigned phase) noexcept;
    /// A collective of some ranks within `whole`, of any kind, in `call`'s memory: a step of an algorithm. `members`: their ranks in
    /// `whole`, this one among them, in order; empty: all. Both are borrowed. The messages of steps at the same pair of ranks keep their order.
    collective(collective& whole, std::span<const unsigned> members,
               const detail::collective_call& call) noexcept;
    collective(const collective&) = delete;
    collective& operator=(const collective&) = delete;
    ~collective();

    /// This rank.
    [[nodiscard]] unsigned rank() const noexcept { return rank_; }
    /// How many ranks there are.
    [[nodiscard]] unsigned size() const noexcept { return size_; }
    /// Of `broadcast`, `scatter`, `gather` and `reduce`.
    [[nodiscard]] unsigned root() const noexcept { return call_.root; }
    /// The kind of collective.
    [[nodiscard]] collective_kind kind() const noexcept { return call_.kind; }
    /// The length of an element, in bytes: parts of `data()` begin at multiples of it.
    [[nodiscard]] std::size_t element() const noexcept { return call_.element; }
    /// A number below the number of hosts that is the same for ranks on one host.
    [[nodiscard]] unsigned host_of(unsigned rank) const noexcept {
        return whole_ != nullptr ? whole_->host_of(of_whole(rank)) : of_.host_of(rank);
    }

    /// Whether it has the lowest rank of those on its host. Not within a step of an algorithm.
    [[nodiscard]] bool is_first_on_host(unsigned rank) const noexcept { return of_.is_first_on_host(rank); }
    /// Of the whole group: the ranks on this rank's host, in their order.
    [[nodiscard]] std::span<const unsigned> ranks_here() const noexcept { return of_.ranks_here(); }
    /// Of the whole group: the lowest rank of each host, in their order.
    [[nodiscard]] std::span<const unsigned> first_ranks() const noexcept { return of_.first_ranks(); }

    /// See above.
    [[nodiscard]] std::span<std::byte> data() const noexcept { return {call_.out, call_.bytes}; }
    /// See above.
    [[nodiscard]] std::span<std::byte> block(unsigned rank) const noexcept {
        return {call_.out + call_.out_blocks.offset(rank), call_.out_blocks.bytes(rank)};
    }
    /// The blocks of `first` to `last`, both included, which lie one behind the other.
    [[nodiscard]] std::span<std::byte> blocks(unsigned first, unsigned last) const noexcept {
        const std::size_t from = call_.out_blocks.offset(first);
        return {call_.out + from, call_.out_blocks.offset(last) + call_.out_blocks.bytes(last) - from};
    }
    /// The length of a block of `given` or `block`, also where this rank has no memory for it.
    [[nodiscard]] std::size_t block_bytes(unsigned rank) const noexcept { return layout().bytes(rank); }
    /// The length of the blocks of `first` to `last`.
    [[nodiscard]] std::size_t blocks_bytes(unsigned first, unsigned last) const noexcept {
        return layout().offset(last) + layout().bytes(last) - layout().offset(first);
    }
    /// See above.
    [[nodiscard]] std::span<std::byte> own() const noexcept { return {call_.out, call_.bytes}; }
    /// See above.
    [[nodiscard]] std::span<const std::byte> given(unsigned rank) const noexcept {
        return {call_.in + call_.in_blocks.offset(rank), call_.in_blocks.bytes(rank)};
    }
    /// The same for several ranks, one behind the other.
    [[nodiscard]] std::span<const std::byte> given(unsigned first, unsigned last) const noexcept {
        const std::size_t from = call_.in_blocks.offset(first);
        return {call_.in + from, call_.in_blocks.offset(last) + call_.in_blocks.bytes(last) - from};
    }

    /// The elements that this rank contributes to a reduction or a scan. They are `data()`, or memory that is only read.
    [[nodiscard]] std::span<const std::byte> contribution() const noexcept {
        return {call_.in != nullptr ? call_.in : call_.out, call_.bytes};
    }
    /// Of an algorithm with `from_input`: copies what this rank gives to itself, of `alltoall` and `reduce_scatter`, to where it belongs. Any
    /// time while it runs. In one go, however long it is; `placing_own` gives other coroutines a turn for each MiB.
    void place_own() const noexcept {
        if (call_.own_placed || call_.in == nullptr) return;
        const std::span<const std::byte> from = given(rank_);
        std::byte* const to = own_place().data();
        if (to != from.data()) detail::copy_long(to, from.data(), from.size());
    }
    /// The same; awaitable, once.
    [[nodiscard]] detail::copy_in_turns placing_own() noexcept {
        if (call_.own_placed || call_.in == nullptr) return {since_turn_, {}, {}};
        return {since_turn_, own_place(), given(rank_)};
    }
    /// For algorithms of the toolkit: how many bytes were copied and combined since the last turn that such work gave.
    [[nodiscard]] std::size_t& since_turn() noexcept { return since_turn_; }
    /// The same: copies, with turns; awaitable, once.
    [[nodiscard]] detail::copy_in_turns copying(std::span<std::byte> into,
                                                std::span<const std::byte> from) noexcept {
        return {since_turn_, into, from};
    }

    /// `into = into op other`, or with `other_first`, `other op into`, for each element. Both have the same length.
    void combine(std::span<std::byte> into, std::span<const std::byte> other, bool other_first) const {
        combine(into, into, other, other_first);
    }
    /// `into = mine op other`, or with `other_first`, `other op mine`. `into` may be one of the others; otherwise none overlap.
    void combine(std::span<std::byte> into, std::span<const std::byte> mine, std::span<const std::byte> other,
                 bool other_first) const {
        if (into.empty()) return;
        call_.with.apply(call_.with.op, into.data(), other_first ? other.data() : mine.data(),
                         other_first ? mine.data() : other.data(), into.size() / call_.element);
    }
    /// Memory for partial results, for as long as the object lives.
    using scratch = detail::scratch;
    /// Takes `bytes` of it. Throws `std::bad_alloc`: before the step's transfers begin.
    [[nodiscard]] scratch take_scratch(std::size_t bytes) { return {of_.links().scratch(), bytes}; }

    /// For a `scratch` that is made later.
    [[nodiscard]] detail::scratch_pool& scratch_memory() noexcept { return of_.links().scratch(); }

    class sending;
    class receiving;
    class combining;

    /// Throws where the collective has failed: a transfer, another rank, or the caller's stop token. Transfers that were not awaited must
    /// not exist.
    void check() const {
        if (failed_) [[unlikely]]
            throw_failure();
    }

    /// For `group`.
    [[nodiscard]] std::uint32_t number() const noexcept { return number_; }
    /// For `group`: its name in errors.
    [[nodiscard]] std::string_view title() const noexcept {
        return call_.named.empty() ? detail::function_name(call_.kind, call_.uneven) : call_.named;
    }
    /// For `group`: what was asked for.
    [[nodiscard]] const detail::collective_call& call() const noexcept { return call_; }
    /// For `group`: whether the caller's token has stopped it.
    [[nodiscard]] bool was_canceled() const noexcept { return canceled_; }
    /// For `group`: whether `check` has thrown before the group knew the reason, with a code that stands for it.
    [[nodiscard]] bool has_thrown_early() const noexcept { return thrown_early_; }
    /// For `group`: a transfer has failed, or the group was revoked.
    [[nodiscard]] bool has_failed() const noexcept { return failed_; }
    /// For `group`: a message had another length than the algorithm expected; `tell` says so to the others.
    [[nodiscard]] bool has_wrong_message() const noexcept { return wrong_.has_value(); }
    /// For `group`. See above.
    void tell_wrong_message();
    /// For `group`: the rank that has left in good order amid it, and said nothing of a failure.
    [[nodiscard]] const std::optional<unsigned>& left() const noexcept { return left_; }

    /// For algorithms: a message of that rank's has `got` bytes where `wanted` were expected, or says so. The collective has failed.
    void wrong_length(unsigned from, std::size_t got, std::size_t wanted) noexcept {
        wrong_length(peer(from), got, wanted);
    }

private:
    template <class Operation>
    class transfer;

    [[nodiscard]] const detail::block_layout& layout() const noexcept {
        return call_.kind == collective_kind::scatter || call_.kind == collective_kind::reduce_scatter
                   ? call_.in_blocks
                   : call_.out_blocks;
    }
    [[nodiscard]] detail::rank_peer& peer(unsigned rank) noexcept {
        return whole_ != nullptr ? whole_->peer(of_whole(rank)) : of_.peer(rank);
    }
    [[nodiscard]] unsigned of_whole(unsigned rank) const noexcept {
        return members_.empty() ? rank : members_[rank];
    }
    [[nodiscard]] std::span<std::byte> own_place() const noexcept {
        return {call_.kind == collective_kind::alltoall ? block(rank_).data() : call_.out,
                given(rank_).size()};
    }
    [[nodiscard]] tag_type tag() const noexcept { return tag_; }
    void transfer_failed(const detail::rank_peer& with, std::error_code why) noexcept;
    /// How a receive ended; false: badly.
    [[nodiscard, gnu::always_inline]] bool has_come(detail::rank_receive& r, std::size_t wanted) noexcept {
        const result<received> ended = r.take_result();
        if (ended && ended->bytes == wanted) [[likely]]
            return true;
        bad_receive(r, ended, wanted);
        return false;
    }
    [[gnu::cold]] void bad_receive(const detail::rank_receive& r, const result<received>& ended,
                                   std::size_t wanted) noexcept;
    void wrong_length(const detail::rank_peer& from, std::size_t got, std::size_t wanted) noexcept;
    void revoked() noexcept override;
    [[noreturn, gnu::cold]] void throw_failure() const;

    detail::group_state& of_;
    const detail::collective_call& call_;
    collective* whole_ = nullptr;
    std::span<const unsigned> members_{};
    unsigned rank_;
    unsigned size_;
    std::uint32_t number_ = 0;
    tag_type tag_ = 0;
    std::size_t since_turn_ = 0;
    bool failed_ = false;
    bool canceled_ = false;
    mutable bool thrown_early_ = false;
    std::optional<detail::wrong_message> wrong_;
    std::optional<unsigned> left_{};
    local_stop_source own_stop_;
    local_stop_source& stop_;
};

/// A transfer that has begun: a `collective::sending` or a `collective::receiving`.
///
/// Awaitable.
/// Completes: when its memory is the caller's again; a receive: when the message is there.
/// Buffers: borrowed until then.
/// Concurrency: any number at a time; each is awaited once, by the coroutine that runs the algorithm.
/// Errors: none are thrown here; the collective notes them, and `collective::check` throws.
/// Cancellation: with the collective.
/// Example:
///     collective::receiving in(c, before, c.block(before));
///     collective::sending out(c, next, c.block(c.rank()));
///     co_await out;
///     co_await in;
///     c.check();
template <class Operation>
class collective::transfer {
public:
    transfer(const transfer&) = delete;
    transfer& operator=(const transfer&) = delete;

    /// The collective's own token counts.
    void bind(const environment&) noexcept {}
    /// Awaitable, once; does not throw.
    bool await_ready() noexcept { return operation_.await_ready(); }
    /// As every awaitable.
    void await_suspend(std::coroutine_handle<> awaiting) noexcept { operation_.await_suspend(awaiting); }

protected:
    template <class... Args>
    explicit transfer(collective& of, detail::rank_peer& with, Args... args) noexcept
        : of_(of), operation_(with, of.of_.links().owner(), args...) {
        operation_.bind({&of.of_.links().owner(), of.stop_.get_token()});
        operation_.begin();
    }
    ~transfer() {
        if (!operation_.done()) [[unlikely]]
            abandon();
    }

    collective& of_;
    Operation operation_;

private:
    /// An exception unwinds the algorithm: waits until neither a device nor a peer uses its memory.
    [[gnu::cold]] void abandon() {
        local_stop_source stopped;
        stopped.request_stop();
        operation_.bind({nullptr, stopped.get_token()});
        if (!operation_.await_ready())
            operation_.owner().run_until([this] { return operation_.done(); }, stopped);
    }
};

/// A send of a collective that has begun: `collective::sending out(c, to, bytes);`, then `co_await out;`. The bytes are borrowed until
/// then.
class [[nodiscard]] collective::sending : public collective::transfer<detail::rank_send> {
public:
    /// To a rank other than this one.
    sending(collective& of, unsigned to, std::span<const std::byte> from) noexcept
        : transfer(of, of.peer(to), from, of.tag()) {}
    /// As every awaitable.
    void await_resume() noexcept {
        if (const result<void> ended = operation_.take_result(); !ended) [[unlikely]]
            of_.transfer_failed(operation_.peer(), ended.error());
    }
};

/// A receive of a collective that has begun. The message has exactly the length of the memory, or the collective fails.
class [[nodiscard]] collective::receiving : public collective::transfer<detail::rank_receive> {
public:
    /// From a rank other than this one.
    receiving(collective& of, unsigned from, std::span<std::byte> into) noexcept
        : transfer(of, of.peer(from), into, of.tag()), bytes_(into.size()) {}
    /// As every awaitable.
    void await_resume() noexcept { static_cast<void>(of_.has_come(operation_, bytes_)); }

private:
    std::size_t bytes_;
};

namespace detail {

/// Combines what comes with what this rank has.
class arriving_operand : public arrival_consumer {
public:
    arriving_operand(const collective& of, std::span<std::byte> into, std::span<const std::byte> mine,
                     std::span<std::byte> room, bool other_first) noexcept
        : with_(of), into_(into), mine_(mine), room_(room), other_first_(other_first) {}
    void take(std::size_t at, std::span<const std::byte> bytes) noexcept final;

protected:
    ~arriving_operand() = default;
    /// The rest lies in the room: up to `most` bytes of it. False: that was all. Throws what the operation has thrown.
    bool take_rest(std::size_t most) {
        if (failed_) [[unlikely]]
            std::rethrow_exception(failed_);
        const std::size_t now = std::min(most, into_.size() - taken_);
        combine(taken_ + now, room_.subspan(taken_, now));
        return taken_ != into_.size();
    }

private:
    void combine(std::size_t until, std::span<const std::byte> other) {
        with_.combine(into_.subspan(taken_, until - taken_), mine_.subspan(taken_, until - taken_), other,
                      other_first_);
        taken_ = until;
    }

    const collective& with_;
    std::span<std::byte> into_;
    std::span<const std::byte> mine_;
    std::span<std::byte> room_;
    std::size_t taken_ = 0;  // whole elements
    std::exception_ptr failed_;
    bool other_first_;
};

}  // namespace detail

/// A receive of elements that are combined with this rank's as they arrive, where the link has them in memory of its own: `into = mine op
/// other`, or with `other_first`, `other op mine`. The message has exactly the length of the memory.
///
/// Awaitable.
/// Completes: when all of it is combined. Of more than 1 MiB there is a turn of the scheduler before each MiB.
/// Buffers: `into`, `mine` and `room`, all of one length, are borrowed until then. `into` and `mine` may be one. What is in `room` is unspecified.
/// Concurrency: as `collective::receiving`.
/// Errors: what the operation throws; those of transfers are noted.
/// Cancellation: with the collective.
/// Example:
///     collective::sending out(c, with, c.contribution());
///     collective::combining in(c, with, c.data(), c.contribution(), room.bytes(), with < c.rank());
///     co_await out;
///     co_await in;
///     c.check();
class [[nodiscard]] collective::combining final : private detail::arriving_operand,
                                                  private detail::work_in_turns,
                                                  public collective::transfer<detail::rank_receive> {
public:
    /// From a rank other than this one. Not `at_once`: it is combined when the receive is awaited, for `into` that is under way to another rank
    /// meanwhile: that send is awaited first.
    combining(collective& of, unsigned from, std::span<std::byte> into, std::span<const std::byte> mine,
              std::span<std::byte> room, bool other_first, bool at_once = true) noexcept
        : arriving_operand(of, into, mine, room, other_first),
          transfer(of, of.peer(from), room.first(into.size()), of.tag(),
                   at_once && into.size() >= worth_it ? static_cast<detail::arrival_consumer*>(this)
                                                      : nullptr),
          bytes_(into.size()) {}
    using transfer::bind;
    /// As every awaitable.
    bool await_ready() noexcept { return bytes_ <= detail::in_one_go && transfer::await_ready(); }
    /// As every awaitable.
    void await_suspend(std::coroutine_handle<> awaiting) {
        if (bytes_ <= detail::in_one_go) [[likely]]
            return transfer::await_suspend(awaiting);
        work_in_turns::bind({&of_.of_.links().owner(), {}});
        begin(arrived(), awaiting).resume();
    }
    /// As every awaitable.
    void await_resume() {
        if (bytes_ > detail::in_one_go) [[unlikely]]
            return work_in_turns::await_resume();
        if (of_.has_come(operation_, bytes_)) [[likely]]
            take_rest(bytes_);
    }

private:
    /// Shorter ones are copied in less time than it takes to find out where they lie.
    static constexpr std::size_t worth_it = 2048;

    /// The receive alone.
    struct arrival {
        transfer& of;
        void bind(const environment&) noexcept {}
        bool await_ready() noexcept { return of.await_ready(); }
        void await_suspend(std::coroutine_handle<> awaiting) noexcept { of.await_suspend(awaiting); }
        void await_resume() noexcept {}
    };
    /// Of a long one: the receive, and then pieces with turns between.
    [[nodiscard]] task<> arrived();
    bool next_piece() override {
        return take_rest(detail::whole_elements(of_.element())) && !of_.has_failed();
    }

    std::size_t bytes_;
};

}  // namespace rdmacoro

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/impl/collective.ipp>
#endif
