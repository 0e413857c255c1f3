// The rendezvous' connections: strangers, ranks, and what each is told.
#pragma once

#include <rdmacoro/service/detail/meeting_server.hpp>
#include <rdmacoro/service/detail/thread_wait.hpp>
#include <rdmacoro/transport/detail/connect_info_exchange.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <poll.h>
#include <unistd.h>

namespace rdmacoro::detail {

RDMACORO_COLD meeting_server::meeting_server(const inet_endpoint& at, std::uint32_t size, const job_key& key,
                                             bool own)
    : size_(size), key_(key), stages_(size, stage::absent), now_(size), own_(own) {
    if (own) stages_[0] = stage::here;
    fd_ = ::socket(at.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) throw error(errc::no_resources, std::string("socket: ") + std::strerror(errno));
    const int on = 1;
    ::setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    constexpr int backlog = 4096;
    if (::bind(fd_, at.get(), at.bytes) != 0 || ::listen(fd_, backlog) != 0) {
        const int why = errno;
        ::close(fd_);
        throw error(why == EADDRINUSE ? errc::address_in_use : errc::address_invalid,
                    "a job's rendezvous at " + at.text() + ": " + std::strerror(why));
    }
}
RDMACORO_COLD meeting_server::~meeting_server() {
    for (const auto& one : guests_) {
        if (one->fd >= 0) ::close(one->fd);
    }
    ::close(fd_);
}

RDMACORO_COLD bool meeting_server::complete(std::uint32_t exchange) const noexcept {
    return exchange_ > exchange &&
           std::all_of(guests_.begin(), guests_.end(), [](const auto& one) { return one->out.empty(); });
}
RDMACORO_COLD std::vector<std::uint32_t> meeting_server::untaken() const {
    std::vector<std::uint32_t> ranks;
    for (const auto& one : guests_) {
        if (one->rank != no_rank && !one->out.empty()) ranks.push_back(one->rank);
    }
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}
RDMACORO_COLD std::vector<std::uint32_t> meeting_server::missing() const {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
        if (now_[rank].empty()) ranks.push_back(rank);
    }
    return ranks;
}

RDMACORO_COLD void meeting_server::turn(const patience& limit) {
    std::vector<pollfd> on{{fd_, static_cast<short>(accepts_ ? POLLIN : 0), 0}, {limit.stop_fd(), POLLIN, 0}};
    time_point until = std::min(limit.until(), news_at_);
    for (const auto& one : guests_) {
        on.push_back({one->fd, static_cast<short>(POLLIN | (one->out.empty() ? 0 : POLLOUT)), 0});
        if (one->rank == no_rank || one->ends) until = std::min(until, one->until);
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - monotonic_now()).count() + 1;
    const int found =
        ::poll(on.data(), on.size(), static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000)));
    if (found < 0 && errno != EINTR) throw_error(std::error_code(errno, std::system_category()));
    if (on[1].revents != 0 && found > 0) throw_error(errc::canceled);
    accepts_ = true;
    const std::size_t before = guests_.size();
    for (std::size_t n = 0; found > 0 && n < before; ++n) {
        guest& one = *guests_[n];
        const short events = on[n + 2].revents;
        if (one.fd >= 0 && (events & POLLOUT) != 0) flush(one);
        if (one.fd >= 0 && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read(one);
    }
    if (found > 0 && on[0].revents != 0) accept();
    sweep();
    if (monotonic_now() >= limit.until()) throw_error(errc::timed_out);
}

/// Closes what has to end, and tells the news.
RDMACORO_COLD void meeting_server::sweep() {
    const time_point now = monotonic_now();
    for (const auto& one : guests_) {
        if (one->fd >= 0 && (one->rank == no_rank || one->ends) && now >= one->until) close(*one);
        if (one->fd >= 0 && one->ends && one->out.empty()) close(*one);
    }
    if (now >= news_at_) {
        news_at_ = time_point::max();
        shared_bytes news;
        for (const auto& one : guests_) {
            if (one->fd < 0 || !one->waits || !one->out.empty())
                continue;  // one that reads nothing gets no more
            if (!news) news = missing_message();
            say(*one, news);
        }
    }
    judge_gone();
    std::erase_if(guests_, [](const auto& one) { return one->fd < 0; });
}

