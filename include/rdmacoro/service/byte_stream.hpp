// byte_stream: bytes in order over an endpoint, without messages' bounds, as sockets have them.
#pragma once

#include <rdmacoro/coro/as_result.hpp>
#include <rdmacoro/coro/detail/counted.hpp>
#include <rdmacoro/coro/detail/turn_for_others.hpp>
#include <rdmacoro/coro/event.hpp>
#include <rdmacoro/coro/task.hpp>
#include <rdmacoro/coro/task_group.hpp>
#include <rdmacoro/coro/yield.hpp>
#include <rdmacoro/messaging/endpoint.hpp>
#include <rdmacoro/service/detail/stream_receive.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rdmacoro {

/// Limits of a `byte_stream`. Both ends are to have the same `piece_bytes`; the others are each end's own.
struct byte_stream_options {
    /// Writes of up to so many bytes are copied and end at once; longer ones go from the caller's memory. Reads into more than this
    /// have long pieces put into the caller's memory; shorter reads copy from where the bytes came. In bytes.
    std::size_t copy_limit = 4096;
    /// Memory for short writes that go out together while earlier ones are under way, in bytes, at least `copy_limit`. There are two
    /// of them, made with the first short write. At most `piece_bytes`.
    std::size_t gather_bytes = 16u << 10;
    /// Long writes go in pieces of so many bytes. A stream keeps at most one piece that came and was not read, beside what
    /// `mailbox_options::unexpected_bytes` allows its endpoint. At most `mailbox_options::lent_bytes`.
    std::size_t piece_bytes = 1u << 20;
    /// How long a read that is asked to stop waits for a piece that has begun to come, so that it is not lost.
    duration grace = std::chrono::seconds(1);
};

/// Counts of one stream since it was made.
struct byte_stream_counts {
    std::uint64_t bytes_written = 0;   ///< taken by writes that ended well
    std::uint64_t bytes_read = 0;      ///< given to reads
    std::uint64_t bytes_gathered = 0;  ///< of the written ones, copied by the stream before they were sent
    std::uint64_t bytes_copied = 0;  ///< of the read ones, copied by the stream after they had been received
    std::uint64_t messages = 0;      ///< sent with bytes of the stream
};

namespace detail {

/// Kinds of messages, by their tag.
inline constexpr tag_type stream_bytes_tag = 0;
inline constexpr tag_type stream_end_tag = 1;

/// One at a time: refuses the second.
class stream_turn {
public:
    stream_turn(bool& taken, const char* refusal) : taken_(taken) {
        if (taken) throw_error(errc::invalid_argument, refusal);
        taken = true;
    }
    stream_turn(const stream_turn&) = delete;
    stream_turn& operator=(const stream_turn&) = delete;
    ~stream_turn() { taken_ = false; }

private:
    bool& taken_;
};

/// Throws an error that says how many bytes were moved before it.
[[noreturn, gnu::cold]] inline void throw_stream_error(std::error_code code, const char* what,
                                                       std::size_t moved) {
    error_facts facts;
    facts.info = moved;
    throw error(code, std::string(what) + " after " + std::to_string(moved) + " bytes", facts);
}

/// The state of a stream. Does not move: its operations refer to it, and each is one of its owners.
template <class T, class P>
struct byte_stream_state final : counted {
    using peer_type = endpoint<T, P>;
    using connection_type = typename peer_type::connection_type;

    byte_stream_state(peer_type over, const byte_stream_options& chosen)
        : peer(std::move(over)), options(chosen) {
        if (chosen.piece_bytes == 0 || chosen.copy_limit > chosen.gather_bytes ||
            chosen.gather_bytes > chosen.piece_bytes)
            throw_error(errc::invalid_argument,
                        "byte_stream_options: copy_limit <= gather_bytes <= piece_bytes, which is not 0");
        if (chosen.piece_bytes > peer.connection().mailbox().options().lent_bytes)
            throw_error(errc::invalid_argument,
                        "byte_stream_options: piece_bytes <= mailbox_options::lent_bytes");
    }

