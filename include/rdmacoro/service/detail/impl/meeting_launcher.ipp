// How a rank meets the others at an address.
#pragma once

#include <rdmacoro/service/detail/meeting_launcher.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>
#include <rdmacoro/transport/detail/connect_info_exchange.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD meeting_launcher::meeting_launcher(const launch_environment& from)
    : url_(from.has("RDMACORO_JOB") ? *from.find("RDMACORO_JOB") : std::string()),
      key_(from.find("RDMACORO_KEY")),
      served_(from.has("RDMACORO_SERVED")) {
    if (!url_.starts_with("tcp://"))
        throw error(errc::address_invalid,
                    "RDMACORO_JOB is " + in_quotes(url_) + ", not tcp://host:port such as tcp://alpha:7470");
    at_ = inet_address::parse("tcp", url_, " in RDMACORO_JOB, such as tcp://alpha:7470");
    if (at_.host.empty() || at_.port == "0")
        throw error(errc::address_invalid,
                    "RDMACORO_JOB is " + in_quotes(url_) + ": it needs a host and a port");
    const auto size = from.number("RDMACORO_SIZE", most_ranks);
    const auto rank = from.number("RDMACORO_RANK", most_ranks);
    if (!size || !rank || *rank >= *size)
        throw error(errc::invalid_argument,
                    "RDMACORO_JOB is set: RDMACORO_SIZE has to be the number of ranks, and RDMACORO_RANK a "
                    "number below it");
    rank_ = *rank;
    size_ = *size;
    serves_ = rank_ == 0 && !served_;
    if (const auto here = from.number("RDMACORO_LOCAL_SIZE", most_ranks)) {
        if (*here == 0 || *here > size_)
            throw error(errc::invalid_argument,
                        "RDMACORO_LOCAL_SIZE is " + std::to_string(*here) + ": of " + std::to_string(size_) +
                            " ranks in RDMACORO_SIZE this host has 1 at least, and all at most");
        on_one_host_ = *here == size_;
    }
    if (const std::string* const host = from.find("RDMACORO_HOST")) host_ = host->substr(0, 255);
}
RDMACORO_COLD meeting_launcher::~meeting_launcher() {
    if (fd_ >= 0) ::close(fd_);
}

RDMACORO_COLD std::string meeting_launcher::name() const { return url_; }
RDMACORO_COLD bool meeting_launcher::may_hang() const noexcept {
    // A name is looked up by the system, which takes its time; not for one that has its connection.
    return fd_ < 0 && !server_ && is_name();
}
RDMACORO_COLD bool meeting_launcher::is_name() const noexcept {
    return at_.host.find_first_not_of("0123456789.") != std::string::npos &&
           at_.host.find(':') == std::string::npos;
}
RDMACORO_COLD bool meeting_launcher::is_of_this_host_alone(const inet_endpoint& at) const noexcept {
    return is_name() && at_.host != "localhost" && at.is_loopback();
}

RDMACORO_COLD void meeting_launcher::fail(errc code, const std::string& why) const {
    throw error(code, url_ + ": " + why + late_text(late_by_));
}
RDMACORO_COLD void meeting_launcher::fail_gone() const {
    fail(errc::peer_lost,
         served_ ? "the program that listens there has gone" : "rank 0, which listens there, has gone");
}
RDMACORO_COLD void meeting_launcher::fail_silent() const {
    fail(errc::timed_out, served_ ? "the program that listens there does not answer"
                                  : "rank 0, which listens there, does not answer");
}
RDMACORO_COLD void meeting_launcher::fail_missing(std::span<const std::uint32_t> ranks, std::uint64_t count,
                                                  const std::string& why) const {
    fail(errc::timed_out, (count == 1 ? "rank " : "ranks ") + list_of_ranks(ranks, count) + " of " +
                              std::to_string(size_) + (count == 1 ? " has" : " have") +
                              " not come within the limit" + why);
}

RDMACORO_COLD std::vector<inet_endpoint> meeting_launcher::resolve(int flags) const {
    inet_resolved found = inet_resolved::ask(at_, flags);
    if (found.no_descriptors)
        fail(errc::no_resources, "no descriptor is left to look the host's name up with");
    if (found.endpoints.empty()) fail(errc::address_invalid, "the system knows no host of this name");
    return std::move(found.endpoints);
}

