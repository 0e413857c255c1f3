// meeting_launcher: a job by ranks that meet at an address, RDMACORO_JOB=tcp://alpha:7470.
#pragma once

#include <rdmacoro/service/detail/launcher.hpp>
#include <rdmacoro/service/detail/meeting_server.hpp>
#include <rdmacoro/service/detail/meeting_wire.hpp>
#include <rdmacoro/transport/detail/inet_address.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace rdmacoro::detail {

/// Rank 0 listens there, unless RDMACORO_SERVED says that another program does. The others connect, again and again while it does not
/// listen yet.
class meeting_launcher final : public launcher {
public:
    /// Throws `errc::address_invalid` for RDMACORO_JOB, and `errc::invalid_argument` for RDMACORO_RANK, RDMACORO_SIZE,
    /// RDMACORO_LOCAL_SIZE and RDMACORO_KEY.
    explicit meeting_launcher(const launch_environment& from);
    RDMACORO_DECL ~meeting_launcher() override;

    [[nodiscard]] RDMACORO_DECL std::string name() const override;
    [[nodiscard]] RDMACORO_DECL bool may_hang() const noexcept override;
    RDMACORO_DECL void open(const patience& limit) override;
    [[nodiscard]] RDMACORO_DECL std::vector<blob> exchange(const blob& mine, const patience& limit) override;
    RDMACORO_DECL void leave(const patience& limit) override;

private:
    [[nodiscard]] std::vector<inet_endpoint> resolve(int flags) const;
    /// The host is a name, and not an address in numbers.
    [[nodiscard]] bool is_name() const noexcept;
    /// An address that the host's name has within that host, as 127.0.1.1 in /etc/hosts of Debian: on other hosts it has another one.
    [[nodiscard]] bool is_of_this_host_alone(const inet_endpoint& at) const noexcept;
    void serve();
    /// `again`: something has listened there.
    void connect(const patience& limit, bool again);
    [[nodiscard]] bool try_connect(const inet_endpoint& to, const patience& limit);
    void greet(const patience& limit);
    /// Waits for the connection as `patience::wait`, and longer in a process that stood still: see `see_late`.
    bool await(short events, const patience& limit, time_point sooner = time_point::max());
    /// The limit is over: notes by how much, and how long an answer is waited for all the same.
    void see_late(const patience& limit) noexcept;
    void write(std::vector<std::byte> message, const patience& limit);
    /// The next message, which is valid until the next call.
    [[nodiscard]] meeting_frame read(std::size_t longest, const patience& limit) {
        return *read_until(time_point::max(), longest, limit);
    }
    /// None: `sooner` has come.
    [[nodiscard]] std::optional<meeting_frame> read_until(time_point sooner, std::size_t longest,
                                                          const patience& limit);
    [[nodiscard]] std::vector<blob> exchange_here(const blob& mine, const patience& limit);
    [[nodiscard]] std::vector<blob> exchange_there(const blob& mine, const patience& limit);
    [[noreturn]] void fail(errc code, const std::string& why) const;
    [[noreturn]] void fail_gone() const;
    [[noreturn]] void fail_silent() const;
    [[noreturn]] void fail_missing(std::span<const std::uint32_t> ranks, std::uint64_t count,
                                   const std::string& why) const;

    std::string url_;
    inet_address at_;
    job_key key_;
    bool serves_ = false;
    bool served_ = false;
    std::unique_ptr<meeting_server> server_;
    int fd_ = -1;
    int refused_ = 0;           // why the last connection was
    bool turned_away_ = false;  // the last connection was closed before the rendezvous had answered the hello
    bool welcome_ = false;
    duration late_by_{};                    // over the limit, when that was seen
    std::optional<time_point> late_until_;  // set: the limit is over, and answers are waited for until then
    std::vector<std::byte> in_;
    std::size_t taken_ = 0;  // of them, by the last message
    std::uint32_t exchanges_ = 0;
};

}  // namespace rdmacoro::detail

#if !defined(RDMACORO_SEPARATE_COMPILATION)
#include <rdmacoro/service/detail/impl/meeting_launcher.ipp>
#endif