    /// The stream is destroyed: operations that are under way end soon.
    [[gnu::cold]] void leave() noexcept {
        peer.abort();
        write_failure = make_error_code(errc::closed);
        read_failure = make_error_code(errc::closed);
        gathered.clear();
        left = {};
        moved.set();
    }

    // ---- writing

    void check_writable() const {
        if (write_failure) throw_stream_error(write_failure, "byte_stream: the writing side has failed", 0);
        if (shut) throw_error(errc::closed, "byte_stream: a write after shutdown");
    }
    void settle(std::error_code how) noexcept {
        sending.reset();
        if (how) {
            write_failure = how;
            gathered.clear();
        }
        moved.set();
    }
    /// Begins to send what is gathered. Precondition: nothing is being sent.
    void send_gathered() noexcept {
        std::swap(gathered, going);
        gathered.clear();
        ++counts.messages;
        sending.emplace(peer.send(std::span<const std::byte>(going), stream_bytes_tag));
        sending->bind({&peer.owner(), {}});
        sending->begin();
        if (sending->done()) {
            settle(sending->take_result().error());
        } else {
            behind.set();
        }
    }
    /// Sends what is gathered while an earlier send is under way.
    static task<> follow(byte_stream_state* self) {
        for (;;) {
            co_await self->behind.wait();
            self->behind.reset();
            while (self->sending) {
                const auto ended = co_await as_result(*self->sending);
                self->settle(ended.error());
                if (!self->gathered.empty()) self->send_gathered();
            }
        }
    }
    void prepare_to_gather() {
        if (!gathers) {
            gathered.reserve(options.gather_bytes);
            going.reserve(options.gather_bytes);
            background.spawn(&byte_stream_state::follow, this);
            gathers = true;
        }
    }

    // ---- reading

    /// Bytes of a message that was received and not read to its end.
    std::size_t take_left(std::span<std::byte> into) noexcept {
        const std::size_t some = std::min(into.size(), left.size());
        if (some == 0) return 0;
        copy_bytes(into.data(), left.data(), some);
        counts.bytes_copied += some;
        left = left.subspan(some);
        if (left.empty()) lent.release();
        return some;
    }
    [[noreturn, gnu::cold]] void too_long(std::uint64_t bytes) {
        read_failure = make_error_code(errc::protocol_violation);
        peer.abort();
        throw error(read_failure, "byte_stream: the peer sent a piece of " + std::to_string(bytes) +
                                      " bytes, and piece_bytes is " + std::to_string(options.piece_bytes) +
                                      " here");
    }
    /// The bytes that came, or the end.
    void came(const received& what) {
        if (what.tag == stream_bytes_tag && what.bytes <= options.piece_bytes) [[likely]]
            return;
        if (what.tag == stream_bytes_tag) too_long(what.bytes);
        if (what.tag == stream_end_tag && what.bytes == 0) {
            ended = true;
            return;
        }
        read_failure = make_error_code(errc::protocol_violation);
        peer.abort();
        throw error(read_failure, "byte_stream: the peer sent a message that is none of a stream's");
    }
    /// A receive has ended with an error. Returns where it is no end of the reads: the peer took a write back.
    [[gnu::cold]] void not_received(std::error_code why, const error_facts& facts, bool lost,
                                    std::size_t done) {
        if (why == errc::peer_canceled) return;
        if (why == errc::truncated) too_long(facts.info);
        if (lost) read_failure = make_error_code(errc::canceled);
        throw_stream_error(why, "byte_stream: read", done);
    }

    peer_type peer;
    byte_stream_options options;
    byte_stream_counts counts;

    std::vector<std::byte> gathered;
    std::vector<std::byte> going;
    std::optional<send_operation<connection_type>> sending;  // of `going`
    event moved;                                             // a send of gathered bytes has ended
    event behind;                                            // one is under way
    std::error_code write_failure;
    bool gathers = false;
    bool writing = false;
    bool shut = false;

    message lent;                     // `left` is in it, or in `overflow`
    std::span<const std::byte> left;  // to be read
    std::unique_ptr<std::byte[]> overflow;
    std::error_code read_failure;
    bool reading = false;
    bool ended = false;

