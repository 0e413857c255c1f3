// meeting_server: where the ranks of a job meet, over TCP: of rank 0, or of the program that started them.
#pragma once

#include <rdmacoro/service/detail/meeting_wire.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace rdmacoro::detail {

/// Takes what each rank gives, and gives all to each. Strangers are refused: they hold a connection for five seconds at most, as many of them as
/// there are ranks and 64 more; of more the first one is closed, unless it is a rank that has spoken by then. A rank that is closed so
/// connects again. For one thread, which calls `turn`.
class meeting_server {
public:
    /// Listens. `own`: rank 0 is in this process, and needs no connection. Throws `errc::address_invalid`, `errc::address_in_use`,
    /// `errc::no_resources`.
    meeting_server(const inet_endpoint& at, std::uint32_t size, const job_key& key, bool own);
    meeting_server(const meeting_server&) = delete;
    meeting_server& operator=(const meeting_server&) = delete;
    ~meeting_server();

    /// "127.0.0.1:45123": where it listens.
    [[nodiscard]] std::string address() const { return inet_endpoint::local(fd_).text(); }

    /// Waits for what happens next, and answers it. Throws as `patience::wait`.
    void turn(const patience& limit);

    /// The announcement of rank 0, which needs no connection.
    void put_own(std::vector<std::byte> bytes);
    /// The process of this rank has ended, as the program that started it knows.
    void ended(std::uint32_t rank);
    /// Tells all ranks why they wait in vain.
    void give_up(const std::string& why);
    /// Whether the exchange of this number has ended, and all ranks have been told; from then on `last` has it.
    [[nodiscard]] bool complete(std::uint32_t exchange) const noexcept;
    [[nodiscard]] const std::vector<std::vector<std::byte>>& last() const noexcept { return last_; }
    /// Whether each rank, but for the own one, has come and gone.
    [[nodiscard]] bool all_gone() const noexcept { return gone_ + (own_ ? 1 : 0) == size_; }
    /// Connections wait that could not be accepted: no descriptor was left.
    [[nodiscard]] bool no_descriptors() const noexcept { return no_descriptors_; }
    /// The ranks that have not taken all that they were told.
    [[nodiscard]] std::vector<std::uint32_t> untaken() const;
    /// The ranks that have given nothing to the exchange that is under way.
    [[nodiscard]] std::vector<std::uint32_t> missing() const;
    /// Not empty: a rank has gone, or has given up at its limit, so that the exchange does not end; this text says so.
    [[nodiscard]] const std::string& lost() const noexcept { return lost_; }

private:
    static constexpr duration hello_limit = std::chrono::seconds(5);
    static constexpr duration news_pause = std::chrono::milliseconds(50);
    static constexpr std::uint32_t no_rank = 0xffffffff;
    enum class stage : std::uint8_t { absent, here, gone };
    using shared_bytes = std::shared_ptr<const std::vector<std::byte>>;

    struct guest {
        int fd = -1;
        std::uint32_t rank = no_rank;
        meeting_nonce nonce{};
        time_point until{};  // of one without a rank
        std::vector<std::byte> in;
        std::deque<shared_bytes> out;
        std::size_t sent = 0;  // of the first of them
        bool waits = false;    // has given its bytes to the exchange that is under way
        bool ends = false;     // closed when all is sent
    };

    void accept();
    void read(guest& from);
    void take(guest& from, const meeting_frame& frame);
    void take_hello(guest& from, const meeting_hello& hello);
    void flush(guest& to) noexcept;
    void say(guest& to, shared_bytes what);
    void refuse(guest& to, const std::string& why);
    void close(guest& which) noexcept;
    void sweep();
    void given(std::uint32_t rank, std::vector<std::byte> bytes);
    void finish_if_all();
    void judge_gone();
    [[nodiscard]] shared_bytes missing_message() const;

    int fd_ = -1;
    std::uint32_t size_;
    job_key key_;
    std::vector<std::unique_ptr<guest>> guests_;
    std::vector<stage> stages_;
    std::vector<std::uint32_t> gave_up_;       // of those that have gone: at their limit
    std::vector<std::vector<std::byte>> now_;  // by rank; empty: missing
    std::vector<std::vector<std::byte>> last_;
    std::uint32_t came_ = 0;
    std::uint32_t gone_ = 0;
    std::uint32_t exchange_ = 0;
    bool own_ = false;
    bool accepts_ = true;
    bool no_descriptors_ = false;
    std::string lost_;
    time_point news_at_ = time_point::max();
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/meeting_server.ipp>
#endif
