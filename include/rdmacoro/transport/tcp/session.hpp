// One socket of a tcp domain, from its first system call to its last. Held by a link, a connection or a listener.
#pragma once

#include <rdmacoro/coro/detail/config.hpp>
#include <rdmacoro/coro/intrusive_list.hpp>
#include <rdmacoro/memory/region.hpp>
#include <rdmacoro/transport/tcp/completion_list.hpp>
#include <rdmacoro/transport/tcp/one_sided.hpp>
#include <rdmacoro/transport/tcp/receiver.hpp>
#include <rdmacoro/transport/tcp/send_queue.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <sys/socket.h>
#include <sys/uio.h>

namespace rdmacoro::detail {

class tcp_session;
class tcp_engine;

/// Drives a socket that is not a link yet; notified of its events.
class tcp_watcher {
public:
    virtual void progress(tcp_session& session) noexcept = 0;

protected:
    ~tcp_watcher() = default;
};

/// Which request of a socket a completion belongs to: the low bits of its user data, the rest is the socket.
enum class tcp_request : unsigned {
    receive_now,   ///< receives available bytes, or none; over when the call that submits it returns
    send_now,      ///< the same for sending
    receive_many,  ///< multishot receive
    readable,      ///< poll
    writable,      ///< poll
    connect,
    accept,
    cancel,  ///< belongs to no socket
};

struct tcp_all_tag;
struct tcp_dirty_tag;
struct tcp_work_tag;
struct tcp_readable_tag;
struct tcp_sent_tag;

/// A socket's state machine.
///
///   opening -> greeting -> ready -> closed        the two ends of a connection
///   listening -> closed
///
/// While it is `ready`, receiving is in one of these states: *tried* (attempted without waiting at each poll: the hot
/// ones, and for a while the sockets that were found readable), *armed* (a request waits in the kernel), *canceling* (a
/// multishot receive was asked to end), or *stalled* (the sink takes nothing now). Only an armed multishot receive lets
/// the kernel take bytes by itself, into the domain's buffers; they are held and handed up before anything is read
/// otherwise.
///
/// Belongs to its engine, which destroys it once it is closed and the kernel holds no request of it.
class alignas(64) tcp_session : public list_node<tcp_all_tag>,
                                public list_node<tcp_dirty_tag>,
                                public list_node<tcp_work_tag>,
                                public list_node<tcp_readable_tag>,
                                public list_node<tcp_sent_tag> {
public:
    enum class phase : std::uint8_t { opening, greeting, ready, listening, closed };

    static constexpr std::size_t copy_limit = 2 * 1024;  // payload up to this is copied, longer is gathered
    static constexpr std::size_t in_place_limit = 128;   // payload from this on may be gathered if asked for
    static constexpr unsigned most_pieces = 64;          // of one send
    static constexpr unsigned steady_burst = 8;          // polls in a row that found several new messages

    tcp_session(tcp_engine& engine, int fd) noexcept;
    tcp_session(const tcp_session&) = delete;
    tcp_session& operator=(const tcp_session&) = delete;
    ~tcp_session() = default;

    // The functions of a link.
    post_result post(const message_header& header, const const_buffers& payload, completion& c) noexcept;
    post_result post_in_place(const message_header& header, const const_buffers& payload,
                              completion& c) noexcept;
    post_result post_copied(const message_header& header, const const_buffers& payload) noexcept;
    post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept;
    post_result put(std::span<const std::byte> from, const remote_region& there, completion& c) noexcept;
    bool revoke(completion& c) noexcept;
    unsigned poll(unsigned budget) noexcept;
    lent_buffer keep() noexcept { return receiver_.keep(); }
    [[nodiscard]] std::string peer_name() const;
    /// By `host_hash`.
    [[nodiscard]] std::uint8_t peer_host() const noexcept;
    [[nodiscard]] scheduler& owner() const noexcept;
    [[nodiscard]] region expose(std::span<std::byte> memory, access_rights rights) noexcept;

    /// Frames are handed up to `up` from now on.
    void attach(tcp_upper& up) noexcept;
    /// Ends everything posted with `reason`, notifies the upper layer, and closes the socket.
    void close(std::error_code reason) noexcept;
    /// Called by the owner on release; closes without notifying the upper layer.
    void abandon() noexcept;

    // The functions of a watcher.
    void set_watcher(tcp_watcher* watcher) noexcept { watcher_ = watcher; }
    void start_connect(const sockaddr* address, socklen_t bytes);
    void start_accept() noexcept;
    void start_greeting(const tcp_greeting& own) noexcept;
    void become_ready() noexcept { phase_ = phase::ready; }
    /// The outcome of `connect` or `accept`; `no_outcome` while there is none.
    [[nodiscard]] int take_outcome() noexcept { return std::exchange(outcome_, no_outcome); }
    static constexpr int no_outcome = 1 << 30;
    [[nodiscard]] const tcp_greeting::bytes& greeting() const noexcept { return greeting_; }
    [[nodiscard]] std::size_t greeted() const noexcept { return greeted_; }
    /// Whether the stream has ended, and how.
    [[nodiscard]] bool ended() const noexcept { return ended_; }

    [[nodiscard]] phase now() const noexcept { return phase_; }
    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] tcp_engine& engine() const noexcept { return engine_; }
    /// Whether a request is with the kernel, or has ended and its outcome was not taken: another one would overwrite that.
    [[nodiscard]] bool awaits_outcome() const noexcept { return in_kernel_ != 0 || outcome_ != no_outcome; }
    [[nodiscard]] bool hot() const noexcept { return hot_; }

private:
    friend class tcp_engine;
    friend class tcp_liveness;