    task_group background;  // ends first
};

}  // namespace detail

/// A stream of bytes over an endpoint of transport `T`, as a connected socket is one: what is written here is read there, in order,
/// in pieces of any size, and each direction ends on its own. Movable; operations refer to its state, not to it. Only for its
/// scheduler's thread. The peer has a `byte_stream` over its endpoint, too, and nothing else uses either endpoint.
///
/// Writes of up to `byte_stream_options::copy_limit` bytes are copied once, and go out at once or, while earlier ones are under way,
/// together. Longer ones are sent from the caller's memory, and go straight to the reader's memory where the read is as long:
/// by the protocols of `P`, as messages do.
///
/// Destroying it ends the link at once, and everything pending; `close` first to be sure that what was written arrives.
template <transport T, protocol_list P = default_protocols<T>>
class byte_stream {
    using state = detail::byte_stream_state<T, P>;

public:
    /// The endpoint that it runs over.
    using endpoint_type = endpoint<T, P>;

    byte_stream() noexcept = default;
    /// Over an open endpoint. Throws `errc::invalid_argument` for options that contradict each other.
    explicit byte_stream(endpoint_type over, const byte_stream_options& options = {})
        : state_(new state(std::move(over), options)) {}
    byte_stream(byte_stream&&) noexcept = default;
    byte_stream& operator=(byte_stream&& other) noexcept {
        if (this != &other) {
            leave();
            state_ = std::move(other.state_);
        }
        return *this;
    }
    ~byte_stream() { leave(); }

    /// Awaitable.
    /// Takes a contiguous range of trivially copyable elements, or a part of one as a span.
    /// Completes: when the elements' memory is the caller's again: a short write when it is copied, a long one when it has been
    ///     sent. Neither says that the peer has read it.
    /// Buffers: borrowed until then; a temporary that owns its elements is refused.
    /// Concurrency: one `write`, `flush`, `shutdown` or `close` at a time; `errc::invalid_argument` for the second. Reads are independent of it.
    /// Errors: `errc::closed`, `errc::peer_lost`, also those of earlier short writes; `errc::closed` after `shutdown`. `info()` of the error is how many bytes of
    ///     this write were certainly written before it. No write follows one that failed.
    /// Cancellation: while it waits for room nothing was written, and the stream goes on. In the middle of a long write the writing side has failed: of the
    ///     piece that was under way the peer gets all or nothing, and never the stream's end.
    /// Example:
    ///     co_await stream.write(numbers);
    template <class Range>
        requires(detail::plain_range<Range> && !detail::owning_temporary<Range>)
    [[nodiscard]] task<> write(Range&& elements) {
        return write_bytes(state_, detail::range_bytes(elements));
    }

    /// Awaitable.
    /// Ends with how many bytes were read: at least one, or 0 at the end of the stream, and for an empty `into`.
    /// Completes: when there are bytes, or the peer has shut its writing side down and all bytes before were read.
    /// Buffers: borrowed until then.
    /// Concurrency: one `read_some` or `read_exactly` at a time; `errc::invalid_argument` for the second.
    /// Errors: `errc::closed`, `errc::peer_lost` where the peer left without `shutdown`: the stream is not whole.
    ///     `errc::protocol_violation` where the peer is no stream, or has longer pieces.
    /// Cancellation: loses nothing: the next read goes on where this one began. A piece that has begun to come is waited for
    ///     `byte_stream_options::grace` long; if it is not there by then the reading side has failed.
    /// Example:
    ///     while (std::size_t n = co_await stream.read_some(buffer)) eat(std::span(buffer).first(n));
    [[nodiscard]] task<std::size_t> read_some(std::span<std::byte> into) {
        return read_bytes(state_, into, false);
    }

    /// Awaitable.
    /// Ends with the length of `into` in bytes, or with 0 where the stream ended before its first byte.
    /// Completes: when all of `into` is filled.
    /// Buffers: borrowed until then.
    /// Concurrency: as `read_some`.
    /// Errors: as `read_some`, and `errc::closed` where the stream ended in the middle. `info()` of each is how many bytes are in
    ///     `into`; they are read.
    /// Cancellation: as `read_some`; the bytes that `info()` of the error counts are in `into`.
    /// Example:
    ///     while (co_await stream.read_exactly(records)) eat(records);
    template <class Range>
        requires detail::writable_range<Range>
    [[nodiscard]] task<std::size_t> read_exactly(Range&& elements) {
        return read_bytes(state_, detail::range_bytes(elements), true);
    }

