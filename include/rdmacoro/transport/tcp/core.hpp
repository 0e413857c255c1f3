// One socket of a tcp domain, from its first system call to its last: what a link, a connection and a listener hold.
#pragma once

#include <rdmacoro/coro/intrusive_list.hpp>
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

class tcp_core;
class tcp_engine;

/// Who drives a socket that is not a link yet: told when something happened to it.
class tcp_watcher {
public:
    virtual void progress(tcp_core& core) noexcept = 0;

protected:
    ~tcp_watcher() = default;
};

/// Which request of a socket a completion belongs to: the low bits of its user data, the rest is the socket.
enum class tcp_request : unsigned {
    receive_now,   ///< receives what is there, or nothing; over when the call that submits it returns
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

/// A socket's state machine.
///
///   opening -> greeting -> ready -> closed        the two ends of a connection
///   listening -> closed
///
/// While it is `ready`, receiving is in one of these states: *tried* (attempted without waiting at each poll: the hot ones,
/// and for a while those that were found readable), *armed* (a request waits in the kernel), *canceling* (a multishot
/// receive was asked to end), or *stalled* (the sink takes nothing now). Only an armed multishot receive lets the kernel
/// take bytes by itself, into the domain's buffers; they are held and handed up before anything is read otherwise.
///
/// Belongs to its engine, which destroys it once it is closed and the kernel holds no request of it.
class alignas(64) tcp_core : public list_node<tcp_all_tag>,
                             public list_node<tcp_dirty_tag>,
                             public list_node<tcp_work_tag>,
                             public list_node<tcp_readable_tag> {
public:
    enum class phase : std::uint8_t { opening, greeting, ready, listening, closed };

    static constexpr std::size_t copy_limit = 2 * 1024;  // payload up to this is copied, longer is gathered
    static constexpr std::size_t in_place_limit = 128;   // payload from this on may be gathered if asked for
    static constexpr unsigned most_pieces = 64;          // of one send
    static constexpr unsigned steady_burst = 8;          // polls in a row that found several new messages

    inline tcp_core(tcp_engine& engine, int fd) noexcept;
    tcp_core(const tcp_core&) = delete;
    tcp_core& operator=(const tcp_core&) = delete;
    ~tcp_core() = default;

    // What a link does.
    inline post_result post(const message_header& header, const const_buffers& payload,
                            completion& c) noexcept;
    inline post_result post_in_place(const message_header& header, const const_buffers& payload,
                                     completion& c) noexcept;
    inline post_result post_copied(const message_header& header, const const_buffers& payload) noexcept;
    inline post_result get(const remote_region& there, std::span<std::byte> into, completion& c) noexcept;
    inline post_result put(std::span<const std::byte> from, const remote_region& there,
                           completion& c) noexcept;
    inline bool revoke(completion& c) noexcept;
    inline unsigned poll(unsigned budget) noexcept;
    lent_buffer keep() noexcept { return receiver_.keep(); }
    [[nodiscard]] inline std::string peer_name() const;

    /// Somebody listens from now on.
    inline void attach(tcp_upper& up) noexcept;
    /// Ends everything posted with `reason`, tells who listens, and lets go of the socket.
    inline void close(std::error_code reason) noexcept;
    /// Who has it needs it no more: closes it, without telling, if it is open.
    inline void abandon() noexcept;

    // What a watcher does.
    void set_watcher(tcp_watcher* watcher) noexcept { watcher_ = watcher; }
    inline void start_connect(const sockaddr* address, socklen_t bytes);
    inline void start_accept() noexcept;
    inline void start_greeting(const tcp_greeting& own) noexcept;
    void become_ready() noexcept { phase_ = phase::ready; }
    /// What `connect` or `accept` ended with; 1 while it has not.
    [[nodiscard]] int take_outcome() noexcept { return std::exchange(outcome_, no_outcome); }
    static constexpr int no_outcome = 1 << 30;
    [[nodiscard]] const tcp_greeting::bytes& greeting() const noexcept { return greeting_; }
    [[nodiscard]] std::size_t greeted() const noexcept { return greeted_; }
    /// Whether the stream has ended, and how.
    [[nodiscard]] bool ended() const noexcept { return ended_; }

    [[nodiscard]] phase now() const noexcept { return phase_; }
    [[nodiscard]] int fd() const noexcept { return fd_; }
    [[nodiscard]] tcp_engine& engine() const noexcept { return engine_; }
    /// The kernel has a request of this socket that ends only later.
    [[nodiscard]] bool in_kernel() const noexcept { return in_kernel_ != 0; }
    [[nodiscard]] bool hot() const noexcept { return hot_; }

private:
    friend class tcp_engine;

    enum class armed : std::uint8_t { no, poll, multishot, canceling };

    // Sending.
    [[nodiscard]] inline bool goes_at_once() noexcept;
    inline std::byte* reserve(std::size_t bytes) noexcept;
    inline post_result gather_and_post(const message_header& header, const const_buffers& payload,
                                       completion& c) noexcept;
    inline post_result no_room() noexcept;
    inline void send_operations() noexcept;
    inline void fill_queue() noexcept;
    inline void flush() noexcept;
    [[nodiscard]] inline bool lets_wait() noexcept;
    [[nodiscard]] inline bool in_steady_burst() const noexcept;
    inline void submit_send() noexcept;
    inline void sent(int outcome) noexcept;
    inline void send_failed() noexcept;
    inline void mark_dirty() noexcept;
    inline void mark_work() noexcept;

    // Receiving.
    [[nodiscard]] bool can_receive() const noexcept {
        return armed_ == armed::no && !stalled_ && waited_polls_ == 0 && !ended_ &&
               held_first_ == no_buffer && !received_ &&
               ((phase_ == phase::ready && up_ != nullptr) || phase_ == phase::greeting);
    }
    [[nodiscard]] inline bool prepare_receive() noexcept;
    inline void submit_receive() noexcept;
    inline unsigned serve(unsigned budget) noexcept;
    inline void hand_up(unsigned& budget) noexcept;
    inline bool look_at_outcome() noexcept;
    inline void greet() noexcept;
    [[nodiscard]] inline bool feed_held() noexcept;
    inline void hold(std::uint16_t buffer, std::uint32_t bytes) noexcept;
    inline void try_soon() noexcept;
    inline void arm_receive() noexcept;
    inline void cancel_receive() noexcept;
    inline void active() noexcept;

    inline void complete_all(std::error_code reason) noexcept;
    inline void let_go() noexcept;
    inline void drop_held() noexcept;

    static constexpr std::uint16_t no_buffer = 0xffff;

    tcp_engine& engine_;
    tcp_upper* up_ = nullptr;
    tcp_watcher* watcher_ = nullptr;
    int fd_;
    phase phase_ = phase::opening;

    // Sending.
    bool full_ = false;           // the socket takes nothing; a poll for room is in the kernel
    bool broken_ = false;         // nothing can be sent any more
    bool want_writable_ = false;  // the sink was told to try again
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
    bool stalled_ = false;   // what has come was not all handed up
    bool ended_ = false;     // nothing more comes
    bool received_ = false;  // `receive_outcome_` is to be looked at
    armed armed_ = armed::no;
    int receive_outcome_ = 0;
    std::uint16_t held_first_ = no_buffer;  // the domain's buffers with bytes for this link, in order
    std::uint16_t held_last_ = no_buffer;
    std::uint32_t held_taken_ = 0;  // bytes of the first that were handed up
    unsigned arrivals_in_a_row_ = 0;
    std::uint64_t last_active_turn_ = 0;
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