    enum class armed : std::uint8_t { no, poll, multishot, canceling };

    // Sending.
    [[nodiscard]] bool goes_at_once() noexcept;
    std::byte* reserve(std::size_t bytes) noexcept;
    post_result gather_and_post(const message_header& header, const const_buffers& payload,
                                completion& c) noexcept;
    post_result no_room() noexcept;
    void send_operations() noexcept;
    void fill_queue() noexcept;
    void flush() noexcept;
    [[nodiscard]] bool lets_wait() noexcept;
    [[nodiscard]] bool in_steady_burst() const noexcept;
    void submit_send() noexcept;
    void sent(int outcome) noexcept;
    void send_failed() noexcept;
    void mark_dirty() noexcept;
    void mark_work() noexcept;

    // Receiving.
    [[nodiscard]] bool can_receive() const noexcept {
        return armed_ == armed::no && !stalled_ && waited_polls_ == 0 && !ended_ &&
               held_first_ == no_buffer && !received_ &&
               ((phase_ == phase::ready && up_ != nullptr) || phase_ == phase::greeting);
    }
    [[nodiscard]] bool prepare_receive() noexcept;
    void submit_receive() noexcept;
    unsigned serve(unsigned budget) noexcept;
    void hand_up(unsigned& budget) noexcept;
    bool look_at_outcome() noexcept;
    void greet() noexcept;
    [[nodiscard]] bool feed_held() noexcept;
    void hold(std::uint16_t buffer, std::uint32_t bytes) noexcept;
    void try_soon() noexcept;
    void arm_receive() noexcept;
    void cancel_receive() noexcept;
    void cancel(tcp_request what) noexcept;
    void active() noexcept;

    void complete_all(std::error_code reason) noexcept;
    void let_go() noexcept;
    void drop_held() noexcept;

    static constexpr std::uint16_t no_buffer = 0xffff;

    tcp_engine& engine_;
    tcp_upper* up_ = nullptr;
    tcp_watcher* watcher_ = nullptr;
    int fd_;
    phase phase_ = phase::opening;

    // Sending.
    bool full_ = false;           // the socket takes nothing; a poll for room is in the kernel
    bool broken_ = false;         // nothing can be sent any more
    bool silent_ = false;         // data was unacknowledged for long, the last time that was looked at
    bool want_writable_ = false;  // a post was answered `retry`: the sink is to be notified
    std::uint64_t last_post_turn_ = 0;
    std::uint64_t burst_epoch_ = 0;  // the engine's epoch when a flush last carried several messages
    std::size_t sending_ = 0;        // bytes of the send that is being submitted
    unsigned unflushed_ = 0;         // messages since the last flush
    unsigned seen_unflushed_ = 0;    // of them, how many an earlier poll has seen
    unsigned burst_polls_ =
        0;  // polls in a row, without an idle one between, that found several new messages
    std::uint64_t polled_in_ = 0;  // the turn in which `poll` last tried to receive
    unsigned waited_polls_ = 0;    // polls since the last flush that let the messages wait
    tcp_send_queue queue_;
    tcp_completion_list copied_;    // messages in the queue's chunk that no flush has touched
    tcp_completion_list finished_;  // over; to be called at the next poll
    tcp_completion_list failed_;    // to be called with the reason when the link goes down

    // Receiving.
    bool hot_ = false;
    int place_ = -1;         // among the ring's files, of a hot one
    bool stalled_ = false;   // received frames are left that the sink deferred or the budget did not cover
    bool ended_ = false;     // no more data arrives
    bool received_ = false;  // `receive_outcome_` is to be looked at
    bool found_no_buffer_ = false;  // its last multishot receive, for which it is polled the next time
    armed armed_ = armed::no;
    int receive_outcome_ = 0;
    std::uint16_t held_first_ = no_buffer;  // the domain's buffers with bytes for this link, in order
    std::uint16_t held_last_ = no_buffer;
    std::uint32_t held_taken_ = 0;  // bytes of the first that were handed up
    unsigned arrivals_in_a_row_ = 0;
    std::uint64_t last_active_turn_ = 0;
    time_point last_active_{};  // not kept while it is hot
    unsigned in_count_ = 0;
    iovec in_pieces_[2]{};
    msghdr in_message_{};

    tcp_operations operations_;
    tcp_server server_;
    tcp_receiver receiver_;

    // Opening and closing.
    int outcome_ = no_outcome;
    unsigned in_kernel_ = 0;
    bool owned_ = true;  // a link, connection, listener or operation refers to it
    std::size_t greeted_ = 0;
    tcp_greeting::bytes greeting_{};
    std::unique_ptr<sockaddr_storage> address_;  // stays until the kernel has connected
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/transport/tcp/engine.hpp>
#endif