    /// Awaitable.
    /// Completes: when all that was written has been handed to the network.
    /// Buffers: none.
    /// Concurrency: as `write`.
    /// Errors: those of earlier short writes.
    /// Cancellation: at any time; nothing is lost.
    /// Example:
    ///     co_await stream.flush();
    [[nodiscard]] task<> flush() { return flush_all(state_, true); }

    /// Awaitable.
    /// The half-close: the peer reads all that was written and then the end of the stream; it may go on to write.
    /// Completes: when the end has been handed to the network. A second one ends at once.
    /// Buffers: none.
    /// Concurrency: as `write`.
    /// Errors: as `write`.
    /// Cancellation: at any time; may be repeated.
    /// Example:
    ///     co_await stream.shutdown();
    [[nodiscard]] task<> shutdown() { return shut_down(state_); }

    /// Awaitable.
    /// Shuts the writing side down, if that is not done, and closes the endpoint: what the peer still writes is not read.
    /// Completes: when all that was written is in the peer's mailbox, and the link is closed.
    /// Buffers: none.
    /// Concurrency: once, with no read under way.
    /// Errors: where bytes written before are not sure to arrive: as `write`.
    /// Cancellation: closes at once; bytes may be lost, and the peer gets an error then and not the end of the stream.
    /// Example:
    ///     co_await timeout(stream.close(), 5s);
    [[nodiscard]] task<> close() { return close_all(state_); }

    /// Ends the link now; everything pending ends with `errc::closed`.
    void abort() noexcept {
        if (state_) state_->peer.abort();
    }

    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(state_); }
    /// Whether the peer has ended its direction, and all of it was read.
    [[nodiscard]] bool at_end() const noexcept { return state_ && state_->ended && state_->left.empty(); }
    /// The stream's counts. Precondition: not default-constructed or moved from.
    [[nodiscard]] const byte_stream_counts& counts() const noexcept { return state_->counts; }
    /// Its endpoint, for its counts, name and capabilities. Precondition: as `counts`.
    [[nodiscard]] const endpoint_type& peer() const noexcept { return state_->peer; }

private:
    using owner = detail::counted_ptr<state>;

    [[nodiscard]] static state& there(const owner& self) {
        if (!self)
            detail::throw_error(errc::invalid_argument, "byte_stream: default-constructed, or moved from");
        return *self;
    }
    void leave() noexcept {
        if (state_) state_->leave();
    }

    static task<> write_bytes(owner self, std::span<const std::byte> from);
    static task<std::size_t> read_bytes(owner self, std::span<std::byte> into, bool all);
    static task<> flush_all(owner self, bool takes_turn);
    static task<> shut_down(owner self);
    static task<> close_all(owner self);

    owner state_;
};

template <transport T, protocol_list P>
task<> byte_stream<T, P>::write_bytes(owner self, std::span<const std::byte> from) {
    state& s = there(self);
    co_await detail::unless_stopped();
    const detail::stream_turn turn(s.writing, "byte_stream: a write while another one is under way");
    s.check_writable();
    if (from.size() <= s.options.copy_limit) {
        s.prepare_to_gather();
        while (s.gathered.size() + from.size() > s.options.gather_bytes) {
            s.moved.reset();
            co_await s.moved.wait();
            s.check_writable();
        }
        s.gathered.insert(s.gathered.end(), from.begin(), from.end());
        s.counts.bytes_gathered += from.size();
        if (!s.sending && !s.gathered.empty()) s.send_gathered();
        if (s.write_failure) [[unlikely]]
            detail::throw_stream_error(s.write_failure, "byte_stream: write", 0);
    } else {
        while (!s.gathered.empty()) {  // what is being sent keeps its place
            s.moved.reset();
            co_await s.moved.wait();
            s.check_writable();
        }
        for (std::size_t at = 0; at < from.size(); at += s.options.piece_bytes) {
            const auto piece = from.subspan(at, std::min(s.options.piece_bytes, from.size() - at));
            ++s.counts.messages;
            const auto sent = co_await as_result(s.peer.send(piece, detail::stream_bytes_tag));
            if (!sent) {
                s.write_failure = sent.error();
                detail::throw_stream_error(sent.error(), "byte_stream: write", at);
            }
        }
    }
    s.counts.bytes_written += from.size();
}