RDMACORO_COLD void meeting_launcher::open(const patience& limit) {
    late_by_ = {};
    late_until_.reset();
    if (serves_) return serve();
    // Where strangers connect faster than they are refused, a rank may be closed among them before it has been heard.
    constexpr duration longest = std::chrono::seconds(5);
    const time_point until = deadline_after(monotonic_now(), longest);
    duration pause = std::chrono::milliseconds(1);
    for (bool again = false;; again = true) {
        connect(limit, again);
        turned_away_ = false;
        try {
            greet(limit);
            return;
        } catch (const error& failed) {
            if (failed.code() == errc::timed_out) fail_silent();
            if (!turned_away_) throw;
        }
        ::close(std::exchange(fd_, -1));
        in_.clear();
        taken_ = 0;
        if (monotonic_now() >= until)
            fail(errc::peer_lost, "what listens there closes connections before it answers: it is another "
                                  "program, or strangers "
                                  "connect in numbers");
        try {
            limit.sleep(pause);
        } catch (const error& failed) {
            if (failed.code() != errc::timed_out) throw;
            see_late(limit);
            fail(errc::timed_out, "what listens there closes connections before it answers");
        }
        pause = std::min(2 * pause, duration(std::chrono::milliseconds(50)));
    }
}

RDMACORO_COLD void meeting_launcher::serve() {
    inet_endpoint at = resolve(AI_PASSIVE).front();
    if (is_of_this_host_alone(at)) at = at.every_address();
    server_ = std::make_unique<meeting_server>(at, size_, key_, true);
    const std::string where = server_->address();
    if (!where.starts_with("0.0.0.0:") && !where.starts_with("[::]:"))
        address_ = where.substr(0, where.rfind(':'));
}

RDMACORO_COLD void meeting_launcher::connect(const patience& limit, bool again) {
    duration pause = std::chrono::milliseconds(2);
    constexpr duration longest_pause = std::chrono::milliseconds(100);
    try {
        for (;;) {
            bool refused = true;
            for (const inet_endpoint& to : resolve(0)) {
                if (!try_connect(to, limit)) {
                    refused = refused && refused_ != ETIMEDOUT;
                    continue;
                }
                const inet_endpoint here = inet_endpoint::local(fd_);
                const std::string text = here.text();
                if (!is_of_this_host_alone(here)) address_ = text.substr(0, text.rfind(':'));
                return;
            }
            // Without an answer it may have so many to accept that none more finds room in the queue.
            if (refused && again) fail_gone();
            if (refused && served_) break;
            limit.sleep(pause);
            pause = std::min(2 * pause, longest_pause);
        }
    } catch (const error& failed) {
        if (failed.code() != errc::timed_out) throw;
        see_late(limit);
        if (again) fail_silent();
        std::string why = served_ ? "the program that is to listen there has not answered within the limit"
                                  : "rank 0, which is to listen there, has not come within the limit";
        if (refused_ != 0 && refused_ != EINPROGRESS) why.append(": ").append(std::strerror(refused_));
        fail(errc::timed_out, why);
    }
    fail(errc::connection_refused,
         std::string("the program that is to listen there does not: ") + std::strerror(refused_));
}

RDMACORO_COLD bool meeting_launcher::try_connect(const inet_endpoint& to, const patience& limit) {
    fd_ = ::socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) throw error(errc::no_resources, std::string("socket: ") + std::strerror(errno));
    refused_ = 0;
    if (::connect(fd_, to.get(), to.bytes) != 0) refused_ = errno;
    if (refused_ == EINPROGRESS) {
        // A packet that a host does not answer would last for minutes.
        constexpr duration attempt = std::chrono::seconds(2);
        if (await(POLLOUT, limit, deadline_after(monotonic_now(), attempt))) {
            socklen_t bytes = sizeof refused_;
            ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &refused_, &bytes);
        } else {
            refused_ = ETIMEDOUT;
        }
    }
    // A free port of this host may have been connected with itself.
    if (refused_ == 0 && inet_endpoint::local(fd_) == inet_endpoint::peer(fd_)) refused_ = ECONNREFUSED;
    if (refused_ == 0) {
        set_exchange_options(fd_);
        return true;
    }
    ::close(std::exchange(fd_, -1));
    return false;
}