RDMACORO_COLD void meeting_server::accept() {
    constexpr int most_at_once = 64;
    for (int n = 0; n < most_at_once; ++n) {
        const meeting_nonce nonce = new_meeting_nonce();
        const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            // Without a descriptor left the connection waits: not looked for before something else has happened.
            if (errno == EMFILE || errno == ENFILE) {
                accepts_ = false;
                no_descriptors_ = true;
            }
            return;
        }
        no_descriptors_ = false;
        set_exchange_options(fd);
        std::size_t strangers = 0;
        guest* first = nullptr;
        for (const auto& one : guests_) {
            if (one->fd < 0 || one->rank != no_rank) continue;
            if (first == nullptr) first = one.get();
            ++strangers;
        }
        if (strangers >= std::size_t{64} + size_) {
            read(*first);  // it may have spoken since
            if (first->fd >= 0 && first->rank == no_rank) close(*first);
        }
        auto made = std::make_unique<guest>();
        made->fd = fd;
        made->nonce = nonce;
        made->until = monotonic_now() + hello_limit;
        guest& to = *guests_.emplace_back(std::move(made));
        say(to, std::make_shared<const std::vector<std::byte>>(
                    meeting_message(meeting_kind::greeting, meeting_greeting{.nonce = to.nonce})));
    }
}