template <transport T, protocol_list P>
task<std::size_t> byte_stream<T, P>::read_bytes(owner self, std::span<std::byte> into, bool all) {
    state& s = there(self);
    co_await detail::unless_stopped();
    const detail::stream_turn turn(s.reading, "byte_stream: a read while another one is under way");
    std::size_t done = 0;
    for (;;) {
        if (const std::size_t some = s.take_left(into.subspan(done)); some != 0) {
            s.counts.bytes_read += some;
            done += some;
        }
        if (done == into.size() || (done != 0 && !all)) co_return done;
        if (s.read_failure)
            detail::throw_stream_error(s.read_failure, "byte_stream: the reading side has failed", done);
        if (s.ended) {
            if (done == 0) co_return 0;
            detail::throw_stream_error(make_error_code(errc::closed),
                                       "byte_stream: the stream ended in the middle", done);
        }
        const std::span<std::byte> rest = into.subspan(done);
        if (rest.size() <= s.options.copy_limit) {
            auto receive = s.peer.recv_lent();
            detail::stream_receive ending(receive, P::delegates, s.options.grace);
            auto got = co_await ending;
            if (!got) {
                s.not_received(got.error(), got.facts(), ending.gave_up(), done);
                continue;
            }
            s.came({got->size(), got->tag(), 0});
            s.lent = *std::move(got);
            s.left = s.lent.bytes();
        } else {
            std::span<std::byte> beyond;
            if (rest.size() < s.options.piece_bytes) {
                if (!s.overflow)
                    s.overflow = std::make_unique_for_overwrite<std::byte[]>(s.options.piece_bytes);
                beyond = {s.overflow.get(), s.options.piece_bytes - rest.size()};
            }
            auto receive = s.peer.recv(beyond.empty() ? mutable_buffers(rest) : scatter(rest, beyond));
            detail::stream_receive ending(receive, P::delegates, s.options.grace);
            const auto got = co_await ending;
            if (!got) {
                s.not_received(got.error(), got.facts(), ending.gave_up(), done);
                continue;
            }
            s.came(*got);
            const std::size_t here = std::min(got->bytes, rest.size());
            s.left = beyond.first(got->bytes - here);
            s.counts.bytes_read += here;
            done += here;
        }
    }
}

template <transport T, protocol_list P>
task<> byte_stream<T, P>::flush_all(owner self, bool takes_turn) {
    state& s = there(self);
    co_await detail::unless_stopped();
    std::optional<detail::stream_turn> turn;
    if (takes_turn) turn.emplace(s.writing, "byte_stream: a flush while a write is under way");
    while (s.sending || !s.gathered.empty()) {
        s.moved.reset();
        co_await s.moved.wait();
    }
    if (s.write_failure)
        detail::throw_stream_error(s.write_failure, "byte_stream: the writing side has failed", 0);
}

template <transport T, protocol_list P>
task<> byte_stream<T, P>::shut_down(owner self) {
    state& s = there(self);
    const detail::stream_turn turn(s.writing, "byte_stream: a shutdown while a write is under way");
    if (s.shut) {
        co_await detail::turn_for_others();
        co_return;
    }
    co_await flush_all(self, false);
    co_await s.peer.send({}, detail::stream_end_tag);
    s.shut = true;
}

template <transport T, protocol_list P>
task<> byte_stream<T, P>::close_all(owner self) {
    state& s = there(self);
    try {
        co_await shut_down(self);
    } catch (...) {
        s.peer.abort();
        throw;
    }
    co_await s.peer.close();
}

}  // namespace rdmacoro