RDMACORO_COLD void meeting_launcher::greet(const patience& limit) {
    const meeting_frame first = read(longest_meeting_message, limit);
    const auto greeting = first.kind == meeting_kind::greeting ? first.as<meeting_greeting>() : std::nullopt;
    if (!greeting || greeting->mark != meeting_mark)
        fail(errc::protocol_violation, "what listens there is no rendezvous of a job");
    if (greeting->version != meeting_version)
        fail(errc::version_mismatch, "the rendezvous speaks version " + std::to_string(greeting->version) +
                                         ", this program version " + std::to_string(meeting_version));
    const meeting_nonce nonce = new_meeting_nonce();
    write(meeting_message(meeting_kind::hello,
                          meeting_hello{.rank = rank_,
                                        .size = size_,
                                        .nonce = nonce,
                                        .proof = key_.prove("rank", greeting->nonce, rank_)}),
          limit);
    const meeting_frame answer = read(longest_meeting_message, limit);
    const auto welcome = answer.kind == meeting_kind::welcome ? answer.as<meeting_welcome>() : std::nullopt;
    if (!welcome) fail(errc::protocol_violation, "the rendezvous does not speak as one");
    if (welcome->proof != key_.prove("rendezvous", nonce, rank_))
        fail(errc::permission_denied, "the rendezvous does not have the key of this job");
    welcome_ = true;
}

/// A process that was stopped, or got no core, and finds its limit over may have been answered long ago, or be told at once why the others have given up: it
/// waits as long again, for a second at most.
RDMACORO_COLD void meeting_launcher::see_late(const patience& limit) noexcept {
    if (late_until_) return;
    constexpr duration longest = std::chrono::seconds(1);
    const time_point now = monotonic_now();
    late_by_ = now - limit.until();
    late_until_ = now + std::min(late_by_, longest);
}
RDMACORO_COLD bool meeting_launcher::await(short events, const patience& limit, time_point sooner) {
    try {
        return limit.wait(fd_, events, sooner);
    } catch (const error& failed) {
        if (failed.code() != errc::timed_out) throw;
    }
    see_late(limit);
    return patience(*late_until_, limit.stop_fd()).wait(fd_, events);
}