RDMACORO_COLD void meeting_server::read(guest& from) {
    std::array<std::byte, 4096> room;
    constexpr int most_at_once = 16;
    for (int n = 0; n < most_at_once; ++n) {
        const ssize_t got = ::recv(from.fd, room.data(), room.size(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) return close(from);
        if (from.ends) continue;  // what a refused one says is not read
        from.in.insert(from.in.end(), room.begin(), room.begin() + got);
        const std::size_t longest = from.rank == no_rank ? 128 : longest_meeting_message;
        try {
            while (const auto frame = next_meeting_frame(from.in, longest)) {
                const std::size_t bytes = frame->bytes();
                take(from, *frame);
                if (from.fd < 0) return;
                from.in.erase(from.in.begin(), from.in.begin() + static_cast<std::ptrdiff_t>(bytes));
            }
        } catch (const error&) {
            return close(from);
        }
    }
}

RDMACORO_COLD void meeting_server::take(guest& from, const meeting_frame& frame) {
    if (from.rank == no_rank) {
        const auto hello = frame.kind == meeting_kind::hello ? frame.as<meeting_hello>() : std::nullopt;
        if (!hello || hello->mark != meeting_mark) return close(from);
        return take_hello(from, *hello);
    }
    if (frame.kind == meeting_kind::bye) {
        if (frame.as<meeting_end>() == meeting_end::limit) gave_up_.push_back(from.rank);
        return close(from);
    }
    if (frame.kind == meeting_kind::ask) {
        // One that waits for nothing is about to read its answer; one that reads nothing gets no more.
        if (from.waits && from.out.empty()) say(from, missing_message());
        return;
    }
    auto put = frame.kind == meeting_kind::put ? frame.as<meeting_put>() : std::nullopt;
    if (!put || put->exchange != exchange_ || put->bytes.empty() ||
        put->bytes.size() > launcher::most_bytes || from.waits)
        return refuse(from, "rank " + std::to_string(from.rank) + " speaks out of turn");
    from.waits = true;
    given(from.rank, std::move(put->bytes));
    if (from.waits) {
        say(from, missing_message());
        if (news_at_ == time_point::max()) news_at_ = monotonic_now() + news_pause;
    }
}

RDMACORO_COLD void meeting_server::take_hello(guest& from, const meeting_hello& hello) {
    const std::string rank = "rank " + std::to_string(hello.rank);
    if (hello.version != meeting_version)
        return refuse(from, "the rendezvous speaks version " + std::to_string(meeting_version) + ", " + rank +
                                " version " + std::to_string(hello.version));
    if (hello.proof != key_.prove("rank", from.nonce, hello.rank))
        return refuse(from, rank + (key_.given() ? " does not have the key of this job in RDMACORO_KEY"
                                                 : " has a key in RDMACORO_KEY, the rendezvous has none"));
    if (hello.size != size_)
        return refuse(from, rank + " is of a job of " + std::to_string(hello.size) + ", this one is of " +
                                std::to_string(size_) + ": compare RDMACORO_SIZE");
    if (hello.rank >= size_) return refuse(from, rank + " is too high for a job of " + std::to_string(size_));
    if (stages_[hello.rank] == stage::here)
        return refuse(from, rank + " is there already: two processes have the same RDMACORO_RANK");
    if (stages_[hello.rank] == stage::gone)
        return refuse(from, rank + " was there before and has gone: a process joins once");
    stages_[hello.rank] = stage::here;
    from.rank = hello.rank;
    say(from,
        std::make_shared<const std::vector<std::byte>>(meeting_message(
            meeting_kind::welcome, meeting_welcome{key_.prove("rendezvous", hello.nonce, hello.rank)})));
    if (!lost_.empty())
        say(from, std::make_shared<const std::vector<std::byte>>(meeting_message(meeting_kind::lost, lost_)));
}

RDMACORO_COLD void meeting_server::put_own(std::vector<std::byte> bytes) {
    given(0, std::move(bytes));
    judge_gone();
}
RDMACORO_COLD void meeting_server::given(std::uint32_t rank, std::vector<std::byte> bytes) {
    now_[rank] = std::move(bytes);
    ++came_;
    if (came_ != size_ || gone_ != 0) return;  // one that has gone takes no answer
    last_ = std::exchange(now_, std::vector<std::vector<std::byte>>(size_));
    const auto all = std::make_shared<const std::vector<std::byte>>(
        meeting_message(meeting_kind::all, meeting_all{exchange_, last_}));
    ++exchange_;
    came_ = 0;
    news_at_ = time_point::max();
    for (const auto& one : guests_) {
        if (one->fd < 0 || !one->waits) continue;
        one->waits = false;
        say(*one, all);
    }
}

/// Of ranks that wait and one that has gone, none will get what it waits for. Nor does one that waited to its limit have what the others may have got.
RDMACORO_COLD void meeting_server::judge_gone() {
    if (!lost_.empty() || gone_ == 0 || (came_ == 0 && gave_up_.empty())) return;
    std::vector<std::uint32_t> gone;
    std::vector<std::uint32_t> absent;
    for (std::uint32_t rank = 0; rank < size_; ++rank) {
        if (stages_[rank] == stage::absent) absent.push_back(rank);
        if (stages_[rank] == stage::gone &&
            std::find(gave_up_.begin(), gave_up_.end(), rank) == gave_up_.end())
            gone.push_back(rank);
    }
    const bool at_limit = gone.empty() || came_ == 0;  // else one that has all may have left
    if (at_limit) {
        // It is no fault of theirs; that is of the ranks that have not given their bytes, connected or not.
        std::sort(gave_up_.begin(), gave_up_.end());
        gone = gave_up_;
        absent = came_ == 0 ? std::vector<std::uint32_t>() : missing();
    }
    std::string why = (gone.size() == 1 ? "rank " : "ranks ") + list_of_ranks(gone, gone.size()) + " of " +
                      std::to_string(size_) + (gone.size() == 1 ? " has" : " have") +
                      (at_limit ? " waited to the limit" : " gone before all had joined");
    if (!absent.empty())
        why += absent.size() == 1 ? "; rank " + list_of_ranks(absent, 1) + " has not come"
                                  : "; ranks " + list_of_ranks(absent, absent.size()) + " have not come";
    give_up(why);
}
RDMACORO_COLD void meeting_server::ended(std::uint32_t rank) {
    if (stages_[rank] != stage::absent) return;  // its connection tells more
    stages_[rank] = stage::gone;
    ++gone_;
    judge_gone();
}
RDMACORO_COLD void meeting_server::give_up(const std::string& why) {
    lost_ = why;
    const auto word =
        std::make_shared<const std::vector<std::byte>>(meeting_message(meeting_kind::lost, lost_));
    for (const auto& one : guests_) {
        if (one->fd >= 0 && one->rank != no_rank) say(*one, word);
    }
}

RDMACORO_COLD meeting_server::shared_bytes meeting_server::missing_message() const {
    meeting_missing news{.exchange = exchange_, .ranks = missing()};
    news.count = static_cast<std::uint32_t>(news.ranks.size());
    constexpr std::size_t most = 64;
    if (news.ranks.size() > most) news.ranks.resize(most);
    return std::make_shared<const std::vector<std::byte>>(meeting_message(meeting_kind::missing, news));
}

RDMACORO_COLD void meeting_server::say(guest& to, shared_bytes what) {
    to.out.push_back(std::move(what));
    flush(to);
}
RDMACORO_COLD void meeting_server::flush(guest& to) noexcept {
    while (to.fd >= 0 && !to.out.empty()) {
        const std::vector<std::byte>& first = *to.out.front();
        const ssize_t sent =
            ::send(to.fd, first.data() + to.sent, first.size() - to.sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EAGAIN || errno == EINTR) return;
            if (errno != EPIPE && errno != ECONNRESET) return close(to);
            // It has gone; what it said before is read first, and then its end.
            to.out.clear();
            to.sent = 0;
            return;
        }
        to.sent += static_cast<std::size_t>(sent);
        if (to.sent == first.size()) {
            to.out.pop_front();
            to.sent = 0;
        }
    }
}
RDMACORO_COLD void meeting_server::refuse(guest& to, const std::string& why) {
    to.until = monotonic_now() + hello_limit;  // to take the answer
    to.ends = true;
    say(to, std::make_shared<const std::vector<std::byte>>(meeting_message(meeting_kind::refusal, why)));
}
RDMACORO_COLD void meeting_server::close(guest& which) noexcept {
    ::shutdown(which.fd, SHUT_WR);
    ::close(std::exchange(which.fd, -1));
    which.out.clear();
    if (which.rank == no_rank) return;
    stages_[which.rank] = stage::gone;
    ++gone_;
}

}  // namespace rdmacoro::detail