RDMACORO_COLD void meeting_launcher::write(std::vector<std::byte> message, const patience& limit) {
    std::span<const std::byte> left = message;
    while (!left.empty()) {
        await(POLLOUT, limit);
        const ssize_t sent = ::send(fd_, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (sent < 0) return;  // the reason may have been sent before: read next
        left = left.subspan(static_cast<std::size_t>(sent));
    }
}

RDMACORO_COLD std::optional<meeting_frame>
meeting_launcher::read_until(time_point sooner, std::size_t longest, const patience& limit) {
    in_.erase(in_.begin(), in_.begin() + static_cast<std::ptrdiff_t>(std::exchange(taken_, 0)));
    std::array<std::byte, 16384> room;
    for (;;) {
        std::optional<meeting_frame> frame;
        try {
            frame = next_meeting_frame(in_, longest);
        } catch (const error&) {
            fail(errc::protocol_violation, "what listens there is no rendezvous of a job");
        }
        if (frame) {
            taken_ = frame->bytes();
            if (frame->kind != meeting_kind::refusal && frame->kind != meeting_kind::lost) return frame;
            const std::string why = frame->as<std::string>().value_or("no reason").substr(0, 400);
            if (frame->kind == meeting_kind::lost) fail(errc::peer_lost, why);
            fail(errc::permission_denied, "refused: " + why);
        }
        if (!await(POLLIN, limit, sooner)) return {};
        const ssize_t got = ::recv(fd_, room.data(), room.size(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (got <= 0) {
            turned_away_ = !welcome_;
            fail_gone();
        }
        in_.insert(in_.end(), room.begin(), room.begin() + got);
    }
}

RDMACORO_COLD std::vector<launcher::blob> meeting_launcher::exchange(const blob& mine,
                                                                     const patience& limit) {
    if (mine.size() > most_bytes || mine.empty())
        throw_error(errc::invalid_argument, "a launcher carries 1 to 16384 bytes a rank");
    late_by_ = {};
    late_until_.reset();
    std::vector<blob> all = serves_ ? exchange_here(mine, limit) : exchange_there(mine, limit);
    ++exchanges_;
    return all;
}

RDMACORO_COLD std::vector<launcher::blob> meeting_launcher::exchange_here(const blob& mine,
                                                                          const patience& limit) {
    server_->put_own(mine);
    patience by = limit;
    bool over = false;
    while (!server_->complete(exchanges_) && server_->lost().empty()) {
        if (over) {
            const std::vector<std::uint32_t> missing = server_->missing();
            if (missing.size() == size_) {
                const std::vector<std::uint32_t> slow = server_->untaken();
                fail(errc::timed_out, (slow.size() == 1 ? "rank " : "ranks ") +
                                          list_of_ranks(slow, slow.size()) +
                                          (slow.size() == 1 ? " does" : " do") + " not take the answer");
            }
            const std::string why =
                server_->no_descriptors()
                    ? "; rank 0 had no descriptor left for a connection that waits (ulimit -n)"
                    : std::string();
            server_->give_up("ranks that have not come within the limit of rank 0: " +
                             list_of_ranks(missing, missing.size()) + " of " + std::to_string(size_) + why);
            fail_missing(missing, missing.size(), why);
        }
        try {
            server_->turn(by);
        } catch (const error& failed) {
            if (failed.code() != errc::timed_out) throw;
            over = late_until_.has_value();
            see_late(limit);
            by = patience(*late_until_, limit.stop_fd());
        }
    }
    if (!server_->lost().empty()) fail(errc::peer_lost, server_->lost());
    return server_->last();
}

RDMACORO_COLD std::vector<launcher::blob> meeting_launcher::exchange_there(const blob& mine,
                                                                           const patience& limit) {
    const std::size_t longest = std::size_t{size_} * (most_bytes + 16) + 64;
    // Which ranks are missing is asked for once more before the limit: a rendezvous that has stood still meanwhile does not answer, and what it said
    // before is not true of ranks that have come since.
    constexpr duration most_to_answer = std::chrono::milliseconds(500);
    const duration to_answer =
        std::min(std::max(limit.until() - monotonic_now(), duration::zero()) / 4, most_to_answer);
    time_point ask_at = limit.until() - to_answer;
    patience by = limit;
    std::optional<meeting_missing> news;
    bool heard = false;
    try {
        write(meeting_message(meeting_kind::put, meeting_put{exchanges_, mine}), limit);
        for (;;) {
            const std::optional<meeting_frame> frame = read_until(ask_at, longest, by);
            if (!frame) {
                const time_point now = monotonic_now();
                if (now > limit.until()) see_late(limit);
                write(meeting_message(meeting_kind::ask, std::uint8_t{0}), limit);
                ask_at = time_point::max();
                by = patience(std::max(limit.until(), now + to_answer), limit.stop_fd());
                heard = false;
                continue;
            }
            heard = true;
            if (frame->kind == meeting_kind::missing) {
                news = frame->as<meeting_missing>();
                if (!news || news->exchange != exchanges_ || news->ranks.size() > news->count) break;
                continue;
            }
            auto all = frame->kind == meeting_kind::all ? frame->as<meeting_all>() : std::nullopt;
            if (!all || all->exchange != exchanges_ || all->bytes.size() != size_ ||
                all->bytes[rank_] != mine)
                break;
            return std::move(all->bytes);
        }
    } catch (const error& failed) {
        if (failed.code() != errc::timed_out) throw;
        // Without waiting: the others are told by it that this rank has not died.
        const std::vector<std::byte> bye = meeting_message(meeting_kind::bye, meeting_end::limit);
        static_cast<void>(::send(fd_, bye.data(), bye.size(), MSG_DONTWAIT | MSG_NOSIGNAL));
        if (news && heard) fail_missing(news->ranks, news->count, {});
        fail_silent();
    }
    fail(errc::protocol_violation, "the rendezvous does not speak as one");
}

RDMACORO_COLD void meeting_launcher::leave(const patience& limit) {
    if (!serves_) {
        write(meeting_message(meeting_kind::bye, meeting_end::has_all), limit);
        ::close(std::exchange(fd_, -1));
        return;
    }
    // Closing resets connections with words that were not read, and the rest of an answer would be lost with them.
    const patience by = late_until_ ? patience(*late_until_, limit.stop_fd()) : limit;
    while (!server_->all_gone()) server_->turn(by);
    server_.reset();
}

}  // namespace rdmacoro::detail
